//! The file of golden vectors.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use k3_kernels::{Isa, KernelSet};
use serde_json::Value;

/// Outputs by the name that the file gives them, as bit patterns or integers.
pub(crate) type Outputs = BTreeMap<&'static str, Vec<u32>>;

/// Computes the outputs of a case with the kernels of one instruction set.
pub(crate) type Check = fn(&KernelSet, &Inputs<'_>) -> Outputs;

/// Keys of a case in the file.
const KEYS: [&str; 7] = [
    "name",
    "kernel",
    "shape",
    "inputs",
    "expected",
    "outputs",
    "wrong_orders",
];

/// One case of the file.
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: String,
    /// Values in all outputs together.
    pub(crate) output_count: u64,
    /// Named wrong implementations, and how many outputs each changes.
    pub(crate) wrong_orders: BTreeMap<String, u64>,
    shape: BTreeMap<String, Vec<u32>>,
    inputs: BTreeMap<String, Vec<u32>>,
    expected: BTreeMap<String, Vec<u32>>,
}

/// Every case of `fixtures/golden_kernels.json`.
pub(crate) fn read_cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("fixtures/golden_kernels.json");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["numerics_version"], 1);
    let cases = file["cases"].as_array().unwrap();
    cases.iter().map(Case::parse).collect()
}

impl Case {
    fn parse(value: &Value) -> Self {
        let entries = value.as_object().unwrap();
        let name = entries["name"].as_str().unwrap().to_owned();
        for key in entries.keys() {
            assert!(KEYS.contains(&key.as_str()), "{name}: unknown key {key}");
        }
        let counts = entries["wrong_orders"].as_object().unwrap();
        let counts = counts
            .iter()
            .map(|(order, count)| (order.clone(), count.as_u64().unwrap()));
        let case = Self {
            output_count: entries["outputs"].as_u64().unwrap(),
            wrong_orders: counts.collect(),
            shape: words_by_name(&entries["shape"]),
            inputs: words_by_name(&entries["inputs"]),
            expected: words_by_name(&entries["expected"]),
            name,
        };
        let expected: usize = case.expected.values().map(Vec::len).sum();
        assert_eq!(expected as u64, case.output_count, "{}", case.name);
        case
    }

    /// Panics unless `found` are the expected outputs, all of them.
    pub(crate) fn assert_outputs(&self, found: &Outputs, isa: Isa) {
        let name = &self.name;
        assert!(
            found.keys().eq(self.expected.keys()),
            "{name}: outputs {:?} and {:?}",
            found.keys(),
            self.expected.keys()
        );
        for (output, expected) in &self.expected {
            let found = &found[output.as_str()];
            let what = format!("{name}, {isa}, {output}");
            assert_eq!(found.len(), expected.len(), "{what}: lengths");
            for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
                assert!(
                    found == expected || is_nan(found) && is_nan(expected),
                    "{what}: value {index} is {found:#010x}, expected {expected:#010x}"
                );
            }
        }
    }
}

/// Lists of words by name; a single word is a list of one.
fn words_by_name(value: &Value) -> BTreeMap<String, Vec<u32>> {
    let word = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let words = |value: &Value| match value.as_array() {
        Some(list) => list.iter().map(word).collect(),
        None => vec![word(value)],
    };
    let entries = value.as_object().unwrap();
    entries
        .iter()
        .map(|(name, value)| (name.clone(), words(value)))
        .collect()
}

/// No integer of the file is this large.
fn is_nan(word: u32) -> bool {
    f32::from_bits(word).is_nan()
}

/// Words by name, and whether a check has asked for them.
type Asked<'a> = BTreeMap<&'a str, (&'a [u32], Cell<bool>)>;

/// Shape and inputs of a case; a check must ask for each of them.
pub(crate) struct Inputs<'a> {
    name: &'a str,
    shape: Asked<'a>,
    arrays: Asked<'a>,
}

impl<'a> Inputs<'a> {
    pub(crate) fn new(case: &'a Case) -> Self {
        let unasked = |entries: &'a BTreeMap<String, Vec<u32>>| {
            let entries = entries.iter();
            entries
                .map(|(name, words)| (name.as_str(), (words.as_slice(), Cell::new(false))))
                .collect()
        };
        Self {
            name: &case.name,
            shape: unasked(&case.shape),
            arrays: unasked(&case.inputs),
        }
    }

    fn ask(&self, entries: &Asked<'a>, name: &str) -> &'a [u32] {
        let (words, asked) = entries
            .get(name)
            .unwrap_or_else(|| panic!("{} has no {name}", self.name));
        asked.set(true);
        words
    }

    /// Integers as they stand in the file.
    pub(crate) fn words(&self, name: &str) -> &'a [u32] {
        self.ask(&self.arrays, name)
    }

    /// f32 values.
    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name)
            .iter()
            .copied()
            .map(f32::from_bits)
            .collect()
    }

    /// f32 values as a weight file stores them.
    pub(crate) fn float_bytes(&self, name: &str) -> Vec<u8> {
        let words = self.words(name).iter();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    /// bf16 values as a weight file stores them.
    pub(crate) fn bf16_bytes(&self, name: &str) -> Vec<u8> {
        let halves = self.words(name).iter().map(|word| u16::try_from(*word));
        halves
            .flat_map(|half| half.unwrap().to_le_bytes())
            .collect()
    }

    /// Bytes.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let bytes = self.words(name).iter().map(|word| u8::try_from(*word));
        bytes.map(Result::unwrap).collect()
    }

    /// One f32 of the shape.
    pub(crate) fn setting(&self, name: &str) -> f32 {
        f32::from_bits(self.word(name))
    }

    /// One count of the shape.
    pub(crate) fn count(&self, name: &str) -> usize {
        usize::try_from(self.word(name)).unwrap()
    }

    fn word(&self, name: &str) -> u32 {
        let words = self.ask(&self.shape, name);
        assert_eq!(words.len(), 1, "{}: {name} is one word", self.name);
        words[0]
    }

    /// Panics if the check has ignored something the file gives.
    pub(crate) fn assert_all_used(&self) {
        for (entry, (_, asked)) in self.shape.iter().chain(&self.arrays) {
            assert!(asked.get(), "{}: {entry} was not used", self.name);
        }
    }
}

/// f32 outputs.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// One f32 output and nothing else.
pub(crate) fn only(name: &'static str, values: &[f32]) -> Outputs {
    Outputs::from([(name, bits(values))])
}
