//! Every kernel at the sizes of the released model.
//!
//! | module | holds |
//! |---|---|
//! | [`matrix`] | products with weights from memory, and reading that memory |
//! | [`plain`] | kernels over activations and states |
//! | [`measure`] | all of them in turn |
//! | [`report`] | rows, as data and as tab-separated text |
//! | [`limits`] | what the ratios have to keep |

use std::fmt;
use std::str::FromStr;

use k3_kernels::KernelSet;
use serde::Serialize;

use crate::rounds::Kernel;
use crate::weights::{WeightKind, Weights};

pub mod limits;
pub mod matrix;
pub mod measure;
pub mod plain;
pub mod report;

/// Kernels that are chosen together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Reading memory by every instruction set.
    Read,
    /// bf16 products.
    Bf16,
    /// Products with packed bf16 rows.
    #[serde(rename = "bf16-x3")]
    Bf16X3,
    /// MXFP4 products.
    Mxfp4,
    /// Router logits.
    Router,
    /// The step of the recurrent attention.
    Kda,
    /// Scores and mixes of the full attention, in both forms.
    Attention,
    /// `exp`, `tanh`, the gated activation.
    Elementwise,
    /// Norms and the mix of residual sources.
    Norm,
    /// Handing out an empty job.
    Pool,
}

impl Group {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::Read,
        Self::Bf16,
        Self::Bf16X3,
        Self::Mxfp4,
        Self::Router,
        Self::Kda,
        Self::Attention,
        Self::Elementwise,
        Self::Norm,
        Self::Pool,
    ];

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Bf16 => "bf16",
            Self::Bf16X3 => "bf16-x3",
            Self::Mxfp4 => "mxfp4",
            Self::Router => "router",
            Self::Kda => "kda",
            Self::Attention => "attention",
            Self::Elementwise => "elementwise",
            Self::Norm => "norm",
            Self::Pool => "pool",
        }
    }

    /// Whether it is measured with several threads too, and beside reading:
    /// what takes its weights from memory.
    #[must_use]
    pub const fn is_bound_by_memory(self) -> bool {
        matches!(self, Self::Read | Self::Bf16 | Self::Bf16X3 | Self::Mxfp4)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|group| group.name() == text);
        found.ok_or_else(|| format!("not one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// What one call of a kernel handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Bytes of weights, cached rows or states, or of inputs where there are
    /// none of these.
    pub bytes: u64,
    /// Multiply-adds; values for kernels that do not multiply and add.
    pub operations: u64,
}

/// A kernel to be measured.
#[derive(Clone, Copy)]
pub struct Spec {
    /// Where it belongs.
    pub group: Group,
    /// Its name in reports.
    pub name: &'static str,
    /// Positions that share the weights; `None` where there are no weights.
    pub positions: Option<usize>,
    /// Shapes, to read.
    pub shape: &'static str,
    /// One call.
    pub work: Work,
    /// The weights it needs to be filled in; `None` where it takes none.
    pub weights: Option<WeightKind>,
    /// The same work by another kernel, which is measured right before it in
    /// every round.
    pub beside: Option<fn(positions: usize) -> Spec>,
    /// Makes an instance.
    pub build: for<'w> fn(&'static KernelSet, &'w Weights, usize) -> Box<dyn Kernel + 'w>,
}

impl Spec {
    /// An instance for one thread. Instances of one spec and one set compute
    /// the same from the same weights.
    #[must_use]
    pub fn instance<'w>(
        &self,
        set: &'static KernelSet,
        weights: &'w Weights,
    ) -> Box<dyn Kernel + 'w> {
        (self.build)(set, weights, self.positions.unwrap_or(1))
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.positions)
    }
}

/// Every kernel of the chosen groups, in the order of reports.
#[must_use]
pub fn specs(groups: &[Group]) -> Vec<Spec> {
    let all = matrix::specs().into_iter().chain(plain::specs());
    let mut chosen: Vec<Spec> = all.filter(|spec| groups.contains(&spec.group)).collect();
    chosen.sort_by_key(|spec| Group::ALL.iter().position(|&group| group == spec.group));
    chosen
}

/// The definition.
fn scalar() -> &'static KernelSet {
    KernelSet::for_isa(k3_kernels::Isa::Scalar).expect("the definition exists everywhere")
}

#[cfg(test)]
mod tests {
    use k3_kernels::Isa;

    use super::*;
    use crate::weights::WEIGHTS_MIN_BYTES;

    #[test]
    fn names_round_trip_and_every_group_has_kernels() {
        for group in Group::ALL {
            assert_eq!(group.name().parse(), Ok(group));
            assert_eq!(specs(&[group]).is_empty(), group == Group::Pool, "{group}");
        }
        assert!("mxfp".parse::<Group>().unwrap_err().contains("mxfp4"));
    }

    /// Every body of every kernel, as it is measured, against the definition.
    #[test]
    fn all_instances_equal_the_definition() {
        let mut weights = Weights::reserve(WEIGHTS_MIN_BYTES).unwrap();
        for kind in [WeightKind::Bf16, WeightKind::Bf16X3, WeightKind::Mxfp4] {
            let filled = weights.fill(kind, 2, &k3_runtime::Cancel::default());
            filled.unwrap();
            for spec in specs(&Group::ALL) {
                // Large batches take the definition long.
                let is_large = spec.positions.is_some_and(|positions| positions > 2);
                if is_large || spec.weights.is_some_and(|wanted| wanted != kind) {
                    continue;
                }
                for set in Isa::ALL.into_iter().filter_map(KernelSet::for_isa) {
                    let mut kernel = spec.instance(set, &weights);
                    kernel.call();
                    let compared = kernel.compare(1);
                    assert!(compared.values > 0, "{spec:?}");
                    assert_eq!(compared.mismatches, 0, "{spec:?} {}", set.isa);
                }
            }
        }
    }
}
