//! Attention, KDA, router and experts.

use k3_kernels::{KdaStep, KernelSet, Pick};

use crate::case::{Inputs, Outputs, bits, only};

pub(crate) fn attn_res(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (values, fold) = (inputs.floats("sources"), inputs.floats("fold"));
    let (count, width) = (inputs.count("sources"), inputs.count("n"));
    assert_eq!(values.len(), count * width);
    let sources: Vec<&[f32]> = values.chunks_exact(width).collect();
    let mut out = vec![f32::NAN; width];
    (set.attn_res)(&sources, &fold, inputs.setting("eps"), &mut out);
    only("out", &out)
}

pub(crate) fn kda_step(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let width = inputs.count("width");
    let mut state = inputs.floats("state");
    let [beta] = inputs.floats("beta")[..] else {
        panic!("one beta per head");
    };
    let (mut delta, mut out) = (vec![f32::NAN; width], vec![f32::NAN; width]);
    (set.kda_step)(KdaStep {
        state: &mut state,
        alpha: &inputs.floats("alpha"),
        q: &inputs.floats("q"),
        k: &inputs.floats("k"),
        v: &inputs.floats("v"),
        beta,
        delta: &mut delta,
        out: &mut out,
    });
    Outputs::from([("out", bits(&out)), ("state_after", bits(&state))])
}

pub(crate) fn kda_decay(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (heads, width) = (inputs.count("heads"), inputs.count("width"));
    let (z, dt_bias) = (inputs.floats("z"), inputs.floats("dt_bias"));
    let lower_bound = inputs.setting("lower_bound");
    // Stored longer than the head count.
    let mut rates = inputs.floats("a_log");
    rates.truncate(heads);
    (set.exp)(&mut rates);
    let mut alpha = vec![f32::NAN; heads * width];
    for (head, rate) in rates.into_iter().enumerate() {
        let own = head * width..(head + 1) * width;
        let (z, dt_bias) = (&z[own.clone()], &dt_bias[own.clone()]);
        (set.kda_decay)(z, dt_bias, rate, lower_bound, &mut alpha[own]);
    }
    only("alpha", &alpha)
}

/// The query's path: normalised, then scaled, each step rounded.
pub(crate) fn kda_q_scale(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (width, scale) = (inputs.count("n"), inputs.setting("scale"));
    let mut q = inputs.floats("v");
    assert_eq!(q.len(), inputs.count("vectors") * width);
    q.chunks_exact_mut(width).for_each(set.l2norm);
    q.iter_mut().for_each(|value| *value *= scale);
    only("q", &q)
}

pub(crate) fn mla_scores_latent(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (qa, q_rope) = (inputs.floats("qa"), inputs.floats("q_rope"));
    assert_eq!(inputs.count("heads"), 1);
    assert_eq!(qa.len(), inputs.count("latent"));
    assert_eq!(q_rope.len(), inputs.count("rope"));
    let (cache, scale) = (inputs.floats("cache"), inputs.setting("scale"));
    let mut scores = vec![f32::NAN; inputs.count("positions")];
    (set.mla_scores_latent)(&qa, &q_rope, &cache, scale, &mut scores);
    only("scores", &scores)
}

/// Also with a rope tail behind every latent, as the cache has it: it must not
/// be read.
pub(crate) fn mla_mix_latent(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    const TAIL: usize = 3;
    let (weights, latents) = (inputs.floats("weights"), inputs.floats("latents"));
    let latent = inputs.count("latent");
    assert_eq!(inputs.count("heads"), 1);
    assert_eq!(weights.len(), inputs.count("positions"));
    let mut sums = vec![0.0; latent];
    let mut out = vec![f32::NAN; latent];
    (set.mla_mix_latent)(&weights, &latents, latent, &mut sums, &mut out);
    let rows = latents.chunks_exact(latent);
    let cache: Vec<f32> = rows
        .flat_map(|row| [row, &[f32::NAN; TAIL]].concat())
        .collect();
    let mut with_tail = vec![f32::NAN; latent];
    sums.fill(0.0);
    (set.mla_mix_latent)(&weights, &cache, latent + TAIL, &mut sums, &mut with_tail);
    assert_eq!(bits(&out), bits(&with_tail));
    only("ol", &out)
}

/// The rows of one head out of `[positions][heads][width]`.
fn of_head(values: &[f32], head: usize, heads: usize, width: usize) -> Vec<f32> {
    let rows = values.chunks_exact(width).skip(head).step_by(heads);
    rows.flatten().copied().collect()
}

pub(crate) fn mla_scores_expanded(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (heads, positions) = (inputs.count("heads"), inputs.count("positions"));
    let (nope, rope) = (inputs.count("nope"), inputs.count("rope"));
    let (q, keys) = (inputs.floats("q"), inputs.floats("keys"));
    let (ropes, scale) = (inputs.floats("ropes"), inputs.setting("scale"));
    assert_eq!(q.len(), heads * (nope + rope));
    let mut scores = vec![f32::NAN; heads * positions];
    let outs = scores.chunks_exact_mut(positions);
    for (head, (q, out)) in q.chunks_exact(nope + rope).zip(outs).enumerate() {
        let (q_nope, q_rope) = q.split_at(nope);
        let keys = of_head(&keys, head, heads, nope);
        (set.mla_scores_expanded)(q_nope, q_rope, &keys, &ropes, scale, out);
    }
    only("scores", &scores)
}

pub(crate) fn mla_mix_expanded(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (heads, positions) = (inputs.count("heads"), inputs.count("positions"));
    let (weights, values) = (inputs.floats("weights"), inputs.floats("values"));
    let width = inputs.count("v");
    assert_eq!(weights.len(), heads * positions);
    let mut o = vec![0.0; heads * width];
    let outs = o.chunks_exact_mut(width);
    for (head, (weights, out)) in weights.chunks_exact(positions).zip(outs).enumerate() {
        let values = of_head(&values, head, heads, width);
        (set.mla_mix_expanded)(weights, &values, out);
    }
    only("o", &o)
}

/// From logits to picks; the same code whatever the instruction set.
pub(crate) fn router_select(_set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (experts, top_k) = (inputs.count("experts"), inputs.count("top_k"));
    let (logits, bias) = (inputs.floats("logits"), inputs.floats("bias"));
    let renormalize = inputs.count("renormalize") == 1;
    let scaling = inputs.setting("scaling");
    assert_eq!(logits.len(), inputs.count("rows") * experts);
    let mut scratch = vec![f32::NAN; 2 * experts];
    let mut all = Vec::new();
    for row in logits.chunks_exact(experts) {
        let mut picks = vec![Pick::default(); top_k];
        k3_kernels::router_select(
            row,
            &bias,
            top_k,
            renormalize,
            scaling,
            &mut scratch,
            &mut picks,
        )
        .unwrap();
        all.extend(picks);
    }
    let weights: Vec<f32> = all.iter().map(|pick| pick.weight).collect();
    let ids = all.iter().map(|pick| pick.expert).collect();
    Outputs::from([("experts", ids), ("weights", bits(&weights))])
}

/// Expert outputs in pick order, which is not the order they lie in.
pub(crate) fn expert_sum(set: &KernelSet, inputs: &Inputs<'_>) -> Outputs {
    let (outputs, weights) = (inputs.floats("outputs"), inputs.floats("weights"));
    let (picks, width) = (inputs.count("picks"), inputs.count("n"));
    let order = inputs.words("order");
    assert_eq!((order.len(), weights.len()), (picks, picks));
    let rows: Vec<&[f32]> = outputs.chunks_exact(width).collect();
    let mut acc = vec![0.0; width];
    for pick in order.iter().map(|pick| usize::try_from(*pick).unwrap()) {
        (set.add_scaled)(&mut acc, weights[pick], rows[pick]);
    }
    only("acc", &acc)
}
