//! The sampler against `fixtures/golden_sampling.json`.
//!
//! The vectors come from an independent implementation of section 7 of
//! `docs/numerics.md`. The file also holds settings that the sampler does not
//! have: penalties and biases. Such cases are told by their fields and counted;
//! a field that is unknown here fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k3_kernels::math::{exp, ln64};
use k3_runtime::philox::{philox4x32, uniform};
use k3_runtime::{Sampler, SamplingSettings};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    numerics_version: u32,
    #[serde(rename = "note")]
    _note: String,
    /// Ids that penalties look at.
    prompt: Vec<u32>,
    output: Vec<u32>,
    philox4x32_10: Vec<Block>,
    uniforms: Vec<Uniform>,
    /// Bit patterns of f32.
    logits: BTreeMap<String, Vec<u32>>,
    logprobs: BTreeMap<String, Vec<u32>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    counter: [u32; 4],
    key: [u32; 2],
    words: [u32; 4],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Uniform {
    seed: String,
    position: String,
    f64_bits: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    logits: String,
    settings: Settings,
    /// Logits behind penalties and biases.
    penalised: Vec<u32>,
    /// Ids kept, most probable first; none at temperature 0.
    candidates: Vec<u32>,
    probabilities: Vec<u32>,
    draws: Vec<Draw>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    temperature: f32,
    top_k: usize,
    top_p: f64,
    min_p: f32,
    repetition: f32,
    frequency: f32,
    presence: f32,
    bias: Vec<(u32, f32)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draw {
    seed: String,
    position: String,
    id: u32,
}

impl Settings {
    /// Whether the case changes logits by what was said before, or by id.
    fn adjusts_logits(&self) -> bool {
        let neutral = self.repetition == 1.0 && self.frequency == 0.0 && self.presence == 0.0;
        !neutral || !self.bias.is_empty()
    }

    fn sampler(&self, seed: u64) -> Sampler {
        let settings = SamplingSettings {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed,
        };
        Sampler::new(settings).unwrap()
    }
}

impl Golden {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = root.join("fixtures/golden_sampling.json");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let golden: Self = serde_json::from_str(&text).unwrap();
        assert_eq!(golden.numerics_version, 1);
        golden
    }

    fn logits_of(&self, case: &Case) -> Vec<f32> {
        floats(&self.logits[&case.logits])
    }
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().copied().map(f32::from_bits).collect()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

#[test]
fn random_numbers_are_the_published_ones() {
    let golden = Golden::read();
    assert_eq!(golden.philox4x32_10.len(), 3);
    for block in &golden.philox4x32_10 {
        assert_eq!(philox4x32(block.counter, block.key), block.words);
    }
    assert_eq!(golden.uniforms.len(), 15);
    for entry in &golden.uniforms {
        let (seed, position) = (number(&entry.seed), number(&entry.position));
        let found = uniform(seed, position, 0).to_bits();
        assert_eq!(found, number(&entry.f64_bits), "{seed}, {position}");
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "a test tells what it did not check")]
fn every_draw_gives_the_same_id() {
    let golden = Golden::read();
    let (mut drawn, mut adjusted) = (0, 0);
    for (index, case) in golden.cases.iter().enumerate() {
        if case.settings.adjusts_logits() {
            adjusted += 1;
            continue;
        }
        let what = format!("case {index}, {}, {:?}", case.logits, case.settings);
        assert_eq!(case.penalised, golden.logits[&case.logits], "{what}");
        let logits = golden.logits_of(case);
        for draw in &case.draws {
            let (seed, position) = (number(&draw.seed), number(&draw.position));
            let id = case.settings.sampler(seed).draw(&logits, position);
            assert_eq!(id, Ok(draw.id), "{what}, seed {seed}, position {position}");
            drawn += 1;
        }
    }
    println!("{drawn} draws checked; {adjusted} cases have penalties or biases: no such settings");
    assert_eq!((golden.cases.len(), adjusted, drawn), (22, 6, 16 * 15));
}

/// A case with penalties or biases is the plain sampler on adjusted logits, so
/// the steps behind the adjustment are checked with them too.
#[test]
fn adjusted_logits_go_through_the_same_steps() {
    let golden = Golden::read();
    assert!(!golden.prompt.is_empty() && !golden.output.is_empty());
    let mut drawn = 0;
    let adjusted = |case: &&Case| case.settings.adjusts_logits();
    for case in golden.cases.iter().filter(adjusted) {
        assert_ne!(case.penalised, golden.logits[&case.logits]);
        let logits = floats(&case.penalised);
        for draw in &case.draws {
            let id = case
                .settings
                .sampler(number(&draw.seed))
                .draw(&logits, number(&draw.position));
            assert_eq!(id, Ok(draw.id), "{:?}", case.settings);
            drawn += 1;
        }
    }
    assert_eq!(drawn, 6 * 15);
}

/// Over many positions exactly the candidates turn up, as often as their
/// probabilities say.
#[test]
fn draws_come_from_the_candidates_with_their_probabilities() {
    const DRAWS: u32 = 20_000;
    let golden = Golden::read();
    let mut checked = 0;
    for case in &golden.cases {
        assert_eq!(case.candidates.len(), case.probabilities.len());
        if case.settings.temperature == 0.0 {
            assert!(case.candidates.is_empty());
            continue;
        }
        let logits = floats(&case.penalised);
        let mut sampler = case.settings.sampler(1);
        let mut counts = BTreeMap::<u32, u32>::new();
        for position in 0..u64::from(DRAWS) {
            let id = sampler.draw(&logits, position).unwrap();
            *counts.entry(id).or_default() += 1;
        }
        let kept: BTreeSet<u32> = case.candidates.iter().copied().collect();
        let found: BTreeSet<u32> = counts.keys().copied().collect();
        assert!(found.is_subset(&kept), "{:?}", case.settings);
        let probabilities = floats(&case.probabilities);
        let total: f64 = probabilities.iter().copied().map(f64::from).sum();
        for (id, probability) in case.candidates.iter().zip(probabilities) {
            let share = f64::from(probability) / total;
            let count = f64::from(counts.get(id).copied().unwrap_or(0));
            let expected = share * f64::from(DRAWS);
            // Five standard deviations, and a draw for the rarest.
            let slack = 5.0 * (expected * (1.0 - share)).sqrt() + 1.0;
            assert!(
                (count - expected).abs() <= slack,
                "{id}: {count}, {expected}"
            );
        }
        checked += 1;
    }
    assert_eq!(checked, 18);
}

/// Equal logits make sums that meet the edge of top-p exactly, or miss it by
/// what the probabilities fall short of or exceed one.
#[test]
fn top_p_includes_its_edge_and_is_a_share_of_the_total() {
    let kept = |count: usize, top_p: f64| {
        let settings = SamplingSettings {
            temperature: 1.0,
            top_p,
            ..SamplingSettings::default()
        };
        let mut sampler = Sampler::new(settings).unwrap();
        let logits = vec![0.5; count];
        let draws = (0..200).map(|position| sampler.draw(&logits, position).unwrap());
        draws.collect::<BTreeSet<u32>>().len()
    };
    assert_eq!(kept(4, 0.5), 2);
    assert_eq!(kept(4, 0.5_f64.next_up()), 3);
    // A third in f32 is 0.333333343: two of them are 0.666666687, but the total
    // is 1.00000003, of which 0.66666667 is 0.666666690.
    assert_eq!(kept(3, 0.666_666_66), 2);
    assert_eq!(kept(3, 0.666_666_67), 3);
}

/// The definition of a logprob, on the functions the runtime has for it.
#[test]
fn logprobs_follow_from_exp_and_ln64() {
    let golden = Golden::read();
    assert!(golden.logits.keys().eq(golden.logprobs.keys()));
    assert_eq!(golden.logits.len(), 2);
    for (name, expected) in &golden.logprobs {
        let logits = floats(&golden.logits[name]);
        let maximum = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let z = logits
            .iter()
            .fold(0.0, |z, x| z + f64::from(exp(x - maximum)));
        let found = logits.iter().map(|x| {
            #[allow(
                clippy::cast_possible_truncation,
                reason = "rounded to f32 by definition"
            )]
            let logprob = (f64::from(x - maximum) - ln64(z)) as f32;
            logprob.to_bits()
        });
        assert_eq!(&found.collect::<Vec<_>>(), expected, "{name}");
    }
}
