"""Golden vectors of the kernels with a structure of their own: KDA, MLA, attention residuals, router, experts."""

from __future__ import annotations

import numpy as np

import arithmetic as ar
import golden_inputs as gi
from arithmetic import F32, F64
from golden_kernels import Case
from golden_sums import EPS, bits_of, products_of
from prng import Stream

TINIEST = np.uint32(1).view(F32)  # the smallest f32 above zero


# --- attention residuals ----------------------------------------------------------------------------------------


def attn_res_with(sources, scores, p_of=ar.softmax, order=1, mixed=None, wide=False):
    """The mix from given scores, with the ways to get it wrong as switches."""
    p = p_of(np.stack(scores, axis=-1))
    out = np.zeros(sources[0].shape, F64 if wide else F32)
    steps = list(enumerate(sources if mixed is None else mixed))[::order]
    for s, v in steps:
        out = out + (F64(p[:, s, None]) * F64(v) if wide else p[:, s, None] * v)
    return F32(out)


def attn_res_case() -> Case:
    count, width = 5, 44
    v = [gi.normal(f"attn_res/{s}", 1, width) for s in range(count)]
    fold = gi.normal("attn_res/fold", width) * F32(0.2)
    for step, (a, b) in enumerate(gi.pairs("attn_res", width)):
        fold[a] *= F32(2.0 ** (31 - step % 3))
        fold[b] = -fold[a]
        for source in v:
            source[:, b] = source[:, a]
    inv = [ar.inverse_rms(s, EPS)[:, None] for s in v]
    units = [s * i for s, i in zip(v, inv)]

    def scores(rows, order=ar.serial_sum):
        return [F32(order(F64(r) * F64(fold))) for r in rows]

    right = scores(units)
    assert np.array_equal(attn_res_with(v, right), ar.attn_res(v, fold, EPS))
    wrong = {
        "score_in_lanes": attn_res_with(v, scores(units, ar.lane_sum)),
        "unit_not_rounded": attn_res_with(v, scores([F64(s) * F64(i) for s, i in zip(v, inv)])),
        "fold_applied_first": attn_res_with(v, [F32(ar.serial_sum(F64((s * fold) * i))) for s, i in zip(v, inv)]),
        "mixes_the_normalised": attn_res_with(v, right, mixed=units),
        "newest_source_first": attn_res_with(v, right, order=-1),
        "mix_in_f64": attn_res_with(v, right, wide=True),
    }
    return Case("attn_res", "attn_res", {"sources": count, "n": width, "eps": bits_of(EPS)},
                {"sources": np.concatenate(v), "fold": fold}, {"out": ar.attn_res(v, fold, EPS)},
                {name: {"out": out} for name, out in wrong.items()})  # fmt: skip


# --- KDA --------------------------------------------------------------------------------------------------------


def kda_run(inputs: dict[str, np.ndarray], **slip) -> dict[str, np.ndarray]:
    """All inputs with one head; `slip` is passed to `kda_step`."""
    state = inputs["state"][None].copy()
    rest = [inputs[n][None] for n in ("alpha", "q", "k", "v")]
    out = ar.kda_step(state, *rest, inputs["beta"].reshape(1), **slip)
    return {"out": out[0], "state_after": state[0]}


def kda_wrong_arithmetic(i: dict[str, np.ndarray], variant: str) -> dict[str, np.ndarray]:
    """The step written again, for the variants that are another arithmetic and not another rule."""
    wide = variant == "sums_in_f64"
    cast = F64 if wide else F32
    state = i["alpha"][:, None] * i["state"]
    rows = range(len(state))
    u = np.zeros(len(state), cast)
    for r in reversed(rows) if variant == "keys_descending" else rows:
        if variant == "fused_multiply_add":
            u = F32(F64(i["k"][r]) * F64(state[r]) + F64(u))
        else:
            u = u + cast(i["k"][r]) * cast(state[r])
    delta = i["v"] - F32(u)
    if variant == "beta_on_delta":
        update = i["k"][:, None] * (i["beta"] * delta)[None]
    else:
        update = (i["k"] * i["beta"])[:, None] * delta[None]
    after = state + update
    read = state if variant == "read_before_update" else after
    out = np.zeros(len(state), cast)
    for r in rows:
        out = out + cast(i["q"][r]) * cast(read[r])
    return {"out": F32(out), "state_after": after}


def kda_inputs(name: str, width: int) -> dict[str, np.ndarray]:
    return {
        "state": gi.normal(name + "/state", width, width), "alpha": gi.uniform(name + "/alpha", 0.2, 0.99, width),
        "q": gi.normal(name + "/q", width) * F32(0.1), "k": gi.normal(name + "/k", width) * F32(0.3),
        "v": gi.normal(name + "/v", width), "beta": gi.uniform(name + "/beta", 0.3, 0.7, 1),
    }  # fmt: skip


def kda_cases() -> list[Case]:
    width = 11
    plain = kda_inputs("kda", width)
    wrong = {v: kda_wrong_arithmetic(plain, v) for v in
             ("sums_in_f64", "keys_descending", "fused_multiply_add", "beta_on_delta", "read_before_update")}  # fmt: skip
    wrong["read_before_decay"] = kda_run(plain, mistake="read_before_decay")
    transposed = kda_run(plain | {"state": plain["state"].T.copy()})
    wrong["state_value_major"] = transposed | {"state_after": transposed["state_after"].T}
    cases = [Case("kda_step", "kda_step", {"width": width}, plain, kda_run(plain), wrong)]

    # k[2] * beta rounds to zero while k[2] does not, and the state there is so large that k[2] still matters.
    under = kda_inputs("kda_underflow", width)
    under["k"][2], under["beta"][0] = TINIEST, F32(0.25)
    under["state"][2] *= F32(1e38)
    under["alpha"][2] = F32(0.999)
    under["state"][np.arange(width) != 2] *= F32(1e-8)
    under["v"] *= F32(1e-7)
    under["q"][2] = 0
    cases.append(Case("kda_step_underflow", "kda_step", {"width": width}, under, kda_run(under),
                      {"beta_before_zero_test": kda_run(under, mistake="beta_before_zero_test"),
                       "denormal_k_is_zero": kda_run(under | {"k": np.where(np.abs(under["k"]) < 1e-38, F32(0), under["k"])})}))  # fmt: skip

    # Rows 1 and 4 hold infinities under a zero k and a zero q (both signs); row 7 has a zero k and a live q, row 8
    # the other way round.
    skip = kda_inputs("kda_skip", width)
    skip["state"][1], skip["state"][4] = F32(np.inf), F32(-np.inf)
    for row, k, q in ((1, 0.0, -0.0), (4, -0.0, 0.0), (7, -0.0, None), (8, None, 0.0)):
        if k is not None:
            skip["k"][row] = k
        if q is not None:
            skip["q"][row] = q
    right = kda_run(skip)
    zero_k = skip["k"] == 0
    cases.append(Case("kda_step_zero_skip", "kda_step", {"width": width}, skip, right,
                      {"no_skip": kda_run(skip, mistake="no_zero_skip"),
                       "zero_k_skips_decay": right | {"state_after": np.where(zero_k[:, None], skip["state"], right["state_after"])},
                       "zero_k_skips_o": right | {"out": kda_run(skip | {"q": np.where(zero_k, F32(0), skip["q"])})["out"]},
                       "zero_q_skips_update": right | {"state_after": np.where(
                           (skip["q"] == 0)[:, None], skip["alpha"][:, None] * skip["state"], right["state_after"])}}))  # fmt: skip
    return [*cases, kda_decay_case(), kda_q_case()]


def kda_decay_case() -> Case:
    heads, width, lb = 3, 12, F32(-5)
    z, dt = gi.normal("decay/z", heads, width), gi.uniform("decay/dt", -4, 1, heads, width)
    a_log = np.concatenate([gi.uniform("decay/a", -1, 1, heads), np.zeros(4, F32)])
    a = ar.exp(a_log[:heads])[:, None]
    right = ar.kda_decay(z, dt, a, lb)
    per_channel = ar.exp(a_log[np.arange(heads * width) % len(a_log)]).reshape(heads, width)
    softplus = F32(np.log1p(np.exp(F64(z + dt))))
    return Case("kda_decay", "kda_decay", {"heads": heads, "width": width, "lower_bound": bits_of(lb)},
                {"z": z, "dt_bias": dt, "a_log": a_log}, {"alpha": right},
                {"a_log_per_channel": {"alpha": ar.kda_decay(z, dt, per_channel, lb)},
                 "bias_after_the_product": {"alpha": ar.exp(lb * ar.sigmoid(a * z + dt)).reshape(right.shape)},
                 "product_distributed": {"alpha": ar.exp(lb * ar.sigmoid(a * z + a * dt)).reshape(right.shape)},
                 "clamped_softplus": {"alpha": ar.exp(np.maximum(-a * softplus, lb)).reshape(right.shape)}})  # fmt: skip


def kda_q_case() -> Case:
    width = 12
    v = gi.normal("kda_q", 4, width)
    s = ar.inverse_sqrt(width)
    inv = F32(1.0 / np.sqrt(ar.serial_sum(F64(v) * F64(v)) + F64(ar.L2_EPS)))[:, None]
    return Case("kda_q_scale", "l2norm then scale", {"vectors": 4, "n": width, "scale": bits_of(s)}, {"v": v},
                {"q": ar.l2norm(v) * s},
                {"factors_joined": {"q": v * (inv * s)}, "scaled_first": {"q": (v * s) * inv},
                 "divided_by_the_root": {"q": ar.l2norm(v) / F32(np.sqrt(F32(width)))}})  # fmt: skip


# --- MLA --------------------------------------------------------------------------------------------------------


def mla_cases() -> list[Case]:
    heads, latent, rope, seen = 1, 44, 7, 9
    qa, q_rope = gi.normal("mla/qa", heads, latent), gi.normal("mla/q_rope", heads, rope)
    cache = gi.normal("mla/cache", seen, latent + rope)
    for step, (a, b) in enumerate(gi.pairs("mla", latent)):
        qa[:, a] *= F32(2.0 ** (31 - step % 3))
        qa[:, b] = -qa[:, a]
        cache[:, b] = cache[:, a]
    q_rope[:, 0] *= F32(2.0**31)  # and a pair in the tail, which swallows low bits of the rest
    q_rope[:, 1], cache[:, latent + 1] = -q_rope[:, 0], cache[:, latent]
    scale = ar.inverse_sqrt(20 + rope)
    whole = F64(np.concatenate([qa, q_rope], axis=1))[:, None] * F64(cache)[None]
    tail_first = ar.lane_sum(whole[..., :latent]) + ar.serial_sum(whole[..., latent:])
    cases = [Case("mla_scores_latent", "mla_scores_latent",
                  {"heads": heads, "latent": latent, "rope": rope, "positions": seen, "scale": bits_of(scale)},
                  {"qa": qa, "q_rope": q_rope, "cache": cache},
                  {"scores": ar.mla_scores_latent(qa, q_rope, cache, scale)},
                  {"serial": {"scores": F32(ar.serial_sum(whole)) * scale},
                   "tail_in_the_lanes": {"scores": F32(ar.lane_sum(whole)) * scale},
                   "tail_summed_apart": {"scores": F32(tail_first) * scale},
                   "tail_dropped": {"scores": F32(ar.lane_sum(whole[..., :latent])) * scale},
                   "scale_in_f64": {"scores": ar.mla_scores_latent(qa, q_rope, cache, scale, scale_in_f64=True)}})]  # fmt: skip

    # Row layout of a cancelling sum over positions: pairs of positions with equal p and opposite huge latents.
    seen, latent = 21, 6
    p, rows = gi.uniform("mix/p", 0.01, 0.1, 1, seen), gi.normal("mix/latent", seen, latent)
    for step, (a, b) in enumerate(gi.pairs("mix", seen)):
        p[:, b] = p[:, a]
        rows[a] *= F32(2.0 ** (31 - step % 3))
        rows[b] = -rows[a]
    products = F64(p)[:, :, None] * F64(rows)[None]
    cases.append(Case("mla_mix_latent", "mla_mix_latent", {"heads": 1, "latent": latent, "positions": seen},
                      {"weights": p, "latents": rows}, {"ol": ar.mla_mix_latent(p, rows)},
                      {"positions_in_lanes": {"ol": F32(ar.lane_sum(products.transpose(0, 2, 1)))},
                       "descending": {"ol": F32(ar.serial_sum(products[:, ::-1], axis=1))},
                       "f32_accumulator": {"ol": ar.mla_mix_expanded(p, rows[:, None])}}))  # fmt: skip

    heads, nope, rope, seen = 2, 20, 6, 7
    q, keys = gi.normal("full/q", heads, nope + rope), gi.normal("full/keys", seen, heads, nope + rope)
    for step, (a, b) in enumerate(gi.pairs("full", nope + rope)):
        q[:, a] *= F32(2.0 ** (31 - step % 3))
        q[:, b] = -q[:, a]
        keys[:, :, b] = keys[:, :, a]
    tails = keys[:, :1, nope:]
    keys[:, :, nope:] = tails
    scale = ar.inverse_sqrt(nope + rope)
    products = F64(q)[:, None] * F64(keys).transpose(1, 0, 2)
    rolled = np.roll(products, rope, axis=-1)
    cases.append(Case("mla_scores_expanded", "mla_scores_expanded",
                      {"heads": heads, "nope": nope, "rope": rope, "positions": seen, "scale": bits_of(scale)},
                      {"q": q, "keys": keys[:, :, :nope], "ropes": tails[:, 0]},
                      {"scores": ar.mla_scores_expanded(q, keys, scale)},
                      {"sixteen_lanes": {"scores": F32(ar.lane_sum(products)) * scale},
                       "tail_first": {"scores": F32(ar.serial_sum(rolled)) * scale},
                       "two_accumulators": {"scores": F32(ar.serial_sum(products[..., :nope])
                                                          + ar.serial_sum(products[..., nope:])) * scale},
                       "scale_in_f64": {"scores": ar.mla_scores_expanded(q, keys, scale, scale_in_f64=True)},
                       "scale_of_nope": {"scores": F32(ar.serial_sum(products)) * ar.inverse_sqrt(nope)}}))  # fmt: skip

    p, values = ar.softmax(gi.uniform("full/s", -2, 2, heads, 13)), gi.normal("full/v", 13, heads, 10)
    products = F64(p)[:, :, None] * F64(values).transpose(1, 0, 2)
    fused = np.zeros((heads, 10), F32)
    for s in range(13):
        fused = F32(F64(fused) + products[:, s])
    cases.append(Case("mla_mix_expanded", "mla_mix_expanded", {"heads": heads, "v": 10, "positions": 13},
                      {"weights": p, "values": values}, {"o": ar.mla_mix_expanded(p, values)},
                      {"f64_accumulator": {"o": F32(ar.serial_sum(products, axis=1))}, "fused_multiply_add": {"o": fused},
                       "descending": {"o": ar.mla_mix_expanded(p[:, ::-1], values[::-1])}}))  # fmt: skip
    return cases


# --- router and experts -----------------------------------------------------------------------------------------


def select(rows, bias, top_k, renormalize, factor, **slip):
    picked = [ar.router_select(r, bias, top_k, renormalize, factor, **slip) for r in rows]
    return as_arrays(picked)


def as_arrays(picked):
    return {"experts": np.array([[e for e, _ in row] for row in picked]),
            "weights": np.array([[w for _, w in row] for row in picked], F32)}  # fmt: skip


def reweighted(rows, picks, factor, way: str):
    """The right picks with the weights computed another way."""
    out = []
    for row, chosen in zip(rows, picks["experts"]):
        w = ar.sigmoid(row)[chosen]
        if way == "sum_in_f32":
            w = (w * (F32(1) / (ar.serial_sum(w) + F32(1e-20)))) * factor
        elif way == "divided":
            w = F32(F64(w) / (ar.serial_sum(F64(w)) + 1e-20)) * factor
        elif way == "factor_joined":
            w = w * (F32(1.0 / (ar.serial_sum(F64(w)) + 1e-20)) * factor)
        else:
            w = w * factor
        out.append(w)
    return picks | {"weights": np.stack(out)}


def router_cases() -> list[Case]:
    rows, experts, top_k, factor = 6, 14, 5, F32(2.5)
    logits, bias = gi.uniform("select/logits", -3, 3, rows, experts), gi.uniform("select/bias", -0.3, 0.3, experts)
    # Ties: experts 3 and 9 in rows 0 and 1 (equal logit and bias); every expert in row 2; row 3 has scores that
    # are one at f32 precision, so that only the bias decides.
    bias[9] = bias[3]
    logits[0, [3, 9]], logits[1, [3, 9]] = F32(2.75), F32(3.5)
    logits[2] = F32(0.25)
    logits[3] = F32(40) + logits[3]
    flat_bias = np.where(np.arange(experts) < 7, F32(0.125), bias)
    cases = []
    for name, b in (("router_select", bias), ("router_select_equal_bias", flat_bias)):
        right = select(logits, b, top_k, True, factor)
        backwards = select(logits[:, ::-1], b[::-1], top_k, True, factor)
        wrong = {
            "higher_id_wins_ties": backwards | {"experts": experts - 1 - backwards["experts"]},
            "bias_in_the_weights": select(logits, b, top_k, True, factor, bias_in_weights=True),
            "bias_ignored": select(logits, np.zeros_like(b), top_k, True, factor),
            "picks_in_id_order": as_arrays([sorted(zip(e.tolist(), w)) for e, w in zip(right["experts"], right["weights"])]),
            "not_renormalised": reweighted(logits, right, factor, "plain"),
            "sum_in_f32": reweighted(logits, right, factor, "sum_in_f32"),
            "divided_not_multiplied": reweighted(logits, right, factor, "divided"),
            "factor_joined_with_inverse": reweighted(logits, right, factor, "factor_joined"),
        }
        cases.append(Case(name, "router_select",
                          {"rows": rows, "experts": experts, "top_k": top_k, "renormalize": 1, "scaling": bits_of(factor)},
                          {"logits": logits, "bias": b}, right, wrong))  # fmt: skip
    one = select(logits, bias, 1, True, factor)
    cases.append(Case("router_select_one", "router_select",
                      {"rows": rows, "experts": experts, "top_k": 1, "renormalize": 1, "scaling": bits_of(factor)},
                      {"logits": logits, "bias": bias}, one,
                      {"renormalised_although_one": one | {"weights": np.full((rows, 1), factor, F32)}}))  # fmt: skip

    order = Stream("golden/pick_order").permutation(7)
    e, w = gi.normal("experts/e", 7, 20), gi.uniform("experts/w", 0.05, 0.4, 7)

    def mixed(sequence, step):
        acc = np.zeros(20, F32)
        for i in sequence:
            acc = step(acc, i)
        return {"acc": acc}

    cases.append(Case("expert_sum", "add_scaled", {"picks": 7, "n": 20}, {"outputs": e, "weights": w, "order": np.array(order)},
                      mixed(order, lambda acc, i: acc + w[i] * e[i]),
                      {"in_row_order": mixed(range(7), lambda acc, i: acc + w[i] * e[i]),
                       "fused_multiply_add": mixed(order, lambda acc, i: F32(F64(acc) + F64(w[i]) * F64(e[i]))),
                       "f64_accumulator": {"acc": F32(ar.serial_sum(products_of(e.T[:, order], w[None, order]))[0])}}))  # fmt: skip
    return cases


def model_cases() -> list[Case]:
    return [attn_res_case(), *kda_cases(), *mla_cases(), *router_cases()]
