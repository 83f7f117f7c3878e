"""The forward pass of Kimi K3, written from docs/numerics.md.

`Model.forward(ids, state)` runs a sweep of positions and carries the state, so a prompt may be cut into sweeps
anywhere. `mistakes` switches on wrong readings of the definition one by one; `MISTAKES` describes each. They exist
so that the fixtures can be shown to catch them; the right path never depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import arithmetic as ar
from arithmetic import F32
from checkpoint import Checkpoint

NORMS = [
    "input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm", "q_a_layernorm",
    "kv_a_layernorm", "o_norm", "routed_expert_norm", "norm", "output_attn_res_norm",
]  # fmt: skip
SWAPS = [
    ("input_layernorm", "post_attention_layernorm"),
    ("self_attention_res_norm", "mlp_res_norm"),
    ("norm", "output_attn_res_norm"),
]

MISTAKES = {
    "a_log_per_channel": "A_log is read per channel (head*D + i) instead of per head",
    "read_before_decay": "k reads the state before it is decayed",
    "beta_before_zero_test": "the zero test looks at k*beta instead of k",
    **{f"norm_dropped_{n}": f"the weight of {n} is taken as 1" for n in NORMS},
    **{f"norms_swapped_{a}_{b}": f"{a} and {b} are exchanged" for a, b in SWAPS},
    "norm_order": "rmsnorm multiplies w*(x*inv) instead of (w*x)*inv",
    "router_lanes": "the router's sum runs in 16 lanes instead of serially",
    "silu_dense": "the dense layers use SiLU instead of SiTU",
    "rope_tail_dropped": "the rope tail takes no part in the scores",
    "rope_tail_rotated": "the rope tail is rotated by its position (base 10,000, halves)",
    "scale_nope_only": "the softmax scale is that of the nope width only",
    "scale_in_f64": "the attention scale is applied in f64, before the rounding to f32",
    "bias_in_weights": "the correction bias stays in the expert weights",
    "norm_per_expert": "routed_expert_norm is applied to each expert's output, then summed",
    "shared_on_latent": "the shared experts see the latent (through up_proj where the widths differ)",
    "mix_replaces_prefix": "the mix of attn_res becomes the running prefix",
    "snapshots_carried": "the snapshot list survives from one position to the next",
    "capped_gate_sigmoid": "SiTU takes the sigmoid of the capped gate",
    "nibble_order": "the high nibble of an MXFP4 byte is taken as the even column",
    "conv_taps_reversed": "the convolution taps run newest to oldest",
}


@dataclass
class State:
    """Everything carried from one position to the next: nothing else is."""

    positions: int = 0
    kda: dict[int, np.ndarray] = field(default_factory=dict)  # layer -> [heads][D][D]
    conv: dict[tuple[int, str], np.ndarray] = field(default_factory=dict)  # (layer, q|k|v) -> [taps-1][channels]
    mla: dict[int, np.ndarray] = field(default_factory=dict)  # layer -> [positions][latent+rope]
    carried_snapshots: list[np.ndarray] = field(default_factory=list)  # used by the mistake alone


class Model:
    def __init__(self, checkpoint: Checkpoint, attention: str = "latent", mistakes=()):
        assert attention in ("latent", "expanded")
        unknown = set(mistakes) - set(MISTAKES)
        if unknown:
            raise KeyError(f"unknown mistakes {sorted(unknown)}; known: {sorted(MISTAKES)}")
        self.checkpoint, self.config = checkpoint, checkpoint.config
        self.attention, self.mistakes = attention, frozenset(mistakes)
        self._tensors: dict[str, np.ndarray] = {}

    def wrong(self, mistake: str) -> bool:
        return mistake in self.mistakes

    def tensor(self, name: str) -> np.ndarray:
        if name not in self._tensors:
            self._tensors[name] = self.checkpoint.get(name)
        return self._tensors[name]

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return ar.matmul(self.tensor(name + ".weight"), x)

    # --- norms ---

    def norm_weight(self, path: str) -> np.ndarray:
        where, name = path.rpartition(".")[::2]
        for a, b in SWAPS:
            if self.wrong(f"norms_swapped_{a}_{b}") and name in (a, b):
                name = b if name == a else a
        weight = self.tensor(f"{where}.{name}.weight" if where else f"{name}.weight")
        return np.ones_like(weight) if self.wrong(f"norm_dropped_{name}") else weight

    def rms(self, path: str, x: np.ndarray) -> np.ndarray:
        order = "w*(x*inv)" if self.wrong("norm_order") else "(w*x)*inv"
        return ar.rmsnorm(x, self.norm_weight(path), self.config.rms_norm_eps, order)

    def mix(self, path: str, sources: list[np.ndarray]) -> np.ndarray:
        fold = self.norm_weight(path + "_norm") * self.tensor(path + "_proj.weight").reshape(-1)
        return ar.attn_res(sources, fold, self.config.rms_norm_eps)

    # --- the walk through the layers ---

    def forward(self, ids: list[int], state: State) -> np.ndarray:
        """Logits [len(ids)][vocab]."""
        if self.wrong("snapshots_carried"):
            return np.concatenate([self._sweep([i], state) for i in ids])
        return self._sweep(ids, state)

    def _sweep(self, ids: list[int], state: State) -> np.ndarray:
        prefix = self.tensor("embed_tokens.weight")[np.asarray(ids)]
        snapshots = state.carried_snapshots if self.wrong("snapshots_carried") else []
        for layer in range(self.config.num_hidden_layers):
            prefix = self._layer(layer, prefix, snapshots, state)
            if not np.isfinite(prefix).all():
                raise ValueError(f"non-finite hidden state after layer {layer}")
        state.positions += len(ids)
        h = self.mix("output_attn_res", [*snapshots, prefix])
        return self.linear("lm_head", self.rms("norm", h))

    def _layer(self, layer: int, prefix: np.ndarray, snapshots: list[np.ndarray], state: State) -> np.ndarray:
        p = f"layers.{layer}."
        h = self.mix(p + "self_attention_res", [*snapshots, prefix]) if snapshots else prefix
        if layer % self.config.attn_res_block_size == 0:
            snapshots.append(prefix)
            prefix = None
        x = self.rms(p + "input_layernorm", h)
        a = self._mla(layer, x, state) if self.config.is_mla(layer) else self._kda(layer, x, state)
        if self.wrong("mix_replaces_prefix"):
            prefix = h
        prefix = a if prefix is None else prefix + a
        h = self.mix(p + "mlp_res", [*snapshots, prefix])
        if self.wrong("mix_replaces_prefix"):
            prefix = h
        x = self.rms(p + "post_attention_layernorm", h)
        if self.config.is_dense(layer):
            return prefix + self._mlp(p + "mlp.", x, silu=self.wrong("silu_dense"))
        return prefix + self._moe(p + "block_sparse_moe.", x)

    # --- KDA ---

    def _kda(self, layer: int, x: np.ndarray, state: State) -> np.ndarray:
        c, p = self.config, f"layers.{layer}.self_attn."
        heads, width = c.kda_heads, c.kda_width
        q, k, v = (self._conv(layer, name, self.linear(f"{p}{name}_proj", x), state) for name in "qkv")
        q, k, v = (t.reshape(-1, heads, width) for t in (q, k, v))
        q, k = ar.l2norm(q) * ar.inverse_sqrt(width), ar.l2norm(k)
        beta = ar.sigmoid(self.linear(p + "b_proj", x))
        z = self.linear(p + "f_b_proj", self.linear(p + "f_a_proj", x)).reshape(-1, heads, width)
        dt_bias = self.tensor(p + "dt_bias").reshape(heads, width)
        # A_log may be stored longer than the head count; what lies beyond is padding.
        a_log = self.tensor(p + "A_log").reshape(-1)
        a = ar.exp(a_log[:heads])[:, None]
        if self.wrong("a_log_per_channel"):
            a = ar.exp(a_log[np.arange(heads * width) % len(a_log)]).reshape(heads, width)
        alpha = ar.kda_decay(z, dt_bias, a, c.gate_lower_bound)

        memory = state.kda.setdefault(layer, np.zeros((heads, width, width), F32))
        slip = next((m for m in ("read_before_decay", "beta_before_zero_test") if self.wrong(m)), "")
        o = np.stack([ar.kda_step(memory, alpha[t], q[t], k[t], v[t], beta[t], slip) for t in range(len(x))])
        o = self.rms(p + "o_norm", o).reshape(len(x), heads * width)
        return self.linear(p + "o_proj", o * ar.sigmoid(self.linear(p + "g_proj", x)))

    def _conv(self, layer: int, name: str, current: np.ndarray, state: State) -> np.ndarray:
        taps = self.tensor(f"layers.{layer}.self_attn.{name}_conv1d.weight").reshape(current.shape[1], -1)
        k = taps.shape[1]
        history = state.conv.get((layer, name), np.zeros((k - 1, current.shape[1]), F32))
        stream = np.concatenate([history, current])
        state.conv[layer, name] = stream[len(stream) - (k - 1) :]
        slip = self.wrong("conv_taps_reversed")
        return np.stack([ar.shortconv(taps, stream[t : t + k], slip) for t in range(len(current))])

    # --- MLA ---

    def _mla(self, layer: int, x: np.ndarray, state: State) -> np.ndarray:
        c, p = self.config, f"layers.{layer}.self_attn."
        heads, latent, nope, rope = c.num_attention_heads, c.kv_lora_rank, c.qk_nope_head_dim, c.qk_rope_head_dim
        q = self.linear(p + "q_b_proj", self.rms(p + "q_a_layernorm", self.linear(p + "q_a_proj", x)))
        q = q.reshape(len(x), heads, nope + rope)
        kv = self.linear(p + "kv_a_proj_with_mqa", x)
        tail = kv[:, latent:]
        if self.wrong("rope_tail_dropped"):
            tail = np.zeros_like(tail)
        if self.wrong("rope_tail_rotated"):
            positions = state.positions + np.arange(len(x))
            tail = _rotate(tail, positions)
            q = np.concatenate([q[..., :nope], _rotate(q[..., nope:], positions[:, None])], axis=-1)
        rows = np.concatenate([self.rms(p + "kv_a_layernorm", kv[:, :latent]), tail], axis=1)
        before = state.mla.get(layer, np.zeros((0, latent + rope), F32))
        cache = state.mla[layer] = np.concatenate([before, rows])

        attend = self._attend_latent if self.attention == "latent" else self._attend_expanded
        o = attend(self.tensor(p + "kv_b_proj.weight"), q, cache, first=len(before))
        if c.mla_use_output_gate:
            o = o * ar.sigmoid(self.linear(p + "g_proj", x))
        return self.linear(p + "o_proj", o)

    def _scale(self) -> np.float32:
        c = self.config
        return ar.inverse_sqrt(c.qk_nope_head_dim + (0 if self.wrong("scale_nope_only") else c.qk_rope_head_dim))

    def _attend_latent(self, kv_b: np.ndarray, q: np.ndarray, cache: np.ndarray, first: int) -> np.ndarray:
        c = self.config
        heads, latent, nope = c.num_attention_heads, c.kv_lora_rank, c.qk_nope_head_dim
        per_head = kv_b.reshape(heads, nope + c.v_head_dim, latent)
        w_uk, w_uv = per_head[:, :nope], per_head[:, nope:]
        out = []
        for t in range(len(q)):
            seen = cache[: first + t + 1]
            # The sum of qa runs down a column of W_uk, in the order of a matmul row.
            products = np.float64(q[t, :, None, :nope]) * np.float64(w_uk.transpose(0, 2, 1))
            qa = F32(ar.lane_sum(products))
            p = ar.softmax(ar.mla_scores_latent(qa, q[t, :, nope:], seen, self._scale(), self.wrong("scale_in_f64")))
            ol = ar.mla_mix_latent(p, seen[:, :latent])
            out.append(np.concatenate([ar.matmul(w_uv[h], ol[h : h + 1])[0] for h in range(heads)]))
        return np.stack(out)

    def _attend_expanded(self, kv_b: np.ndarray, q: np.ndarray, cache: np.ndarray, first: int) -> np.ndarray:
        c = self.config
        heads, latent, nope = c.num_attention_heads, c.kv_lora_rank, c.qk_nope_head_dim
        kv = ar.matmul(kv_b, cache[:, :latent]).reshape(len(cache), heads, nope + c.v_head_dim)
        tails = np.broadcast_to(cache[:, None, latent:], (len(cache), heads, c.qk_rope_head_dim))
        keys, values = np.concatenate([kv[..., :nope], tails], axis=-1), kv[..., nope:]
        out = []
        for t in range(len(q)):
            end = first + t + 1
            p = ar.softmax(ar.mla_scores_expanded(q[t], keys[:end], self._scale(), self.wrong("scale_in_f64")))
            out.append(ar.mla_mix_expanded(p, values[:end]).reshape(-1))
        return np.stack(out)

    # --- MLP and MoE ---

    def _mlp(self, path: str, x: np.ndarray, silu: bool = False) -> np.ndarray:
        gate, up = self.linear(path + "gate_proj", x), self.linear(path + "up_proj", x)
        return self.linear(path + "down_proj", (gate * ar.sigmoid(gate)) * up if silu else self._situ(gate, up))

    def _situ(self, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        c = self.config
        return ar.situ_glu(gate, up, c.situ_beta, c.situ_linear_beta, self.wrong("capped_gate_sigmoid"))

    def _moe(self, p: str, x: np.ndarray) -> np.ndarray:
        c = self.config
        logits = ar.router_logits(self.tensor(p + "gate.weight"), x, lanes=self.wrong("router_lanes"))
        bias = self.tensor(p + "gate.e_score_correction_bias")
        picks = [
            ar.router_select(row, bias, c.num_experts_per_token, c.moe_renormalize, c.routed_scaling_factor,
                             self.wrong("bias_in_weights"))
            for row in logits
        ]  # fmt: skip
        z = self.linear(p + "routed_expert_down_proj", x)
        outputs = self._experts(p, z, picks)
        acc = np.zeros_like(z)
        for t, chosen in enumerate(picks):
            for expert, weight in chosen:
                acc[t] = acc[t] + weight * outputs[t, expert]
        if c.latent_moe_use_norm and not self.wrong("norm_per_expert"):
            acc = self.rms(p + "routed_expert_norm", acc)
        shared_input = x
        if self.wrong("shared_on_latent"):
            shared_input = z if z.shape == x.shape else self.linear(p + "routed_expert_up_proj", z)
        return self.linear(p + "routed_expert_up_proj", acc) + self._mlp(p + "shared_experts.", shared_input)

    def _experts(self, p: str, z: np.ndarray, picks) -> dict[tuple[int, int], np.ndarray]:
        """(position, expert) -> output; expert by expert, for all the positions that chose it."""
        outputs = {}
        for expert in sorted({e for chosen in picks for e, _ in chosen}):
            rows = [t for t, chosen in enumerate(picks) if expert in (e for e, _ in chosen)]
            gate, up = (self._mxfp4(f"{p}experts.{expert}.{w}", z[rows]) for w in ("w1", "w3"))
            y = self._mxfp4(f"{p}experts.{expert}.w2", self._situ(gate, up))
            if self.config.latent_moe_use_norm and self.wrong("norm_per_expert"):
                y = self.rms(p + "routed_expert_norm", y)
            outputs.update({(t, expert): y[i] for i, t in enumerate(rows)})
        return outputs

    def _mxfp4(self, name: str, x: np.ndarray) -> np.ndarray:
        values = name + ".values"
        if values not in self._tensors:
            self._tensors[values] = ar.unpack_mxfp4(self.tensor(name + ".weight_packed"), self.wrong("nibble_order"))
        return ar.matmul_mxfp4(self._tensors[values], self.tensor(name + ".weight_scale"), x)


def _rotate(tail: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Rotary embedding of the usual kind; K3 has none."""
    half = tail.shape[-1] // 2
    angle = positions[..., None] / 10000.0 ** (np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = np.float64(tail[..., :half]), np.float64(tail[..., half:])
    return np.concatenate([F32(a * cos - b * sin), F32(a * sin + b * cos)], axis=-1)
