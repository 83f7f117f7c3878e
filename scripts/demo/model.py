"""The demo model in PyTorch: docs/numerics.md in f32, for training.

Parameters carry the names of the released tensors (without the prefix), so export is a walk over them. The experts of a
layer are stacked: `w13` [experts, 2 * inner, latent] holds gate over up, `w2` [experts, latent, inner].
Weights that read the same input are concatenated into one product per sublayer.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dimensions as dim
from experts import routed_experts
from kda import kda

Weights = dict[str, Tensor]


def initial_weights(seed: int) -> Weights:
    """Every trained tensor; random ones in a fixed order from one seed."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, gain: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * (gain / math.sqrt(shape[-1]))

    onto = 1 / math.sqrt(2 * dim.LAYERS)  # gain of what is added to the residual stream
    w: Weights = {"embed_tokens.weight": normal(dim.VOCAB, dim.HIDDEN, gain=0.25 * math.sqrt(dim.HIDDEN))}
    for layer in range(dim.LAYERS):
        p = f"layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
            w[f"{p}{name}.weight"] = torch.ones(dim.HIDDEN)
        for name in ("self_attention_res_proj", "mlp_res_proj"):
            w[f"{p}{name}.weight"] = torch.zeros(1, dim.HIDDEN)
        attention = mla_weights if dim.is_mla(layer) else kda_weights
        w |= attention(p + "self_attn.", normal, onto, generator)
        w |= mlp_weights(p + "mlp.", dim.DENSE_WIDTH, normal, onto) if layer == 0 else moe_weights(p, normal, onto)
    w["output_attn_res_norm.weight"] = torch.ones(dim.HIDDEN)
    w["output_attn_res_proj.weight"] = torch.zeros(1, dim.HIDDEN)
    w["norm.weight"] = torch.ones(dim.HIDDEN)
    w["lm_head.weight"] = normal(dim.VOCAB, dim.HIDDEN, gain=0.5)
    return w


def kda_weights(p: str, normal, onto: float, generator: torch.Generator) -> Weights:
    width, h = dim.KDA_HEADS * dim.KDA_WIDTH, dim.HIDDEN
    w = {f"{p}{n}_proj.weight": normal(width, h) for n in "qkvg"}
    for n in "qkv":
        taps = normal(width, 1, dim.CONV_TAPS, gain=0.4)
        taps[..., -1] += 1.0
        w[f"{p}{n}_conv1d.weight"] = taps
    w[p + "b_proj.weight"] = normal(dim.KDA_HEADS, h)
    w[p + "f_a_proj.weight"] = normal(dim.KDA_WIDTH, h)
    w[p + "f_b_proj.weight"] = normal(width, dim.KDA_WIDTH)
    w[p + "A_log"] = torch.zeros(dim.KDA_HEADS)
    w[p + "dt_bias"] = torch.rand(width, generator=generator) * 6.0 - 7.0  # a step keeps e^-0.005 to e^-1.3
    w[p + "o_norm.weight"] = torch.ones(dim.KDA_WIDTH)
    w[p + "o_proj.weight"] = normal(h, width, gain=onto)
    return w


def mla_weights(p: str, normal, onto: float, _generator) -> Weights:
    h = dim.HIDDEN
    return {
        p + "q_a_proj.weight": normal(dim.Q_LORA, h),
        p + "q_a_layernorm.weight": torch.ones(dim.Q_LORA),
        p + "q_b_proj.weight": normal(dim.HEADS * (dim.NOPE + dim.ROPE), dim.Q_LORA),
        p + "kv_a_proj_with_mqa.weight": normal(dim.KV_LORA + dim.ROPE, h),
        p + "kv_a_layernorm.weight": torch.ones(dim.KV_LORA),
        p + "kv_b_proj.weight": normal(dim.HEADS * (dim.NOPE + dim.V), dim.KV_LORA),
        p + "g_proj.weight": normal(dim.HEADS * dim.V, h),
        p + "o_proj.weight": normal(h, dim.HEADS * dim.V, gain=onto),
    }


def mlp_weights(p: str, width: int, normal, onto: float) -> Weights:
    return {
        p + "gate_proj.weight": normal(width, dim.HIDDEN),
        p + "up_proj.weight": normal(width, dim.HIDDEN),
        p + "down_proj.weight": normal(dim.HIDDEN, width, gain=onto),
    }


def moe_weights(p: str, normal, onto: float) -> Weights:
    p += "block_sparse_moe."
    return {
        p + "gate.weight": normal(dim.EXPERTS, dim.HIDDEN),
        p + "routed_expert_down_proj.weight": normal(dim.LATENT, dim.HIDDEN),
        p + "experts.w13": normal(dim.EXPERTS, 2 * dim.INNER, dim.LATENT),
        p + "experts.w2": normal(dim.EXPERTS, dim.LATENT, dim.INNER),
        p + "routed_expert_norm.weight": torch.ones(dim.LATENT),
        p + "routed_expert_up_proj.weight": normal(dim.HIDDEN, dim.LATENT, gain=onto),
    } | mlp_weights(p + "shared_experts.", dim.SHARED * dim.INNER, normal, onto)


# --- the parts, as functions of tensors; each can be compiled -----------------------------------------------------


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + dim.EPS) * weight


def situ(gate: Tensor, up: Tensor) -> Tensor:
    capped = dim.SITU_BETA * torch.tanh(gate / dim.SITU_BETA)
    return capped * torch.sigmoid(gate) * (dim.SITU_LINEAR_BETA * torch.tanh(up / dim.SITU_LINEAR_BETA))


def mix(sources: list[Tensor], norm: Tensor, proj: Tensor) -> Tensor:
    fold = norm * proj.reshape(-1)
    scores = [(s * fold).sum(-1, keepdim=True) * torch.rsqrt((s * s).mean(-1, keepdim=True) + dim.EPS) for s in sources]
    p = torch.cat(scores, -1).softmax(-1)
    out = sources[0] * p[..., 0:1]
    for index, source in enumerate(sources[1:], start=1):
        out = out + source * p[..., index : index + 1]
    return out


def mix_norm(sources: list[Tensor], norm: Tensor, proj: Tensor, weight: Tensor) -> Tensor:
    """The mix of the sources, then the sublayer's norm; a single source passes unmixed when it has no proj."""
    return rms(mix(sources, norm, proj), weight)


def shortconv(x: Tensor, taps: Tensor) -> Tensor:
    """x [B, T, channels], taps [channels, k]; SiLU of the causal convolution, history zero."""
    k, length = taps.shape[-1], x.shape[1]
    padded = F.pad(x, (0, 0, k - 1, 0))
    y = padded[:, k - 1 :] * taps[:, k - 1]
    for j in range(k - 1):
        y = y + padded[:, j : j + length] * taps[:, j]
    return F.silu(y)


def kda_before(y: Tensor, taps: Tensor, f_b: Tensor, a_log: Tensor, dt_bias: Tensor):
    """y [B, T, 3 * width + D + heads]: the projections of q, k, v, f_a, b. Gives what `kda` takes."""
    width, heads, d = dim.KDA_HEADS * dim.KDA_WIDTH, dim.KDA_HEADS, dim.KDA_WIDTH
    batch, length = y.shape[:2]
    qkv = shortconv(y[..., : 3 * width], taps).view(batch, length, 3, heads, d)
    q, k, v = qkv.unbind(2)
    q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6) * (1 / math.sqrt(d))
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    z = (y[..., 3 * width : 3 * width + d] @ f_b.t() + dt_bias).view(batch, length, heads, d)
    log_alpha = dim.GATE_LOWER_BOUND * torch.sigmoid(a_log.exp()[:, None] * z)
    return q, k, v, log_alpha, torch.sigmoid(y[..., 3 * width + d :])


def kda_after(o: Tensor, gate: Tensor, o_norm: Tensor) -> Tensor:
    return rms(o, o_norm).flatten(-2) * torch.sigmoid(gate)


def mla_attention(y: Tensor, q_norm: Tensor, kv_norm: Tensor, q_b: Tensor, kv_b: Tensor) -> Tensor:
    """y [B, T, q_lora + kv_lora + rope + heads * v]: q_a, kv_a, g. The expanded form; returns the gated heads."""
    batch, length = y.shape[:2]
    q_a, latent, tail, gate = y.split([dim.Q_LORA, dim.KV_LORA, dim.ROPE, dim.HEADS * dim.V], -1)
    q = (rms(q_a, q_norm) @ q_b.t()).view(batch, length, dim.HEADS, -1).transpose(1, 2)
    kv = (rms(latent, kv_norm) @ kv_b.t()).view(batch, length, dim.HEADS, -1).transpose(1, 2)
    k = torch.cat([kv[..., : dim.NOPE], tail[:, None].expand(-1, dim.HEADS, -1, -1)], -1)
    scores = (q @ k.mT) * (1 / math.sqrt(dim.NOPE + dim.ROPE))
    future = torch.ones(length, length, dtype=torch.bool, device=y.device).triu(1)
    o = scores.masked_fill(future, -torch.inf).softmax(-1) @ kv[..., dim.NOPE :]
    return o.transpose(1, 2).flatten(-2) * torch.sigmoid(gate)


class Demo(nn.Module):
    def __init__(self, seed: int = 0):
        super().__init__()
        self.names = {}
        for name, tensor in initial_weights(seed).items():
            self.names[name] = name.replace(".", "/")
            self.register_parameter(self.names[name], nn.Parameter(tensor))
        for layer in range(1, dim.LAYERS):
            self.register_buffer(f"bias/{layer}", torch.zeros(dim.EXPERTS))
        self.loads: dict[int, Tensor] = {}  # layer -> how many picks each expert had in the last forward

    def p(self, name: str) -> Tensor:
        return getattr(self, self.names[name])

    def bias(self, layer: int) -> Tensor:
        return getattr(self, f"bias/{layer}")

    def linear(self, x: Tensor, *names: str) -> Tensor:
        weights = [self.p(n + ".weight") for n in names]
        return F.linear(x, weights[0] if len(weights) == 1 else torch.cat(weights))

    def hidden(self, ids: Tensor) -> Tensor:
        """ids [B, T] -> the input of lm_head [B, T, hidden]."""
        prefix, snapshots = F.embedding(ids, self.p("embed_tokens.weight")), []
        for layer in range(dim.LAYERS):
            p = f"layers.{layer}."
            norm = self.p(p + "input_layernorm.weight")
            x = self.mix_norm([*snapshots, prefix], p + "self_attention_res", norm) if snapshots else rms(prefix, norm)
            a = self.mla(p + "self_attn.", x) if dim.is_mla(layer) else self.kda(p + "self_attn.", x)
            if layer % dim.RESIDUAL_BLOCK == 0:
                snapshots.append(prefix)
                prefix = a
            else:
                prefix = prefix + a
            x = self.mix_norm([*snapshots, prefix], p + "mlp_res", self.p(p + "post_attention_layernorm.weight"))
            prefix = prefix + (self.mlp(p + "mlp.", x) if layer == 0 else self.moe(layer, x))
        return self.mix_norm([*snapshots, prefix], "output_attn_res", self.p("norm.weight"))

    def forward(self, ids: Tensor) -> Tensor:
        return self.linear(self.hidden(ids), "lm_head")

    def mix_norm(self, sources: list[Tensor], p: str, weight: Tensor) -> Tensor:
        return mix_norm(sources, self.p(p + "_norm.weight"), self.p(p + "_proj.weight"), weight)

    def kda(self, p: str, x: Tensor) -> Tensor:
        y = self.linear(x, *(f"{p}{n}_proj" for n in ("q", "k", "v", "f_a", "b", "g")))
        width = dim.KDA_HEADS * dim.KDA_WIDTH
        taps = torch.cat([self.p(f"{p}{n}_conv1d.weight") for n in "qkv"]).squeeze(1)
        small = (self.p(p + n) for n in ("f_b_proj.weight", "A_log", "dt_bias"))
        parts = kda_before(y[..., :-width], taps, *small)
        o = kda_after(kda(*parts), y[..., -width:], self.p(p + "o_norm.weight"))
        return self.linear(o, p + "o_proj")

    def mla(self, p: str, x: Tensor) -> Tensor:
        y = self.linear(x, p + "q_a_proj", p + "kv_a_proj_with_mqa", p + "g_proj")
        names = ("q_a_layernorm", "kv_a_layernorm", "q_b_proj", "kv_b_proj")
        o = mla_attention(y, *(self.p(f"{p}{n}.weight") for n in names))
        return self.linear(o, p + "o_proj")

    def mlp(self, p: str, x: Tensor) -> Tensor:
        gate, up = self.linear(x, p + "gate_proj", p + "up_proj").chunk(2, -1)
        return self.linear(situ(gate, up), p + "down_proj")

    def moe(self, layer: int, x: Tensor) -> Tensor:
        p = f"layers.{layer}.block_sparse_moe."
        y = self.linear(x, p + "gate", p + "routed_expert_down_proj", p + "shared_experts.gate_proj",
                        p + "shared_experts.up_proj")  # fmt: skip
        inner = dim.SHARED * dim.INNER
        logits, z, gate, up = y.split([dim.EXPERTS, dim.LATENT, inner, inner], -1)
        acc, self.loads[layer] = routed_experts(
            z.reshape(-1, dim.LATENT), logits.reshape(-1, dim.EXPERTS), self.bias(layer), self.p(p + "experts.w13"),
            self.p(p + "experts.w2"), situ
        )  # fmt: skip
        acc = rms(acc.view_as(z), self.p(p + "routed_expert_norm.weight"))
        both = torch.cat([acc, situ(gate, up)], -1)
        onto = [self.p(f"{p}{n}.weight") for n in ("routed_expert_up_proj", "shared_experts.down_proj")]
        return F.linear(both, torch.cat(onto, -1))
