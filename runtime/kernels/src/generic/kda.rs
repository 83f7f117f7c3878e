//! One step of the gated delta rule, per head.

/// The arguments of one KDA step: one head, one position.
///
/// `D` is the head width; all vectors have `D` values. `state` is `[D][D]`,
/// key-major: `state[i * D + j]` belongs to key channel `i` and value channel
/// `j`.
#[derive(Debug)]
pub struct KdaStep<'a> {
    /// The head's recurrent state, `[D][D]`, updated in place.
    pub state: &'a mut [f32],
    /// Decay per key channel, `[D]`.
    pub alpha: &'a [f32],
    /// Query, normalised and scaled, `[D]`.
    pub q: &'a [f32],
    /// Key, normalised, `[D]`.
    pub k: &'a [f32],
    /// Value, `[D]`.
    pub v: &'a [f32],
    /// Strength of the update, `sigmoid(b_proj x)` of the head.
    pub beta: f32,
    /// Scratch, `[D]`; its contents afterwards are unspecified.
    pub delta: &'a mut [f32],
    /// Output, `[D]`.
    pub out: &'a mut [f32],
}

impl KdaStep<'_> {
    /// Checks every length against `D = out.len()` and returns `D`.
    ///
    /// # Panics
    /// If a slice has another length.
    #[inline]
    pub(crate) fn check(&self) -> usize {
        let width = self.out.len();
        assert_eq!(
            Some(self.state.len()),
            width.checked_mul(width),
            "state is not [D][D]"
        );
        for (name, len) in [
            ("alpha", self.alpha.len()),
            ("q", self.q.len()),
            ("k", self.k.len()),
            ("v", self.v.len()),
            ("delta", self.delta.len()),
        ] {
            assert_eq!(len, width, "{name} is not [D]");
        }
        width
    }
}

/// One step: decay, prediction, update, readout.
///
/// In f32, multiply then add, never fused, every `j` on its own:
/// 1. `S[i][j] *= alpha[i]`;
/// 2. `u[j]` = sum over i ascending of `k[i] * S[i][j]`, from +0.0;
/// 3. `S[i][j] += (k[i] * beta) * (v[j] - u[j])`;
/// 4. `out[j]` = sum over i ascending of `q[i] * S[i][j]`, from +0.0.
///
/// `k[i] == 0` of either sign, tested before the product with beta, skips `i`
/// in 2 and 3, whatever the state holds; a product `k[i] * beta` that
/// underflows to zero does not. `q[i] == 0` skips `i` in 4 only. Overflow
/// follows f32: values beyond 2^128 become infinities.
#[inline(always)]
pub(crate) fn kda_step(step: KdaStep<'_>) {
    let width = step.check();
    let KdaStep {
        state,
        alpha,
        q,
        k,
        v,
        beta,
        delta,
        out,
    } = step;
    if width == 0 {
        return;
    }
    delta.fill(0.0);
    for ((row, &alpha), &k) in state.chunks_exact_mut(width).zip(alpha).zip(k) {
        for value in row.iter_mut() {
            *value *= alpha;
        }
        if k != 0.0 {
            for (sum, &value) in delta.iter_mut().zip(&*row) {
                *sum += k * value;
            }
        }
    }
    for (delta, &v) in delta.iter_mut().zip(v) {
        *delta = v - *delta;
    }
    out.fill(0.0);
    for ((row, &k), &q) in state.chunks_exact_mut(width).zip(k).zip(q) {
        if k != 0.0 {
            let strength = k * beta;
            for (value, &delta) in row.iter_mut().zip(&*delta) {
                *value += strength * delta;
            }
        }
        if q != 0.0 {
            for (sum, &value) in out.iter_mut().zip(&*row) {
                *sum += q * value;
            }
        }
    }
}
