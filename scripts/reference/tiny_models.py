"""The tiny checkpoints: what each one is for, its config, its tensors.

Sizes are odd on purpose: widths that are no multiple of 16 exercise the remainder of a matmul row, several block
borders of the attention residuals lie inside the depth, and no two widths that could be confused are equal.
Weights are scaled so that gates stay off their limits and every part of the model moves the logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prng import Stream, to_bf16
from shards import Shard

QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "mxfp4-pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "float", "symmetric": True, "group_size": 32, "strategy": "group",
                        "scale_dtype": "uint8"},
        }
    },
}  # fmt: skip


@dataclass(frozen=True)
class Tiny:
    name: str
    purpose: str
    hidden: int
    layers: int
    vocab: int
    kda_heads: int
    kda_width: int
    full_attn_layers: tuple[int, ...]
    heads: int
    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    v: int
    experts: int
    top_k: int
    shared: int
    latent: int
    moe: int
    dense_layers: int
    dense_width: int
    block: int
    scaling: float
    renormalize: bool
    latent_norm: bool
    output_gate: bool
    flat: bool
    gate_dtype: str
    conv_dtype: str
    norm_dtype: str
    nan_scales: bool
    twin: tuple[int, int] | None  # two hidden channels that are equal everywhere; see `_router_gate`
    eos: int | None = None
    low_rows: int = 0  # so many last rows of lm_head are made small: ids that greedy decoding shall not choose

    @property
    def prefix(self) -> str:
        return "model." if self.flat else "language_model.model."


def specs(tokenizer_ranks: int, tokenizer_slots: int) -> list[Tiny]:
    return [
        Tiny("tiny", "the released layout, with a tokenizer: what the command line is tried on",
             hidden=72, layers=8, vocab=tokenizer_ranks + tokenizer_slots, kda_heads=3, kda_width=12,
             full_attn_layers=(3, 7, 8), heads=3, q_lora=40, kv_lora=24, nope=20, rope=6, v=16, experts=10, top_k=3,
             shared=2, latent=64, moe=32, dense_layers=1, dense_width=88, block=3, scaling=1.0, renormalize=True,
             latent_norm=True, output_gate=True, flat=False, gate_dtype="BF16", conv_dtype="F32", norm_dtype="BF16",
             nan_scales=False, twin=None, eos=tokenizer_ranks + 2, low_rows=tokenizer_slots),
        Tiny("odd", "remainders everywhere, NaN and extreme scales, weights not renormalised, scaled by 2.5",
             hidden=76, layers=8, vocab=201, kda_heads=3, kda_width=12, full_attn_layers=(2, 5, 7, 8), heads=3,
             q_lora=28, kv_lora=28, nope=20, rope=6, v=12, experts=7, top_k=3, shared=1, latent=32, moe=64,
             dense_layers=1, dense_width=50, block=3, scaling=2.5, renormalize=False, latent_norm=True,
             output_gate=True, flat=False, gate_dtype="F32", conv_dtype="BF16", norm_dtype="F32", nan_scales=True,
             twin=(7, 53), eos=200, low_rows=1),
        Tiny("flat", "flat config, one file, bare prefix, no output gate, no latent norm, latent as wide as hidden",
             hidden=64, layers=7, vocab=131, kda_heads=2, kda_width=20, full_attn_layers=(2, 6, 7), heads=4,
             q_lora=36, kv_lora=32, nope=18, rope=10, v=14, experts=6, top_k=2, shared=2, latent=64, moe=32,
             dense_layers=2, dense_width=70, block=2, scaling=1.5, renormalize=True, latent_norm=False,
             output_gate=False, flat=True, gate_dtype="F32", conv_dtype="F32", norm_dtype="F32", nan_scales=False,
             twin=None),
    ]  # fmt: skip


# --- config.json ------------------------------------------------------------------------------------------------


def config_of(m: Tiny) -> dict:
    text = {
        "vocab_size": m.vocab, "hidden_size": m.hidden, "num_hidden_layers": m.layers,
        "intermediate_size": m.dense_width, "num_attention_heads": m.heads, "num_key_value_heads": m.heads,
        "hidden_act": "situ", "rms_norm_eps": 1e-05, "first_k_dense_replace": m.dense_layers, "moe_layer_freq": 1,
        "q_lora_rank": m.q_lora, "kv_lora_rank": m.kv_lora, "qk_nope_head_dim": m.nope, "qk_rope_head_dim": m.rope,
        "v_head_dim": m.v, "mla_use_nope": True, "mla_use_output_gate": m.output_gate, "num_experts": m.experts,
        "num_experts_per_token": m.top_k, "num_shared_experts": m.shared, "moe_intermediate_size": m.moe,
        "routed_expert_hidden_size": m.latent, "latent_moe_use_norm": m.latent_norm,
        "moe_renormalize": m.renormalize, "moe_router_activation_func": "sigmoid",
        "routed_scaling_factor": m.scaling, "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1,
        "topk_method": "noaux_tc", "attn_res_block_size": m.block, "tie_word_embeddings": False,
    }  # fmt: skip
    if m.flat:
        return {**text, "situ_beta": 4.0, "situ_linear_beta": 25.0, "kda_num_heads": m.kda_heads,
                "kda_head_dim": m.kda_width, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                "full_attn_layers": list(m.full_attn_layers)}  # fmt: skip
    kda_layers = [i for i in range(1, m.layers + 1) if i not in m.full_attn_layers]
    text = {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "dtype": "bfloat16", **text,
        "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "eos_token_id": m.eos,
        "linear_attn_config": {
            "head_dim": m.kda_width, "num_heads": m.kda_heads, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
            "use_full_rank_gate": True, "full_attn_layers": list(m.full_attn_layers), "kda_layers": kda_layers,
        },
        "quantization_config": QUANTIZATION,
    }  # fmt: skip
    return {
        "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16",
        "eos_token_id": m.eos, "tie_word_embeddings": False, "text_config": text,
        "vision_config": {"patch_size": 2, "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1},
    }  # fmt: skip


# --- tensors ----------------------------------------------------------------------------------------------------


class Tensors:
    """Makes each tensor from its own stream, named by checkpoint and tensor."""

    def __init__(self, m: Tiny):
        self.m = m

    def _stream(self, name: str) -> Stream:
        return Stream(f"{self.m.name}/{name}")

    def _twin_rows(self, values: np.ndarray) -> np.ndarray:
        if self.m.twin:
            a, b = self.m.twin
            values[b] = values[a]
        return values

    def linear(self, name: str, rows: int, cols: int, gain: float, onto_hidden: bool = False) -> np.ndarray:
        values = self._stream(name).normal((rows, cols)) * (gain / np.sqrt(cols))
        return to_bf16(self._twin_rows(values) if onto_hidden else values)

    def plain(self, name: str, shape, low: float, high: float, dtype: str = "F32") -> np.ndarray:
        return self._cast(self._stream(name).uniform(shape, low, high), dtype)

    def norm(self, name: str, width: int) -> np.ndarray:
        values = self._stream(name).uniform((width,), 0.5, 1.5)
        if name.endswith("post_attention_layernorm.weight"):
            values = self._twin_rows(values)
        return self._cast(values, self.m.norm_dtype)

    def router_gate(self, name: str) -> np.ndarray:
        """With a twin, both channels get huge opposite weights: the true sum cancels, but how much of the small
        terms is lost on the way depends on the order of the additions, so a router that sums in lanes shows."""
        m = self.m
        values = self._stream(name).normal((m.experts, m.hidden)) * (1.5 / np.sqrt(m.hidden))
        if m.twin:
            a, b = m.twin
            values[:, a], values[:, b] = 2.0**28, -(2.0**28)
        return self._cast(values, m.gate_dtype)

    @staticmethod
    def _cast(values: np.ndarray, dtype: str) -> np.ndarray:
        return to_bf16(values) if dtype == "BF16" else values.astype(np.float32)

    def mxfp4(self, name: str, rows: int, cols: int) -> dict[str, np.ndarray]:
        """Random codes; scales spread over a few powers of two about the one that keeps the output near 1."""
        stream = self._stream(name)
        packed = stream.bits(rows * cols // 2).astype(np.uint8).reshape(rows, cols // 2)
        centre = 127 - (5 if cols >= 64 else 4)
        spread = stream.below(3, rows * cols // 32) - stream.below(3, rows * cols // 32)
        scales = (centre + spread).astype(np.uint8).reshape(rows, cols // 32)
        if self.m.nan_scales:
            _extreme_scales(packed, scales, stream)
        return {f"{name}.weight_packed": packed, f"{name}.weight_scale": scales}


def _extreme_scales(packed: np.ndarray, scales: np.ndarray, stream: Stream) -> None:
    """Four rows with one group each: NaN, the smallest scale, and the largest one over codes of +0 and -0."""
    rows, groups = scales.shape
    chosen = stream.permutation(rows)[:4]
    for row, value in zip(chosen, (255, 255, 0, 254)):
        group = int(stream.below(groups, 1)[0])
        scales[row, group] = value
        if value == 254:
            packed[row, group * 16 : group * 16 + 16] = 0x80


def kda_tensors(t: Tensors, p: str) -> dict[str, np.ndarray]:
    m = t.m
    width = m.kda_heads * m.kda_width
    out = {f"{p}{n}_proj.weight": t.linear(f"{p}{n}_proj.weight", width, m.hidden, 1.2) for n in "qkvg"}
    for n in "qkv":
        name = f"{p}{n}_conv1d.weight"
        out[name] = t.plain(name, (width, 1, 4), -0.7, 0.9, m.conv_dtype)
    out[p + "b_proj.weight"] = t.linear(p + "b_proj.weight", m.kda_heads, m.hidden, 1.0)
    out[p + "f_a_proj.weight"] = t.linear(p + "f_a_proj.weight", m.kda_width, m.hidden, 1.0)
    out[p + "f_b_proj.weight"] = t.linear(p + "f_b_proj.weight", width, m.kda_width, 1.2)
    a_log = np.zeros(m.kda_heads + 5, np.float32)  # stored longer than the head count, the rest zero
    a_log[: m.kda_heads] = t.plain(p + "A_log", (m.kda_heads,), -0.8, 1.0)
    out[p + "A_log"] = a_log
    out[p + "dt_bias"] = t.plain(p + "dt_bias", (width,), -4.0, 0.5)
    out[p + "o_norm.weight"] = t.norm(p + "o_norm.weight", m.kda_width)
    out[p + "o_proj.weight"] = t.linear(p + "o_proj.weight", m.hidden, width, 1.2, onto_hidden=True)
    return out


def mla_tensors(t: Tensors, p: str) -> dict[str, np.ndarray]:
    m = t.m
    shapes = {
        "q_a_proj": (m.q_lora, m.hidden, 1.0), "q_b_proj": (m.heads * (m.nope + m.rope), m.q_lora, 1.3),
        "kv_a_proj_with_mqa": (m.kv_lora + m.rope, m.hidden, 1.3),
        "kv_b_proj": (m.heads * (m.nope + m.v), m.kv_lora, 1.3),
    }  # fmt: skip
    if m.output_gate:
        shapes["g_proj"] = (m.heads * m.v, m.hidden, 1.2)
    out = {f"{p}{n}.weight": t.linear(f"{p}{n}.weight", *shape) for n, shape in shapes.items()}
    out[p + "q_a_layernorm.weight"] = t.norm(p + "q_a_layernorm.weight", m.q_lora)
    out[p + "kv_a_layernorm.weight"] = t.norm(p + "kv_a_layernorm.weight", m.kv_lora)
    out[p + "o_proj.weight"] = t.linear(p + "o_proj.weight", m.hidden, m.heads * m.v, 1.2, onto_hidden=True)
    return out


def mlp_tensors(t: Tensors, p: str, width: int) -> dict[str, np.ndarray]:
    shapes = {"gate_proj": (width, t.m.hidden, 1.4), "up_proj": (width, t.m.hidden, 1.4)}
    out = {f"{p}{n}.weight": t.linear(f"{p}{n}.weight", *shape) for n, shape in shapes.items()}
    out[p + "down_proj.weight"] = t.linear(p + "down_proj.weight", t.m.hidden, width, 1.2, onto_hidden=True)
    return out


def moe_trunk_tensors(t: Tensors, p: str) -> dict[str, np.ndarray]:
    m = t.m
    out = {
        p + "gate.weight": t.router_gate(p + "gate.weight"),
        p + "gate.e_score_correction_bias": t.plain(p + "gate.e_score_correction_bias", (m.experts,), -0.2, 0.3),
        p + "routed_expert_down_proj.weight": t.linear(p + "routed_expert_down_proj.weight", m.latent, m.hidden, 1.2),
        p + "routed_expert_up_proj.weight":
            t.linear(p + "routed_expert_up_proj.weight", m.hidden, m.latent, 1.0, onto_hidden=True),
    }  # fmt: skip
    if m.latent_norm:
        out[p + "routed_expert_norm.weight"] = t.norm(p + "routed_expert_norm.weight", m.latent)
    return out | mlp_tensors(t, p + "shared_experts.", m.shared * m.moe)


def expert_tensors(t: Tensors, p: str) -> dict[str, np.ndarray]:
    m = t.m
    return t.mxfp4(p + "w1", m.moe, m.latent) | t.mxfp4(p + "w2", m.latent, m.moe) | t.mxfp4(p + "w3", m.moe, m.latent)


def layer_units(t: Tensors, layer: int) -> list[dict[str, np.ndarray]]:
    """The layer's tensors in file order: units that stay together, the experts shuffled."""
    m, p = t.m, f"{t.m.prefix}layers.{layer}."
    trunk = kda_tensors(t, p + "self_attn.")
    if layer + 1 in m.full_attn_layers:
        trunk = mla_tensors(t, p + "self_attn.")
    for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
        trunk[f"{p}{name}.weight"] = t.norm(f"{p}{name}.weight", m.hidden)
    for name in ("self_attention_res_proj", "mlp_res_proj"):
        trunk[f"{p}{name}.weight"] = t.linear(f"{p}{name}.weight", 1, m.hidden, 1.2)
    if layer < m.dense_layers:
        return [trunk | mlp_tensors(t, p + "mlp.", m.dense_width)]
    trunk |= moe_trunk_tensors(t, p + "block_sparse_moe.")
    order = Stream(f"{m.name}/{p}order").permutation(m.experts)
    experts = [expert_tensors(t, f"{p}block_sparse_moe.experts.{e}.") for e in order]
    return [*experts[:3], trunk, *experts[3:]]


def outer_tensors(t: Tensors) -> dict[str, np.ndarray]:
    m = t.m
    head = "lm_head.weight" if m.flat else "language_model.lm_head.weight"
    embed = Stream(f"{m.name}/embed").normal((m.vocab, m.hidden))
    embed = t._twin_rows(embed.T.copy()).T
    lm_head = Stream(f"{m.name}/lm_head").normal((m.vocab, m.hidden)) * (3.0 / np.sqrt(m.hidden))
    if m.low_rows:
        lm_head[-m.low_rows :] *= 0.125
    p = m.prefix
    return {
        p + "embed_tokens.weight": to_bf16(embed),
        head: to_bf16(lm_head),
        p + "norm.weight": t.norm("norm.weight", m.hidden),
        p + "output_attn_res_norm.weight": t.norm("output_attn_res_norm.weight", m.hidden),
        p + "output_attn_res_proj.weight": t.linear("output_attn_res_proj.weight", 1, m.hidden, 1.2),
    }


def vision_tensors(t: Tensors) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    projector = {"mm_projector.proj.0.weight": t.linear("mm_projector.proj.0.weight", 8, 8, 1.0)}
    tower = {"vision_tower.patch_embed.proj.weight": t.linear("vision_tower.patch_embed.proj.weight", 8, 12, 1.0)}
    return projector, tower


def shards_of(m: Tiny) -> list[Shard]:
    """One shard a layer, then the outer tensors, the projector, the tower; or one file for the flat model.

    Odd offsets come in two ways: an odd header length, or an odd count of bytes before the tensor (then its
    offset is odd inside the data section too). Shards take turns.
    """
    t = Tensors(m)
    if m.flat:
        shard = Shard(odd_start=True)
        units = [u for layer in range(m.layers) for u in layer_units(t, layer)] + [outer_tensors(t)]
        for name, array in _alphabetic_last_layer(m, units):
            shard.tensors[name] = array
        return [shard]
    shards = []
    for layer in range(m.layers):
        shard = Shard(odd_start=layer % 2 == 0, metadata=layer == 0)
        for index, unit in enumerate(layer_units(t, layer)):
            shard.tensors |= unit
            if index == 0 and layer % 3 == 1:
                filler = f"vision_tower.filler.{layer}"
                shard.tensors[filler] = Stream(f"{m.name}/{filler}").bits(2 * layer + 1).astype(np.uint8)
        shards.append(shard)
    projector, tower = vision_tensors(t)
    return [*shards, *(Shard(odd_start=i < 2, tensors=s) for i, s in enumerate((outer_tensors(t), projector, tower)))]


def _alphabetic_last_layer(m: Tiny, units):
    """The last layer's tensors by name, outer tensors between: its experts are not contiguous in the file."""
    last = f"{m.prefix}layers.{m.layers - 1}."
    tensors = [item for unit in units for item in unit.items()]
    tail = sorted((i for i in tensors if i[0].startswith(last)), key=lambda i: (i[0].rsplit(".", 1)[1], i[0]))
    return [i for i in tensors if not i[0].startswith(last)] + tail
