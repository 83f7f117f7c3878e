//! From adjusted logits to an id.

use k3_kernels::{KernelSet, argmax};

use super::history::History;
use super::settings::{SampleError, SamplingSettings};
use super::token_id;
use crate::philox::uniform;

/// Draws tokens; keeps its buffers between draws.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: SamplingSettings,
    /// Logits behind penalties and biases, where there are any.
    adjusted: Vec<f32>,
    candidates: Vec<(f32, u32)>,
    probabilities: Vec<f32>,
}

impl Sampler {
    /// A sampler for `settings`.
    ///
    /// # Errors
    ///
    /// A setting outside its range.
    pub fn new(settings: SamplingSettings) -> Result<Self, SampleError> {
        settings.validate()?;
        Ok(Self {
            settings,
            adjusted: Vec::new(),
            candidates: Vec::new(),
            probabilities: Vec::new(),
        })
    }

    /// What it draws by.
    #[must_use]
    pub fn settings(&self) -> &SamplingSettings {
        &self.settings
    }

    /// The token at absolute index `position`, drawn from `logits`: `[vocab]`.
    /// `history` is what came before it; `choice` numbers parallel answers to
    /// one prompt from 0. Without penalties, biases and temperature nothing is
    /// copied or allocated.
    ///
    /// # Errors
    ///
    /// Logits that are not finite or do not stay so, a bias or a penalty for an
    /// id that is not among them, a ban of all.
    pub fn draw(
        &mut self,
        logits: &[f32],
        history: &History,
        position: u64,
        choice: u32,
    ) -> Result<u32, SampleError> {
        let Self {
            settings,
            adjusted,
            candidates,
            ..
        } = self;
        let temperature = settings.temperature;
        let best = argmax(logits).ok_or(SampleError::RawNotFinite)?;
        let logits = if settings.adjusts() {
            adjusted.clear();
            adjusted.extend_from_slice(logits);
            settings.adjust(adjusted, history)?;
            adjusted.as_slice()
        } else if temperature == 0.0 {
            return Ok(token_id(best));
        } else {
            logits
        };
        if temperature == 0.0 {
            return Ok(likeliest(logits));
        }
        collect(candidates, logits, temperature)?;
        if settings.top_k > 0 {
            candidates.truncate(settings.top_k);
        }
        self.keep_probable();
        let u = uniform(self.settings.seed, position, choice);
        Ok(self.pick(u))
    }

    /// Softmax over the candidates, then top-p, then min-p.
    fn keep_probable(&mut self) {
        self.probabilities.clear();
        self.probabilities
            .extend(self.candidates.iter().map(|(x, _)| *x));
        (KernelSet::detect().softmax)(&mut self.probabilities);
        let total = serial_sum(&self.probabilities);
        let mut cumulative = 0.0;
        let kept = self
            .probabilities
            .iter()
            .position(|p| {
                cumulative += f64::from(*p);
                cumulative >= self.settings.top_p * total
            })
            .map_or(self.probabilities.len(), |index| index + 1);
        self.probabilities.truncate(kept);
        // Sorted, so what is too improbable is a suffix.
        let floor = self.settings.min_p * self.probabilities[0];
        self.probabilities.retain(|p| *p >= floor);
        self.candidates.truncate(self.probabilities.len());
    }

    /// The first candidate whose cumulative share exceeds `u`.
    fn pick(&self, u: f64) -> u32 {
        let total = serial_sum(&self.probabilities);
        let mut cumulative = 0.0;
        let index = self
            .probabilities
            .iter()
            .position(|p| {
                cumulative += f64::from(*p);
                cumulative > u * total
            })
            .unwrap_or(self.probabilities.len() - 1);
        self.candidates[index].1
    }
}

/// The first maximum of logits of which at least one is finite and the others
/// may be minus infinity.
fn likeliest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    token_id(best)
}

/// Divides by the temperature and sorts, leaving out what is banned.
fn collect(
    candidates: &mut Vec<(f32, u32)>,
    logits: &[f32],
    temperature: f32,
) -> Result<(), SampleError> {
    candidates.clear();
    let scaled = logits
        .iter()
        .enumerate()
        .filter(|(_, x)| **x != f32::NEG_INFINITY)
        .map(|(id, x)| (x / temperature, token_id(id)));
    candidates.extend(scaled);
    if candidates.iter().any(|(x, _)| !x.is_finite()) {
        return Err(SampleError::NotFinite { temperature });
    }
    // Ids are distinct, so the order is total and the sort's kind cannot show.
    // Zeros of either sign are equal: the lower id goes first.
    candidates.sort_unstable_by(|a, b| {
        let by_value = b.0.partial_cmp(&a.0).expect("all are finite");
        by_value.then(a.1.cmp(&b.1))
    });
    Ok(())
}

/// One f64 accumulator, in order.
fn serial_sum(values: &[f32]) -> f64 {
    values
        .iter()
        .fold(0.0, |sum, value| sum + f64::from(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAN: f32 = f32::NEG_INFINITY;

    fn sampler(settings: SamplingSettings) -> Sampler {
        Sampler::new(settings).unwrap()
    }

    fn hot() -> SamplingSettings {
        SamplingSettings {
            temperature: 1.0,
            ..SamplingSettings::default()
        }
    }

    fn draw(settings: SamplingSettings, logits: &[f32], position: u64) -> Result<u32, SampleError> {
        sampler(settings).draw(logits, &History::default(), position, 0)
    }

    fn kept(settings: SamplingSettings, logits: &[f32]) -> Vec<u32> {
        let mut sampler = sampler(settings);
        sampler.draw(logits, &History::default(), 0, 0).unwrap();
        sampler.candidates.iter().map(|(_, id)| *id).collect()
    }

    #[test]
    fn greedy_takes_the_first_maximum() {
        let greedy = SamplingSettings::default;
        assert_eq!(draw(greedy(), &[1.0, 3.0, 3.0, -1.0], 0), Ok(1));
        for wrong in [&[][..], &[1.0, f32::NAN], &[1.0, BAN]] {
            assert_eq!(draw(greedy(), wrong, 0), Err(SampleError::RawNotFinite));
            assert_eq!(draw(hot(), wrong, 0), Err(SampleError::RawNotFinite));
        }
        let mut sampler = sampler(greedy());
        let history = History::new(&[1, 2]);
        assert_eq!(sampler.draw(&[1.0, 3.0], &history, 0, 0), Ok(1));
        let buffers = (sampler.adjusted.capacity(), sampler.candidates.capacity());
        assert_eq!(buffers, (0, 0), "nothing is copied");
    }

    #[test]
    fn draws_follow_the_probabilities_and_repeat() {
        let settings = SamplingSettings { seed: 42, ..hot() };
        // Probabilities 1/2, 1/4, 1/4.
        let logits = [std::f32::consts::LN_2, 0.0, 0.0];
        let draws: Vec<u32> = (0..4000)
            .map(|position| draw(settings.clone(), &logits, position).unwrap())
            .collect();
        let share = |id| draws.iter().filter(|draw| **draw == id).count();
        assert!((1850..2150).contains(&share(0)), "{}", share(0));
        assert!((880..1120).contains(&share(1)), "{}", share(1));
        assert_eq!(draw(settings, &logits, 77), Ok(draws[77]));
    }

    #[test]
    fn choices_of_one_position_are_drawn_apart() {
        let mut sampler = sampler(hot());
        let history = History::default();
        let logits = [0.0; 16];
        let mut draws = |choice| -> Vec<u32> {
            let positions = 0..32;
            positions
                .map(|position| sampler.draw(&logits, &history, position, choice).unwrap())
                .collect()
        };
        let (first, second) = (draws(0), draws(1));
        assert_ne!(first, second);
        assert_eq!(draws(1), second);
    }

    #[test]
    fn filters_keep_what_they_say() {
        let logits = [0.0, 2.0, 1.0, 2.0, -1.0];
        let kept = |settings| kept(settings, &logits);
        // Equal logits: the lower id first.
        assert_eq!(kept(hot()), [1, 3, 2, 0, 4]);
        assert_eq!(kept(SamplingSettings { top_k: 2, ..hot() }), [1, 3]);
        // The two largest hold 0.78 of the probability.
        let top_p = |top_p| SamplingSettings { top_p, ..hot() };
        assert_eq!(kept(top_p(0.7)), [1, 3]);
        assert_eq!(kept(top_p(1e-9)), [1]);
        // e^-1 = 0.37 of the largest.
        let min_p = |min_p| SamplingSettings { min_p, ..hot() };
        assert_eq!(kept(min_p(0.3)), [1, 3, 2]);
        assert_eq!(kept(min_p(1.0)), [1, 3]);
    }

    #[test]
    fn zeros_of_either_sign_are_equal() {
        assert_eq!(kept(hot(), &[-0.0, 0.0, -0.0, 1.0]), [3, 0, 1, 2]);
    }

    #[test]
    fn what_is_banned_is_no_candidate() {
        let banned = |base, ids: &[u32]| SamplingSettings {
            logit_bias: ids.iter().map(|id| (*id, BAN)).collect(),
            ..base
        };
        let logits = [0.0, 2.0, 1.0];
        assert_eq!(kept(banned(hot(), &[1]), &logits), [2, 0]);
        let greedy = SamplingSettings::default;
        assert_eq!(draw(banned(greedy(), &[1]), &logits, 0), Ok(2));
        // Also where the first id is banned and the others are as low as can be.
        let low = [0.0, f32::MIN, f32::MIN];
        assert_eq!(draw(banned(greedy(), &[0]), &low, 0), Ok(1));
        for base in [greedy(), hot()] {
            let error = draw(banned(base, &[0, 1, 2]), &logits, 0);
            assert_eq!(error, Err(SampleError::AllBanned { vocab_size: 3 }));
        }
    }

    #[test]
    fn penalties_act_at_any_temperature() {
        let settings = SamplingSettings {
            presence_penalty: 1.5,
            ..SamplingSettings::default()
        };
        let mut sampler = sampler(settings);
        let mut history = History::new(&[1]);
        let logits = [1.0, 2.0, 1.5];
        let mut ids = Vec::new();
        for position in 1..5 {
            let id = sampler.draw(&logits, &history, position, 0).unwrap();
            history.push(id);
            ids.push(id);
        }
        // 2 > 1.5 > 1 > 0.5 = 2 - 1.5 > 0: all have come, the order begins again.
        assert_eq!(ids, [1, 2, 0, 1]);
    }

    #[test]
    fn a_temperature_too_low_for_the_logits_is_an_error() {
        let tiny = SamplingSettings {
            temperature: 1e-45,
            ..hot()
        };
        let error = draw(tiny, &[1.0, 2.0], 0).unwrap_err();
        assert!(error.to_string().contains("--temperature"), "{error}");
    }
}
