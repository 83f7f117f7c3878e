"""Golden vectors of the kernels that are one sum, or one elementwise expression."""

from __future__ import annotations

import numpy as np

import arithmetic as ar
import golden_inputs as gi
from arithmetic import F32, F64
from golden_kernels import Case
from prng import Stream

EPS = F32(1e-5)


def products_of(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return F64(x)[:, None, :] * F64(w)[None]


def lanes_of(products: np.ndarray, count: int, remainder_in_lanes: bool = False) -> np.ndarray:
    """Other numbers of lanes, summed lane 0 upwards: what a wrong kernel might do."""
    n = products.shape[-1]
    full = n if remainder_in_lanes else n - n % count
    lanes = np.zeros((*products.shape[:-1], count))
    for i in range(full):
        lanes[..., i % count] += products[..., i]
    if count == 16:
        a = (lanes[..., 0:4] + lanes[..., 4:8]) + (lanes[..., 8:12] + lanes[..., 12:16])
        acc = (a[..., 0] + a[..., 1]) + (a[..., 2] + a[..., 3])
    else:
        acc = ar.serial_sum(lanes)
    for i in range(full, n):
        acc = acc + products[..., i]
    return acc


def wrong_tree(products: np.ndarray) -> np.ndarray:
    n = products.shape[-1]
    full = n - n % 16
    lanes = ar.serial_sum(products[..., :full].reshape(*products.shape[:-1], full // 16, 16), axis=-2)
    acc = ar.serial_sum(lanes)
    for i in range(full, n):
        acc = acc + products[..., i]
    return acc


def f32_sum(products: np.ndarray) -> np.ndarray:
    return ar.serial_sum(F32(products))


def sum_orders(products: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """The wrong orders of a sum whose right order is 16 lanes."""
    return {
        "serial": {"y": F32(ar.serial_sum(products))},
        "eight_lanes": {"y": F32(lanes_of(products, 8))},
        "four_accumulators": {"y": F32(lanes_of(products, 4))},
        "lanes_added_serially": {"y": F32(wrong_tree(products))},
        "remainder_in_lanes": {"y": F32(lanes_of(products, 16, remainder_in_lanes=True))},
        "f32_accumulator": {"y": f32_sum(products)},
    }


def matmuls() -> list[Case]:
    x, codes, w = gi.cancelling("matmul_bf16", 2, 6, 37)
    out = [Case("matmul_bf16_remainder", "matmul_bf16", {"rows": 6, "cols": 37, "positions": 2},
                {"x": x, "weights": codes}, {"y": ar.matmul(w, x)}, sum_orders(products_of(w, x)))]  # fmt: skip
    x, _, w = gi.cancelling("matmul_f32", 1, 7, 53)
    for a, b in gi.pairs("matmul_f32", 53):  # full f32 mantissas
        w[:, a] *= F32(1.0000001)
        w[:, b] = -w[:, a]
    out.append(Case("matmul_f32_remainder", "matmul_f32", {"rows": 7, "cols": 53, "positions": 1},
                    {"x": x, "weights": w}, {"y": ar.matmul(w, x)}, sum_orders(products_of(w, x))))  # fmt: skip

    # [i][j]: the sum runs down the columns, in the order of a matmul row.
    q, _, down = gi.cancelling("columns", 1, 8, 43)
    codes = gi.to_bf16(down).T.copy()
    out.append(Case("columns_bf16_remainder", "columns_bf16", {"n": 43, "cols": 8},
                    {"x": q[0], "weights": codes}, {"y": ar.matmul(down, q)[0]},
                    {k: {"y": v["y"][0]} for k, v in sum_orders(products_of(down, q)).items()}))  # fmt: skip

    for name, wide in (("router_bf16", False), ("router_f32", True)):
        x, codes, w = gi.cancelling(name, 2, 5, 45)
        right = products_of(w, x)
        out.append(Case(f"{name}_serial", name, {"rows": 5, "cols": 45, "positions": 2},
                        {"x": x, "weights": w if wide else codes}, {"y": ar.router_logits(w, x)},
                        {"sixteen_lanes": {"y": F32(ar.lane_sum(right))}, "eight_lanes": {"y": F32(lanes_of(right, 8))},
                         "descending": {"y": F32(ar.serial_sum(right[..., ::-1]))},
                         "f32_accumulator": {"y": f32_sum(right)}}))  # fmt: skip
    return out


def mxfp4_order() -> Case:
    rows, cols = 6, 96
    stream = Stream("golden/mxfp4")
    nibbles = stream.below(16, rows * cols).reshape(rows, cols).astype(np.uint8)
    x = gi.normal("mxfp4/x", 2, cols)
    for step, (a, b) in enumerate(gi.pairs("mxfp4", cols)):
        x[:, a] *= F32(2.0 ** (30 - step % 4))
        x[:, b] = x[:, a]
        nibbles[:, b] = nibbles[:, a] ^ 8
    scales = np.repeat(stream.below(5, rows)[:, None] + 125, cols // 32, axis=1).astype(np.uint8)
    packed = nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
    values = ar.unpack_mxfp4(packed)
    scaled = values * np.ldexp(1.0, np.repeat(scales, 32, axis=1).astype(np.int32) - 127)
    whole = products_of(scaled, x)
    grouped = whole.reshape(2, rows, cols // 32, 32)
    swapped = ar.unpack_mxfp4(packed, swapped=True)
    return Case("matmul_mxfp4_order", "matmul_mxfp4", {"rows": rows, "cols": cols, "positions": 2},
                {"x": x, "packed": packed, "scales": scales}, {"y": ar.matmul_mxfp4(values, scales, x)},
                {"serial": {"y": F32(ar.serial_sum(whole))},
                 "serial_in_the_group": {"y": F32(ar.serial_sum(ar.serial_sum(grouped)))},
                 "sixteen_lanes_over_the_row": {"y": F32(ar.lane_sum(whole))},
                 "groups_descending": {"y": ar.matmul_mxfp4(values.reshape(rows, -1, 32)[:, ::-1].reshape(rows, cols),
                                                            scales[:, ::-1], x.reshape(2, -1, 32)[:, ::-1].reshape(2, cols))},
                 "nibbles_swapped": {"y": ar.matmul_mxfp4(swapped, scales, x)}})  # fmt: skip


def mxfp4_scales() -> Case:
    """Row 0: scale 0 alone. Row 1: 254 on codes of +-0. Row 2: 255 among others. Row 3: 255 alone. Row 4: 0 and 127."""
    cols = 64
    packed = Stream("golden/mxfp4_scales").bits(5 * cols // 2).astype(np.uint8).reshape(5, cols // 2)
    packed[1, :16] = 0x80
    scales = np.array([[0, 0], [254, 127], [255, 126], [255, 255], [0, 127]], np.uint8)
    x = gi.normal("mxfp4_scales/x", 1, cols) * F32(0.01)
    values = ar.unpack_mxfp4(packed)
    right = ar.matmul_mxfp4(values, scales, x)

    def with_scale(byte: int, factor: float) -> np.ndarray:
        """As the right one, but with `factor` for one scale byte."""
        power = np.where(scales == byte, factor, np.ldexp(1.0, scales.astype(np.int32) - 127))
        power = np.where((scales == 255) & (byte != 255), 0.0, power)
        sums = (F64(x)[:, None] * values[None]).reshape(1, 5, 2, 8 * 4)
        lanes = ar.serial_sum(sums.reshape(1, 5, 2, 4, 8), axis=-2)
        s = lanes[..., 0:4] + lanes[..., 4:8]
        sub = (s[..., 0] + s[..., 1]) + (s[..., 2] + s[..., 3])
        return F32(ar.serial_sum(sub * power[None]))

    flushed = np.where(np.abs(right) < np.finfo(F32).tiny, F32(0), right)
    return Case("matmul_mxfp4_scales", "matmul_mxfp4", {"rows": 5, "cols": cols, "positions": 1},
                {"x": x, "packed": packed, "scales": scales},
                {"y": right, "skipped_groups": np.array([int((scales == 255).sum())])},
                {name: {"y": y, "skipped_groups": np.array([3])} for name, y in {
                    "nan_scale_is_nan": with_scale(255, np.nan), "nan_scale_is_2^128": with_scale(255, 2.0**128),
                    "scale_0_is_zero": with_scale(0, 0.0), "denormals_flushed": flushed}.items()})  # fmt: skip


def norms() -> list[Case]:
    width = 37
    x, w = gi.edge_squares("rmsnorm", width, EPS, width), gi.uniform("rmsnorm/w", 0.5, 1.5, width)
    # Values too small to move the sum would be poor outputs alone; the eight large ones show the order too.
    ss = F64(x) * F64(x)
    serial, lanes = ar.serial_sum(ss), ar.lane_sum(ss)

    def inv(total):
        return F32(1.0 / np.sqrt(total / width + F64(EPS)))

    out = [Case("rmsnorm_order", "rmsnorm", {"n": width, "eps": bits_of(EPS)}, {"x": x, "weight": w},
                {"y": ar.rmsnorm(x[None], w, EPS)[0]},
                {"squares_in_lanes": {"y": (w * x) * inv(lanes)}, "w*(x*inv)": {"y": w * (x * inv(serial))},
                 "(w*inv)*x": {"y": (w * inv(serial)) * x}, "weight_dropped": {"y": x * inv(serial)},
                 "divide_by_f32_root": {"y": (w * x) / F32(np.sqrt(serial / width + F64(EPS)))}})]  # fmt: skip

    x, w = gi.normal("rmsnorm_eps/x", 12, 9) * F32(1e-3), gi.uniform("rmsnorm_eps/w", 0.5, 1.5, 9)
    ss = ar.serial_sum(F64(x) * F64(x))
    out.append(Case("rmsnorm_eps", "rmsnorm", {"n": 9, "positions": 12, "eps": bits_of(EPS)}, {"x": x, "weight": w},
                    {"y": ar.rmsnorm(x, w, EPS)},
                    {"eps_is_the_f64_1e-5": {"y": (w * x) * F32(1.0 / np.sqrt(ss / 9 + 1e-5))[:, None]},
                     "eps_under_the_sum": {"y": (w * x) * F32(1.0 / np.sqrt((ss + F64(EPS)) / 9))[:, None]},
                     "root_in_f32": {"y": (w * x) * (F32(1) / np.sqrt(F32(ss / 9) + EPS))[:, None]}}))  # fmt: skip

    v = np.stack([gi.edge_squares(f"l2norm{i}", 24, ar.L2_EPS, 1) for i in range(3)])
    ss = F64(v) * F64(v)
    eps = F64(ar.L2_EPS)
    out.append(Case("l2norm_order", "l2norm", {"n": 24, "vectors": 3}, {"v": v}, {"y": ar.l2norm(v)},
                    {"squares_in_lanes": {"y": v * F32(1.0 / np.sqrt(ar.lane_sum(ss) + eps))[:, None]},
                     "divide_by_f32_root": {"y": v / F32(np.sqrt(ar.serial_sum(ss) + eps))[:, None]}}))  # fmt: skip
    small = gi.normal("l2norm_eps", 12, 6) * F32(5e-4)
    ss = ar.serial_sum(F64(small) * F64(small))
    out.append(Case("l2norm_eps", "l2norm", {"n": 6, "vectors": 12}, {"v": small}, {"y": ar.l2norm(small)},
                    {"eps_1e-12": {"y": small * F32(1.0 / np.sqrt(ss + 1e-12))[:, None]},
                     "eps_outside_the_root": {"y": small * F32(1.0 / (np.sqrt(ss) + eps))[:, None]}}))  # fmt: skip
    return out


def bits_of(value: np.float32) -> int:
    return int(F32(value).view(np.uint32))


def elementwise() -> list[Case]:
    g = np.concatenate([gi.uniform("situ/g", -12, 12, 40), F32([0.0, -0.0, 90.0, -110.0, 1e-40, 30.0])])
    u = np.concatenate([gi.uniform("situ/u", -60, 60, 40), F32([1.0, 2.0, 300.0, -300.0, 1e-40, -0.0])])
    b1, b2 = F32(4), F32(25)
    cap = b1 * ar.tanh(g / b1)
    out = [Case("situ_glu", "situ_glu", {"n": len(g), "beta": bits_of(b1), "linear_beta": bits_of(b2)},
                {"gate": g, "up": u}, {"y": ar.situ_glu(g, u, b1, b2)},
                {"sigmoid_of_the_capped_gate": {"y": ar.situ_glu(g, u, b1, b2, capped_sigmoid=True)},
                 "silu": {"y": (g * ar.sigmoid(g)) * u}, "up_not_capped": {"y": (cap * ar.sigmoid(g)) * u},
                 "betas_swapped": {"y": ar.situ_glu(g, u, b2, b1)},
                 "up_first": {"y": cap * (ar.sigmoid(g) * (b2 * ar.tanh(u / b2)))}})]  # fmt: skip

    taps, window = gi.uniform("conv/taps", -1, 1, 24, 4), gi.normal("conv/x", 4, 24)
    first_to_last = taps[:, 0] * window[0]
    fused = F64(F32(taps[:, 3] * window[3]))
    for j in range(3):
        fused = F64(F32(F64(taps[:, j]) * F64(window[j]) + fused))
    for j in range(1, 4):
        first_to_last = first_to_last + taps[:, j] * window[j]
    acc = taps[:, 3] * window[3]
    for j in (2, 1, 0):
        acc = acc + taps[:, j] * window[j]
    out.append(Case("shortconv", "shortconv", {"channels": 24, "taps": 4},
                    {"taps": taps, "history": window[:3], "current": window[3]}, {"y": ar.shortconv(taps, window)},
                    {"taps_reversed": {"y": ar.shortconv(taps, window, reversed_taps=True)},
                     "current_input_last": {"y": first_to_last * ar.sigmoid(first_to_last)},
                     "newest_to_oldest": {"y": acc * ar.sigmoid(acc)},
                     "fused_multiply_add": {"y": F32(fused) * ar.sigmoid(F32(fused))}}))  # fmt: skip

    x = np.concatenate([gi.uniform("exp/a", -20, 20, 80), gi.uniform("exp/b", -103, 88, 40), F32([0, -0.0, 89, -104, 1e-30])])
    out.append(Case("exp", "exp", {"n": len(x)}, {"x": x}, {"y": ar.exp(x)},
                    {"reduced_in_f32": {"y": (ar.exp(x / F32(2)) * ar.exp(x / F32(2)))},
                     "denormals_flushed": {"y": np.where(ar.exp(x) < np.finfo(F32).tiny, F32(0), ar.exp(x))}}))  # fmt: skip
    x = np.concatenate([gi.uniform("tanh/a", -4, 4, 80), gi.uniform("tanh/b", -0.2, 0.2, 20), F32([0, -0.0, 1e-30, -20, 9.1])])
    e = ar.exp(x + x)
    out.append(Case("tanh", "tanh", {"n": len(x)}, {"x": x}, {"y": ar.tanh(x)},
                    {"from_f32_exp": {"y": (e - F32(1)) / (e + F32(1))}}))  # fmt: skip
    x = np.concatenate([gi.uniform("sigmoid", -15, 15, 60), F32([0, -0.0, -88.9, -104, 90, np.inf, -np.inf])])
    out.append(Case("sigmoid", "sigmoid", {"n": len(x)}, {"x": x}, {"y": ar.sigmoid(x)},
                    {"rounded_once_from_f64": {"y": F32(1.0 / (1.0 + np.exp(-F64(x))))},
                     "e/(1+e)": {"y": np.where(x < 0, ar.exp(x) / (F32(1) + ar.exp(x)), ar.sigmoid(x))}}))  # fmt: skip

    s = gi.uniform("softmax", -6, 6, 19)
    e = ar.exp(s - s.max())
    z = ar.serial_sum(F64(e))
    plain = ar.exp(s)
    out.append(Case("softmax", "softmax", {"n": 19}, {"scores": s}, {"p": ar.softmax(s[None])[0]},
                    {"z_in_f32": {"p": e / ar.serial_sum(e)}, "times_f32_reciprocal": {"p": e * F32(1.0 / z)},
                     "divided_in_f32": {"p": e / F32(z)},
                     "maximum_not_subtracted": {"p": F32(F64(plain) / ar.serial_sum(F64(plain)))}}))  # fmt: skip
    return out


def sum_cases() -> list[Case]:
    return [*matmuls(), mxfp4_order(), mxfp4_scales(), *norms(), *elementwise()]
