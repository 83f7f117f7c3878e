//! The sampler against `fixtures/golden_sampling.json`.
//!
//! The vectors come from an independent implementation of section 7 of
//! `docs/numerics.md`. A field that is unknown here fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k3_runtime::philox::{philox4x32, uniform};
use k3_runtime::{History, Sampler, SamplingSettings, logprobs};
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
    /// The first ids by logit, then by id.
    likeliest: BTreeMap<String, Vec<u32>>,
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
    choice: u32,
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
    /// Null bans.
    bias: Vec<(u32, Option<f32>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draw {
    seed: String,
    position: String,
    choice: u32,
    id: u32,
}

impl Settings {
    /// Whether the case changes logits by what was said before, or by id.
    fn adjusts_logits(&self) -> bool {
        let neutral = self.repetition == 1.0 && self.frequency == 0.0 && self.presence == 0.0;
        !neutral || !self.bias.is_empty()
    }

    fn all(&self, seed: u64) -> SamplingSettings {
        let bias = self.bias.iter();
        SamplingSettings {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition,
            frequency_penalty: self.frequency,
            presence_penalty: self.presence,
            logit_bias: bias
                .map(|(id, bias)| (*id, bias.unwrap_or(f32::NEG_INFINITY)))
                .collect(),
            seed,
        }
    }

    fn sampler(&self, seed: u64) -> Sampler {
        Sampler::new(self.all(seed)).unwrap()
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

    fn history(&self) -> History {
        assert!(!self.prompt.is_empty() && !self.output.is_empty());
        History::rebuilt(&self.prompt, &self.output)
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
    assert_eq!(golden.uniforms.len(), 15 + 6);
    for entry in &golden.uniforms {
        let (seed, position) = (number(&entry.seed), number(&entry.position));
        let found = uniform(seed, position, entry.choice).to_bits();
        assert_eq!(found, number(&entry.f64_bits), "{seed}, {position}");
    }
}

#[test]
fn every_draw_gives_the_same_id() {
    let golden = Golden::read();
    let history = golden.history();
    let (mut drawn, mut chosen) = (0, 0);
    for (index, case) in golden.cases.iter().enumerate() {
        let what = format!("case {index}, {}, {:?}", case.logits, case.settings);
        let logits = golden.logits_of(case);
        for draw in &case.draws {
            let (seed, position) = (number(&draw.seed), number(&draw.position));
            let mut sampler = case.settings.sampler(seed);
            let id = sampler.draw(&logits, &history, position, draw.choice);
            assert_eq!(id, Ok(draw.id), "{what}, seed {seed}, position {position}");
            drawn += 1;
            chosen += usize::from(draw.choice > 0);
        }
    }
    assert_eq!((golden.cases.len(), drawn, chosen), (45, 45 * 21, 45 * 6));
}

#[test]
fn penalties_and_biases_give_the_same_bits() {
    let golden = Golden::read();
    let history = golden.history();
    let (mut adjusted, mut banned) = (0, 0);
    for case in &golden.cases {
        let mut logits = golden.logits_of(case);
        let settings = case.settings.all(0);
        assert_eq!(settings.adjusts(), case.settings.adjusts_logits());
        settings.adjust(&mut logits, &history).unwrap();
        let bits: Vec<u32> = logits.iter().map(|logit| logit.to_bits()).collect();
        assert_eq!(bits, case.penalised, "{:?}", case.settings);
        adjusted += usize::from(bits != golden.logits[&case.logits]);
        let bans = logits.iter().filter(|logit| **logit == f32::NEG_INFINITY);
        banned += bans.count();
    }
    assert_eq!((adjusted, banned), (3 * 7, 3 * 5));
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
        let (logits, history) = (golden.logits_of(case), golden.history());
        let mut sampler = case.settings.sampler(1);
        let mut counts = BTreeMap::<u32, u32>::new();
        for position in 0..u64::from(DRAWS) {
            let id = sampler.draw(&logits, &history, position, 0).unwrap();
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
    assert_eq!(checked, 36);
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
        let history = History::default();
        let draws = (0..200).map(|position| sampler.draw(&logits, &history, position, 0).unwrap());
        draws.collect::<BTreeSet<u32>>().len()
    };
    assert_eq!(kept(4, 0.5), 2);
    assert_eq!(kept(4, 0.5_f64.next_up()), 3);
    // A third in f32 is 0.333333343: two of them are 0.666666687, but the total
    // is 1.00000003, of which 0.66666667 is 0.666666690.
    assert_eq!(kept(3, 0.666_666_66), 2);
    assert_eq!(kept(3, 0.666_666_67), 3);
}

#[test]
fn logprobs_are_the_same_bits_and_the_likeliest_the_same_ids() {
    let golden = Golden::read();
    assert!(golden.logits.keys().eq(golden.logprobs.keys()));
    assert!(golden.logits.keys().eq(golden.likeliest.keys()));
    assert_eq!(golden.logits.len(), 3);
    for (name, expected) in &golden.logprobs {
        let logits = floats(&golden.logits[name]);
        let found = logprobs(&logits, golden.likeliest[name].len()).unwrap();
        let ids = 0..u32::try_from(logits.len()).unwrap();
        let bits: Vec<u32> = ids.map(|id| found.of(id).unwrap().to_bits()).collect();
        assert_eq!(&bits, expected, "{name}");
        let top: Vec<u32> = found.top().iter().map(|entry| entry.id).collect();
        assert_eq!(top, golden.likeliest[name], "{name}");
        for entry in found.top() {
            assert_eq!(found.of(entry.id), Some(entry.logprob));
        }
    }
}

/// The worked example of the page, and that the page has its numbers.
#[test]
fn the_example_of_the_page_is_what_is_computed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/numerics.md")).unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = |text: String| assert!(page.contains(&text), "the page lacks: {text}");
    let raw = [1.0, 3.0, 2.0, 3.0, 9.0];
    let history = History::rebuilt(&[0], &[1, 1]);
    let settings = SamplingSettings {
        temperature: 0.5,
        top_k: 3,
        repetition_penalty: 1.25,
        frequency_penalty: 0.25,
        presence_penalty: 0.5,
        logit_bias: vec![(3, -1.5), (4, f32::NEG_INFINITY)],
        seed: 5,
        ..SamplingSettings::default()
    };
    let mut x = raw;
    settings.adjust(&mut x, &history).unwrap();
    assert_eq!(x[..4], [0.8, 1.400_000_1, 2.0, 1.5]);
    says(format!(
        "id 1 is 3 / 1.25 = 2.4, less 0.25 * 2, less 0.5: {} in f32",
        x[1]
    ));
    let scaled = [x[2], x[3], x[1]].map(|x| x / 0.5);
    says(format!(
        "ids 2, 3, 1 ({}, {}, {})",
        scaled[0], scaled[1], scaled[2]
    ));
    let mut p = scaled;
    (k3_kernels::KernelSet::detect().softmax)(&mut p);
    says(format!("p = {}, {}, {}.", p[0], p[1], p[2]));
    let mut sampler = Sampler::new(settings).unwrap();
    let drawn = [0, 1, 2].map(|choice| {
        let id = sampler.draw(&raw, &history, 3, choice).unwrap();
        (format!("{:.7}", uniform(5, 3, choice)), id)
    });
    assert_eq!(drawn.each_ref().map(|(_, id)| *id), [3, 2, 1]);
    says(format!("seed 5: u = {} for choice 0", drawn[0].0));
    says(format!(
        "Choice 1 has u = {}, id 2; choice 2 has u = {}, id 1",
        drawn[1].0, drawn[2].0
    ));
    let found = logprobs(&raw, 0).unwrap();
    let all: Vec<String> = (0..5).map(|id| found.of(id).unwrap().to_string()).collect();
    says(format!("ids 0 to 4: {}.", all.join(", ")));
}
