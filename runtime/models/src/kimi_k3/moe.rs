//! The latent mixture of experts, and the dense and shared MLPs.
//!
//! Each expert of a sweep's union is multiplied once, for all positions that
//! picked it, into a place per (position, pick); the sum runs afterwards in
//! pick order. So neither the order of arrival nor the other positions of the
//! sweep can reach the bits.

use std::ops::Range;
use std::sync::atomic::Ordering;

use k3_formats::KimiK3Config;
use k3_kernels::{MXFP4_GROUP, router_select};

use crate::error::ModelError;
use crate::ids::{ExpertKey, LayerIndex};
use crate::kimi_k3::layout::expert_part_bytes;
use crate::kimi_k3::op::{Buffer, Op};
use crate::kimi_k3::phases;
use crate::kimi_k3::run::KimiK3Run;
use crate::parallel::{split_units, worth};

/// One matrix of an expert.
#[derive(Clone, Copy)]
struct Rows<'a> {
    packed: &'a [u8],
    scales: &'a [u8],
    cols: usize,
}

impl<'a> Rows<'a> {
    fn bytes(&self) -> usize {
        self.packed.len() + self.scales.len()
    }

    /// Packed weights and scales of `rows`.
    fn part(&self, rows: Range<usize>) -> (&'a [u8], &'a [u8]) {
        let (weight_bytes, scale_bytes) = (self.cols / 2, self.cols / MXFP4_GROUP);
        (
            &self.packed[rows.start * weight_bytes..rows.end * weight_bytes],
            &self.scales[rows.start * scale_bytes..rows.end * scale_bytes],
        )
    }
}

/// w1, w2 and w3 of an expert's bytes, each packed then scales.
fn expert_matrices<'a>(config: &KimiK3Config, bytes: &'a [u8]) -> [Rows<'a>; 3] {
    let latent = config.routed_expert_hidden_size;
    let mut rest = bytes;
    let [w1, w1_scales, w2, w2_scales, w3, w3_scales] = expert_part_bytes(config).map(|part| {
        let (head, tail) = rest.split_at(usize::try_from(part).expect("an expert fits memory"));
        rest = tail;
        head
    });
    assert!(rest.is_empty(), "an expert arrives whole");
    let rows = |packed, scales, cols| Rows {
        packed,
        scales,
        cols,
    };
    [
        rows(w1, w1_scales, latent),
        rows(w2, w2_scales, config.moe_intermediate_size),
        rows(w3, w3_scales, latent),
    ]
}

/// A product of packed weights and scales with known activations; returns the
/// groups skipped.
type Kernel<'a> = &'a (dyn Fn(&[u8], &[u8], &mut [f32]) -> u64 + Sync);

impl KimiK3Run<'_> {
    /// Activates the MLP whose gate and up projections are known.
    pub(crate) fn activate(&mut self, op: Op) {
        let config = self.model.config();
        let width = if op == Op::DenseUp {
            config.intermediate_size
        } else {
            config.num_shared_experts * config.moe_intermediate_size
        };
        let used = self.positions * width;
        let workspace = &mut *self.workspace;
        let [gate, up] = workspace
            .buffers
            .get_disjoint_mut([Buffer::MlpGate as usize, Buffer::MlpUp as usize])
            .expect("two buffers");
        let (gate, up) = (&mut gate[..used], &mut up[..used]);
        let (betas, kernel) = (
            [config.situ_beta, config.situ_linear_beta],
            self.model.kernels,
        );
        let up_read = &*up;
        // In place over the gate: the kernel reads each gate before its output.
        // Three exponentials a value.
        let workers = worth(self.workers, 32 * used);
        split_units(workers, gate, 1, |first, piece| {
            activate_piece(kernel, piece, &up_read[first..], betas);
        });
        up.copy_from_slice(gate);
    }

    /// Picks the experts of every position.
    pub(crate) fn choose_experts(&mut self, layer: LayerIndex) -> Result<(), ModelError> {
        let config = self.model.config();
        let (experts, top_k) = (config.num_experts, config.num_experts_per_token);
        let (renormalize, scaling) = (config.moe_renormalize, config.routed_scaling_factor);
        let workspace = &mut *self.workspace;
        let demand = &mut workspace.demand;
        demand.layer = Some(layer);
        demand.picks.clear();
        workspace.latents_prepared = false;
        let mut broken = Vec::new();
        for position in 0..self.positions {
            let logits = &workspace.buffers[Buffer::Scores as usize][position * experts..];
            let selected = router_select(
                &logits[..experts],
                &workspace.vectors.router_bias,
                top_k,
                renormalize,
                scaling,
                &mut workspace.choice,
                &mut workspace.picks,
            );
            if let Err(error) = selected {
                broken.push((position, error.index));
                // Any will do: nothing of this position is used from here on.
                let picks = &mut workspace.pick_weights[position * top_k..][..top_k];
                picks.fill(0.0);
                let experts = (0..=u16::MAX).take(top_k);
                demand.picks.extend(experts);
                continue;
            }
            for (index, pick) in workspace.picks.iter().enumerate() {
                let expert = u16::try_from(pick.expert).expect("expert counts are capped");
                workspace.pick_weights[position * top_k + index] = pick.weight;
                demand.picks.push(expert);
            }
        }
        demand.collect_union(layer);
        for (position, expert) in broken {
            let error = ModelError::NonFinite {
                what: format!("router score of expert {expert}"),
                layer,
                position: self.absolute_position(position),
            };
            self.blame(position, error);
        }
        self.check_faults()
    }

    /// Multiplies one expert for every position that picked it. `bytes` holds
    /// w1, w2, w3, each packed then scales.
    pub(crate) fn run_expert(&mut self, key: ExpertKey, bytes: &[u8]) {
        let config = self.model.config();
        let latent = config.routed_expert_hidden_size;
        let inner = config.moe_intermediate_size;
        let [w1, w2, w3] = expert_matrices(config, bytes);
        self.workers.phase(phases::GATHER, 0);
        let count = self.choose_positions(key);
        self.prepare_latents();
        let workspace = &mut *self.workspace;
        let latents = &workspace.buffers[Buffer::Latent as usize][..self.positions * latent];
        let prepared = &workspace.prepared[..latents.len() / MXFP4_GROUP];
        let chosen = &workspace.chosen;
        let [gate, up, product] = &mut workspace.expert_inner;
        let used = count * inner;
        let (workers, kernels) = (self.workers, self.model.kernels);
        let skipped = &self.nan_scale_groups;
        let multiply = |rows: Rows<'_>, out: &mut [f32], kernel: Kernel<'_>| {
            let workers = worth(workers, out.len() * rows.cols);
            split_units(workers, out, count, |first, piece| {
                let (packed, scales) = rows.part(first..first + piece.len() / count);
                let groups = kernel(packed, scales, piece);
                if groups > 0 {
                    skipped.fetch_add(groups, Ordering::Relaxed);
                }
            });
        };
        self.workers
            .phase(phases::EXPERT_UP, w1.bytes() + w3.bytes());
        for (rows, out) in [(w1, &mut *gate), (w3, &mut *up)] {
            multiply(rows, &mut out[..used], &|packed, scales, piece| {
                let product = kernels.matmul_mxfp4_prepared;
                product(packed, scales, latents, prepared, chosen, piece)
            });
        }
        self.workers.phase(phases::EXPERT_ACTIVATION, 0);
        let betas = [config.situ_beta, config.situ_linear_beta];
        let up_read = &up[..used];
        let workers = worth(workers, 32 * used);
        split_units(workers, &mut gate[..used], 1, |first, piece| {
            activate_piece(kernels, piece, &up_read[first..], betas);
        });
        // `[inner][count]` to `[count][inner]`.
        for (position, out) in product[..used].chunks_exact_mut(inner).enumerate() {
            for (row, value) in out.iter_mut().enumerate() {
                *value = gate[row * count + position];
            }
        }
        self.workers.phase(phases::EXPERT_DOWN, w2.bytes());
        let output = &mut workspace.expert_out[..count * latent];
        let product = &product[..used];
        // Products of activations span too many exponents to be worth preparing.
        multiply(w2, output, &|packed, scales, piece| {
            (kernels.matmul_mxfp4)(packed, scales, product, count, piece)
        });
        self.workers.phase(phases::GATHER, 0);
        self.store_expert_outputs(key, count);
    }

    /// Lists the positions that picked `key`, and returns how many there are.
    fn choose_positions(&mut self, key: ExpertKey) -> usize {
        let workspace = &mut *self.workspace;
        let demand = &workspace.demand;
        assert_eq!(
            demand.layer,
            Some(key.layer),
            "experts belong to the routed layer"
        );
        let picks = demand.picks.chunks_exact(demand.top_k).enumerate();
        workspace.chosen.clear();
        workspace.chosen.extend(
            picks.filter_map(|(position, picks)| picks.contains(&key.expert).then_some(position)),
        );
        assert!(
            !workspace.chosen.is_empty(),
            "only demanded experts are given"
        );
        workspace.chosen.len()
    }

    /// Prepares every position's latent, once for all experts of a layer.
    fn prepare_latents(&mut self) {
        let workspace = &mut *self.workspace;
        if std::mem::replace(&mut workspace.latents_prepared, true) {
            return;
        }
        let latent = self.model.config().routed_expert_hidden_size;
        let latents = &workspace.buffers[Buffer::Latent as usize][..self.positions * latent];
        let groups = latent / MXFP4_GROUP;
        let prepared = &mut workspace.prepared[..self.positions * groups];
        let kernels = self.model.kernels;
        // Some ten operations a value.
        let workers = worth(self.workers, 10 * latents.len());
        split_units(workers, prepared, groups, |first, piece| {
            let x = &latents[first * latent..][..piece.len() * MXFP4_GROUP];
            (kernels.mxfp4_prepare)(x, piece);
        });
    }

    /// Files an expert's outputs, `[latent][count]`, under their picks.
    fn store_expert_outputs(&mut self, key: ExpertKey, count: usize) {
        let latent = self.model.config().routed_expert_hidden_size;
        let workspace = &mut *self.workspace;
        let demand = &workspace.demand;
        let mut column = 0;
        for (index, expert) in demand.picks.iter().enumerate() {
            if *expert != key.expert {
                continue;
            }
            let out = &mut workspace.results[index * latent..][..latent];
            for (row, value) in out.iter_mut().enumerate() {
                *value = workspace.expert_out[row * count + column];
            }
            column += 1;
        }
        assert_eq!(column, count, "picks of a position are distinct");
    }

    /// Sums every position's experts in pick order into the mixture.
    pub(crate) fn sum_experts(&mut self, layer: LayerIndex) {
        let config = self.model.config();
        let latent = config.routed_expert_hidden_size;
        let (top_k, eps) = (config.num_experts_per_token, config.rms_norm_eps);
        let workspace = &mut *self.workspace;
        assert_eq!(
            workspace.demand.layer,
            Some(layer),
            "the routed layer is finished"
        );
        let used = self.positions * latent;
        let mixture = &mut workspace.buffers[Buffer::Latent as usize][..used];
        let (results, weights) = (&workspace.results, &workspace.pick_weights);
        let (norm, kernels) = (&workspace.vectors.expert_norm, self.model.kernels);
        let use_norm = config.latent_moe_use_norm;
        let sums = &mut workspace.expert_sums[..used];
        let workers = worth(self.workers, used * top_k);
        split_units(workers, sums, latent, |first, piece| {
            for (offset, sum) in piece.chunks_exact_mut(latent).enumerate() {
                let base = (first + offset) * top_k;
                sum.fill(0.0);
                for pick in base..base + top_k {
                    let result = &results[pick * latent..][..latent];
                    (kernels.add_scaled)(sum, weights[pick], result);
                }
            }
        });
        for (sum, out) in sums
            .chunks_exact(latent)
            .zip(mixture.chunks_exact_mut(latent))
        {
            if use_norm {
                (kernels.rmsnorm)(sum, norm, eps, out);
            } else {
                out.copy_from_slice(sum);
            }
        }
    }
}

/// `gate[i] = situ_glu(gate[i], up[i])`, in place.
fn activate_piece(
    kernels: &k3_kernels::KernelSet,
    gate: &mut [f32],
    up: &[f32],
    [beta, linear_beta]: [f32; 2],
) {
    const CHUNK: usize = 256;
    let mut out = [0.0f32; CHUNK];
    for (gate, up) in gate.chunks_mut(CHUNK).zip(up.chunks(CHUNK)) {
        let len = gate.len();
        (kernels.situ_glu)(gate, &up[..len], beta, linear_beta, &mut out[..len]);
        gate.copy_from_slice(&out[..len]);
    }
}
