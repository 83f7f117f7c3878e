"""The arithmetic of docs/numerics.md, written for reading, in numpy.

Every function keeps the order of additions of the definition: numpy's own `sum` and `dot` add in an order of
their own choosing and are not used anywhere. Where a sum is serial, numpy only runs over the *independent*
outputs; the summed index is a Python loop or `np.add.accumulate`, which is serial by definition.

Shapes: `x` is [positions][n] unless said otherwise; f32 in, f32 out; accumulators f64 where the definition says so.
"""

from __future__ import annotations

import decimal

import numpy as np

F32 = np.float32
F64 = np.float64

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], F64)
MXFP4_GROUP = 32
NAN_SCALE = 255
L2_EPS = F32(1e-6)


def serial_sum(terms: np.ndarray, axis: int = -1) -> np.ndarray:
    """Sum in index order, in the dtype of `terms`, starting at +0.0."""
    terms = np.moveaxis(terms, axis, -1)
    if terms.shape[-1] == 0:
        return np.zeros(terms.shape[:-1], terms.dtype)
    started = terms.copy()
    started[..., 0] += terms.dtype.type(0)  # +0.0 + -0.0 is +0.0: the accumulator's start shows only here
    return np.add.accumulate(started, axis=-1)[..., -1]


def lane_sum(products: np.ndarray) -> np.ndarray:
    """The "matmul order" over the last axis: 16 f64 lanes, a fixed tree, then the remainder serially."""
    n = products.shape[-1]
    full = n - n % 16
    blocks = products[..., :full].reshape(*products.shape[:-1], full // 16, 16)
    a = serial_sum(blocks, axis=-2)
    b = (a[..., 0:4] + a[..., 4:8]) + (a[..., 8:12] + a[..., 12:16])
    acc = (b[..., 0] + b[..., 1]) + (b[..., 2] + b[..., 3])
    for i in range(full, n):
        acc = acc + products[..., i]
    return acc


# --- exp and tanh -----------------------------------------------------------------------------------------------
#
# The definition wants both correctly rounded to f32. We take the platform's f64 function and round it. A library
# f64 exp or tanh is within a few units of 2^-53, so the rounded value can be wrong only where the true value lies
# within that distance of the midpoint of two neighbouring f32 (about one input in 2^26). `_rounded` finds those
# inputs (it widens the f64 value by 2^-50 to both sides and asks whether both ends round alike) and decides
# them with 120-digit decimals. So the result is correctly rounded on any platform whose f64 functions are good to
# 2^-50 relative: near enough for a reference, and the one thing here that is assumed and not shown.
# It is not a proof over all inputs; the slow test of the kernels crate is.


def _rounded(x: np.ndarray, wide: np.ndarray, exact) -> np.ndarray:
    low, high = F32(wide * (1 - 2.0**-50)), F32(wide * (1 + 2.0**-50))
    y = F32(wide)
    for i in np.flatnonzero((low != high) & np.isfinite(wide)):
        y.flat[i] = _decimal_to_f32(exact(decimal.Decimal(float(x.flat[i]))))
    return y


def _decimal_to_f32(value: decimal.Decimal) -> np.float32:
    near = F32(float(value))
    candidates = [np.nextafter(near, F32(-np.inf)), near, np.nextafter(near, F32(np.inf))]
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: abs(decimal.Decimal(float(c)) - value))


def _decimal_tanh(x: decimal.Decimal) -> decimal.Decimal:
    e = (2 * x).exp()
    return (e - 1) / (e + 1)


decimal.getcontext().prec = 120


def exp(x) -> np.ndarray:
    x = np.atleast_1d(np.asarray(x, F32))
    with np.errstate(over="ignore", under="ignore"):
        return _rounded(x, np.exp(F64(x)), decimal.Decimal.exp)


def tanh(x) -> np.ndarray:
    x = np.atleast_1d(np.asarray(x, F32))
    return _rounded(x, np.tanh(F64(x)), _decimal_tanh)


def sigmoid(x) -> np.ndarray:
    return F32(1) / (F32(1) + exp(-np.atleast_1d(np.asarray(x, F32))))


# --- sums over the width ----------------------------------------------------------------------------------------


def matmul(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """weights f32 [rows][cols] (bf16 already widened), x [positions][cols] -> [positions][rows]."""
    wide_w, wide_x = F64(weights), F64(x)
    rows, cols = weights.shape
    full = cols - cols % 16
    lanes = np.zeros((len(x), rows, 16))
    for start in range(0, full, 16):
        lanes += wide_x[:, None, start : start + 16] * wide_w[None, :, start : start + 16]
    b = (lanes[..., 0:4] + lanes[..., 4:8]) + (lanes[..., 8:12] + lanes[..., 12:16])
    acc = (b[..., 0] + b[..., 1]) + (b[..., 2] + b[..., 3])
    for i in range(full, cols):
        acc += wide_x[:, None, i] * wide_w[None, :, i]
    return F32(acc)


def unpack_mxfp4(packed: np.ndarray, swapped: bool = False) -> np.ndarray:
    """u8 [rows][cols/2] -> f64 [rows][cols] without scales; the low nibble is the even column."""
    low, high = E2M1[packed & 15], E2M1[packed >> 4]
    pair = (high, low) if swapped else (low, high)
    return np.stack(pair, axis=-1).reshape(packed.shape[0], -1)


def matmul_mxfp4(values: np.ndarray, scales: np.ndarray, x: np.ndarray) -> np.ndarray:
    """values f64 [rows][cols] from `unpack_mxfp4`, scales u8 [rows][cols/32], x [positions][cols]."""
    rows, cols = values.shape
    assert cols % MXFP4_GROUP == 0, "an MXFP4 width is a multiple of 32"
    acc = np.zeros((len(x), rows))
    for g in range(cols // MXFP4_GROUP):
        lanes = np.zeros((len(x), rows, 8))
        for start in range(g * MXFP4_GROUP, (g + 1) * MXFP4_GROUP, 8):
            lanes += F64(x[:, None, start : start + 8]) * values[None, :, start : start + 8]
        s = lanes[..., 0:4] + lanes[..., 4:8]
        sub = (s[..., 0] + s[..., 1]) + (s[..., 2] + s[..., 3])
        scaled = acc + sub * np.ldexp(1.0, scales[None, :, g].astype(np.int32) - 127)
        acc = np.where(scales[None, :, g] == NAN_SCALE, acc, scaled)
    return F32(acc)


def router_logits(weights: np.ndarray, x: np.ndarray, lanes: bool = False) -> np.ndarray:
    """f64 serial sum over the width, no lanes. `lanes` is the mistake that the fixtures must show."""
    products = F64(x)[:, None, :] * F64(weights)[None, :, :]
    return F32(lane_sum(products) if lanes else serial_sum(products))


def inverse_rms(x: np.ndarray, eps: np.float32) -> np.ndarray:
    """[..., n] -> [...]; f32(1 / sqrt(ss / n + eps)), ss serial in f64."""
    ss = serial_sum(F64(x) * F64(x))
    return F32(1.0 / np.sqrt(ss / x.shape[-1] + F64(eps)))


def rmsnorm(x: np.ndarray, weight: np.ndarray, eps: np.float32, order: str = "(w*x)*inv") -> np.ndarray:
    inv = inverse_rms(x, eps)[..., None]
    if order == "(w*x)*inv":
        return (weight * x) * inv
    return weight * (x * inv)  # the mistake: the same three factors, another rounding


def l2norm(x: np.ndarray) -> np.ndarray:
    ss = serial_sum(F64(x) * F64(x))
    return x * F32(1.0 / np.sqrt(ss + F64(L2_EPS)))[..., None]


def softmax(scores: np.ndarray) -> np.ndarray:
    e = exp(scores - scores.max(axis=-1, keepdims=True)).reshape(scores.shape)
    z = serial_sum(F64(e))
    return F32(F64(e) / z[..., None])


# --- elementwise ------------------------------------------------------------------------------------------------


def situ_glu(gate, up, beta, linear_beta, capped_sigmoid: bool = False) -> np.ndarray:
    capped = beta * tanh(gate / beta)
    a = capped * sigmoid(capped if capped_sigmoid else gate)
    return a * (linear_beta * tanh(up / linear_beta))


def shortconv(taps: np.ndarray, window: np.ndarray, reversed_taps: bool = False) -> np.ndarray:
    """taps [channels][k]; window [k][channels], oldest first, the current input last -> [channels]."""
    k = taps.shape[1]
    if reversed_taps:
        taps = taps[:, ::-1]
    acc = taps[:, k - 1] * window[k - 1]
    for j in range(k - 1):
        acc = acc + taps[:, j] * window[j]
    return acc * sigmoid(acc)


def attn_res(sources: list[np.ndarray], fold: np.ndarray, eps: np.float32) -> np.ndarray:
    """sources: each [positions][n]; fold [n] -> the softmax mix of the raw sources."""
    scores = []
    for v in sources:
        unit = v * inverse_rms(v, eps)[:, None]
        scores.append(F32(serial_sum(F64(unit) * F64(fold))))
    p = softmax(np.stack(scores, axis=-1))
    out = np.zeros_like(sources[0])
    for s, v in enumerate(sources):
        out = out + p[:, s, None] * v
    return out


# --- KDA --------------------------------------------------------------------------------------------------------


def kda_decay(z, dt_bias, a, lower_bound) -> np.ndarray:
    """z, dt_bias [heads][D]; a = exp(A_log) broadcastable to it -> alpha [heads][D]."""
    u = a * (z + dt_bias)
    return exp(lower_bound * sigmoid(u))


def kda_step(state, alpha, q, k, v, beta, mistake: str = "") -> np.ndarray:
    """One token, all heads. state [heads][D key][D value] is updated in place; returns o [heads][D].

    A zero k[i] is skipped in u and in the update, a zero q[i] in o: with finite numbers that changes nothing,
    but 0 * inf would. The test looks at k itself, before the product with beta.
    """
    heads, width, _ = state.shape
    k_beta = k * beta[:, None]
    live_k = (k_beta != 0) if mistake == "beta_before_zero_test" else (k != 0)
    live_q = q != 0
    if mistake == "no_zero_skip":
        live_k, live_q = np.ones_like(live_k), np.ones_like(live_q)
    before = state.copy()
    for i in range(width):
        state[:, i] *= alpha[:, i, None]
    read = before if mistake == "read_before_decay" else state
    u = np.zeros((heads, width), F32)
    for i in range(width):
        u = np.where(live_k[:, i, None], u + k[:, i, None] * read[:, i], u)
    delta = v - u
    out = np.zeros((heads, width), F32)
    for i in range(width):
        updated = state[:, i] + k_beta[:, i, None] * delta
        state[:, i] = np.where(live_k[:, i, None], updated, state[:, i])
        out = np.where(live_q[:, i, None], out + q[:, i, None] * state[:, i], out)
    return out


# --- MLA --------------------------------------------------------------------------------------------------------


def scaled(acc: np.ndarray, scale: np.float32, in_f64: bool) -> np.ndarray:
    """Round the f64 score, then scale it in f32; the other way round is a mistake."""
    return F32(acc * F64(scale)) if in_f64 else F32(acc) * scale


def mla_scores_latent(qa, q_rope, cache, scale, scale_in_f64: bool = False) -> np.ndarray:
    """qa [heads][latent], q_rope [heads][rope], cache [s][latent+rope] -> [heads][s]."""
    latent = qa.shape[1]
    acc = lane_sum(F64(qa)[:, None, :] * F64(cache)[None, :, :latent])
    for r in range(q_rope.shape[1]):
        acc = acc + F64(q_rope)[:, None, r] * F64(cache)[None, :, latent + r]
    return scaled(acc, scale, scale_in_f64)


def mla_mix_latent(p, latents) -> np.ndarray:
    """p [heads][s], latents [s][latent] -> [heads][latent]; f64 over s, rounded once."""
    return F32(serial_sum(F64(p)[:, :, None] * F64(latents)[None, :, :], axis=1))


def mla_scores_expanded(q, keys, scale, scale_in_f64: bool = False) -> np.ndarray:
    """q [heads][nope+rope], keys [s][heads][nope+rope] -> [heads][s]; one f64 accumulator."""
    products = F64(q)[:, None, :] * F64(keys).transpose(1, 0, 2)
    return scaled(serial_sum(products), scale, scale_in_f64)


def mla_mix_expanded(p, values) -> np.ndarray:
    """p [heads][s], values [s][heads][v] -> [heads][v]; f32, s ascending."""
    return serial_sum(p[:, :, None] * values.transpose(1, 0, 2), axis=1)


def inverse_sqrt(width: int) -> np.float32:
    """1f32 / sqrt(f32(width)), the scale of the attention scores and of KDA's q."""
    return F32(1) / F32(np.sqrt(F32(width)))


# --- router -----------------------------------------------------------------------------------------------------


def router_select(logits, bias, top_k, renormalize, scaling_factor, bias_in_weights: bool = False):
    """One position: logits, bias [experts] -> list of (expert, weight) in pick order."""
    scores = sigmoid(logits)
    choice = scores + bias
    if not (np.isfinite(scores).all() and np.isfinite(choice).all()):
        raise ValueError("non-finite router score")
    picks: list[int] = []
    for _ in range(top_k):
        best = -1
        for e in range(len(choice)):
            if e not in picks and (best < 0 or choice[e] > choice[best]):
                best = e
        picks.append(best)
    weights = [(choice if bias_in_weights else scores)[e] for e in picks]
    if renormalize and top_k > 1:
        s = F64(0)
        for w in weights:
            s = s + F64(w)
        inv = F32(1.0 / (s + 1e-20))
        weights = [w * inv for w in weights]
    return [(e, F32(w * scaling_factor)) for e, w in zip(picks, weights)]


def bf16_to_f32(raw: np.ndarray) -> np.ndarray:
    """u16 bit patterns -> f32."""
    return (raw.astype(np.uint32) << 16).view(F32)


def argmax(logits: np.ndarray) -> int:
    """The first maximum."""
    if not np.isfinite(logits).all():
        raise ValueError("non-finite logits")
    return int(np.argmax(logits))
