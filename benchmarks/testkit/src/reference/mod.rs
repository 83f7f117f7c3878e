//! An independent forward pass: the oracle of the engine's tests.
//!
//! Plain loops over whole tensors, written from `docs/numerics.md`. Every call
//! recomputes the whole prompt from nothing, so no state can leak between
//! calls; the price is speed, and the checkpoints are tiny. Non-finite values
//! pass through instead of being reported.

mod bind;
mod flow;
mod kda;
mod mistake;
mod mla;
mod moe;
mod open;
mod ops;
mod weights;

use std::str::FromStr;

pub use kda::{KdaInput, kda_step};
pub use mistake::{Mistake, Norm};
pub use open::read_tensors;

use crate::error::TestkitError;
use crate::shape::ModelShape;
use crate::tensor::TensorSet;
use flow::{Flow, Walk};
use weights::Weights;

/// The two forms of MLA, whose bits differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionForm {
    /// Scores against the stored latent.
    Latent,
    /// Scores against keys expanded per head.
    Expanded,
}

impl AttentionForm {
    /// Both forms.
    pub const ALL: [Self; 2] = [Self::Latent, Self::Expanded];
}

impl FromStr for AttentionForm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latent" => Ok(Self::Latent),
            "expanded" => Ok(Self::Expanded),
            other => Err(format!("{other}: an attention form is latent or expanded")),
        }
    }
}

/// One expert picked at one position of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// Index of the token in the prompt.
    pub position: usize,
    /// Zero-based layer.
    pub layer: usize,
    /// Expert id.
    pub expert: usize,
    /// Its weight in the sum.
    pub weight: f32,
}

/// What a forward pass returns.
#[derive(Clone, Debug)]
pub struct Forward {
    vocab: usize,
    logits: Vec<f32>,
    /// Position by position, layer by layer, in pick order.
    pub picks: Vec<Pick>,
}

impl Forward {
    /// All logits, `[positions][vocab]`.
    #[must_use]
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The logits after the token at `position`, vocab values.
    #[must_use]
    pub fn at(&self, position: usize) -> &[f32] {
        &self.logits[position * self.vocab..][..self.vocab]
    }

    /// The logits after the last token.
    #[must_use]
    pub fn last(&self) -> &[f32] {
        &self.logits[self.logits.len() - self.vocab..]
    }
}

/// A bound checkpoint.
#[derive(Clone)]
pub struct Reference {
    shape: ModelShape,
    weights: Weights,
}

impl Reference {
    /// Binds tensors by their released names, under either prefix.
    ///
    /// # Errors
    /// A missing tensor, or one whose shape does not follow from `shape`.
    pub fn new(shape: ModelShape, tensors: &TensorSet) -> Result<Self, TestkitError> {
        let weights = Weights::bind(&shape, tensors)?;
        Ok(Self { shape, weights })
    }

    /// The model's shape.
    #[must_use]
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// Runs the whole prompt and returns the logits after every token.
    ///
    /// # Panics
    /// When `ids` is empty or holds an id outside the vocabulary.
    #[must_use]
    pub fn forward(&self, ids: &[u32], form: AttentionForm, mistake: Option<Mistake>) -> Forward {
        assert!(!ids.is_empty(), "a prompt has at least one token");
        let edited = mistake.map(|mistake| self.weights.mistaken(mistake));
        let flow = Flow {
            shape: &self.shape,
            form,
            mistake,
        };
        let mut walk = Walk::new(flow, edited.as_ref().unwrap_or(&self.weights));
        let mut logits = Vec::with_capacity(ids.len() * self.shape.vocab);
        for (position, &id) in ids.iter().enumerate() {
            logits.extend(walk.step(position, id));
        }
        Forward {
            vocab: self.shape.vocab,
            logits,
            picks: walk.into_picks(),
        }
    }

    /// Greedy continuation of `count` tokens, each by recomputing everything.
    ///
    /// # Panics
    /// When a logit is not finite: no token follows from it.
    #[must_use]
    pub fn generate(&self, prompt: &[u32], count: usize, form: AttentionForm) -> Vec<u32> {
        let mut ids = prompt.to_vec();
        for _ in 0..count {
            let forward = self.forward(&ids, form, None);
            ids.push(argmax(forward.last()));
        }
        ids.split_off(prompt.len())
    }
}

/// The first largest logit.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        assert!(logit.is_finite(), "logit {id} is {logit}");
        if *logit > logits[best] {
            best = id;
        }
    }
    u32::try_from(best).expect("a vocabulary fits 32 bits")
}
