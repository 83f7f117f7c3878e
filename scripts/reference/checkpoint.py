"""Reading a checkpoint directory: config.json (nested or flat) and safetensors shards (one file or several).

This reader trusts its input: it is for the fixtures and for small models. The strict one is `k3-formats`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arithmetic import F32, bf16_to_f32

PREFIXES = {"language_model.model.": "language_model.lm_head.weight", "model.": "lm_head.weight"}
NUMPY_DTYPE = {"BF16": np.uint16, "F32": np.float32, "U8": np.uint8}


@dataclass(frozen=True)
class Config:
    hidden_size: int
    num_hidden_layers: int
    vocab_size: int
    rms_norm_eps: np.float32
    kda_heads: int
    kda_width: int
    conv_taps: int
    gate_lower_bound: np.float32
    full_attn_layers: frozenset[int]  # one-based, as in the file
    num_attention_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    mla_use_output_gate: bool
    num_experts: int
    num_experts_per_token: int
    num_shared_experts: int
    routed_expert_hidden_size: int
    moe_intermediate_size: int
    routed_scaling_factor: np.float32
    moe_renormalize: bool
    latent_moe_use_norm: bool
    first_k_dense_replace: int
    attn_res_block_size: int
    situ_beta: np.float32
    situ_linear_beta: np.float32

    def is_mla(self, layer_index: int) -> bool:
        return layer_index + 1 in self.full_attn_layers

    def is_dense(self, layer_index: int) -> bool:
        return layer_index < self.first_k_dense_replace

    @staticmethod
    def parse(text: str) -> "Config":
        root = json.loads(text)
        inner = root.get("text_config", {})
        linear = inner.get("linear_attn_config") or root.get("linear_attn_config") or {}

        def find(*names, default=None):
            for name in names:
                for table in (inner, root):
                    if name in table:
                        return table[name]
            if default is None:
                raise KeyError(f"config.json has none of {names}")
            return default

        def find_linear(name, alias):
            if name in linear:
                return linear[name]
            return root[alias]

        def integer(name):
            return int(find(name))

        return Config(
            hidden_size=integer("hidden_size"),
            num_hidden_layers=integer("num_hidden_layers"),
            vocab_size=integer("vocab_size"),
            rms_norm_eps=F32(find("rms_norm_eps")),
            kda_heads=int(find_linear("num_heads", "kda_num_heads")),
            kda_width=int(find_linear("head_dim", "kda_head_dim")),
            conv_taps=int(find_linear("short_conv_kernel_size", "short_conv_kernel_size")),
            gate_lower_bound=F32(find_linear("gate_lower_bound", "gate_lower_bound")),
            full_attn_layers=frozenset(find_linear("full_attn_layers", "full_attn_layers")),
            num_attention_heads=integer("num_attention_heads"),
            q_lora_rank=integer("q_lora_rank"),
            kv_lora_rank=integer("kv_lora_rank"),
            qk_nope_head_dim=integer("qk_nope_head_dim"),
            qk_rope_head_dim=integer("qk_rope_head_dim"),
            v_head_dim=integer("v_head_dim"),
            mla_use_output_gate=bool(find("mla_use_output_gate", default=True)),
            num_experts=integer("num_experts"),
            num_experts_per_token=integer("num_experts_per_token"),
            num_shared_experts=integer("num_shared_experts"),
            routed_expert_hidden_size=integer("routed_expert_hidden_size"),
            moe_intermediate_size=integer("moe_intermediate_size"),
            routed_scaling_factor=F32(find("routed_scaling_factor")),
            moe_renormalize=bool(find("moe_renormalize", default=True)),
            latent_moe_use_norm=bool(find("latent_moe_use_norm", default=True)),
            first_k_dense_replace=integer("first_k_dense_replace"),
            attn_res_block_size=integer("attn_res_block_size"),
            situ_beta=F32(find("activation_situ_beta", "situ_beta")),
            situ_linear_beta=F32(find("activation_situ_linear_beta", "situ_linear_beta")),
        )


class Checkpoint:
    """All tensors of a directory by their full names; `get` takes names without the prefix."""

    def __init__(self, directory: Path):
        self.directory = Path(directory)
        self.config = Config.parse((self.directory / "config.json").read_text())
        index = self.directory / "model.safetensors.index.json"
        if index.exists():
            shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            shards = ["model.safetensors"]
        self._tensors: dict[str, tuple[bytes, dict, int]] = {}
        for shard in shards:
            self._read_shard(self.directory / shard)
        self.prefix = next((p for p in PREFIXES if p + "embed_tokens.weight" in self._tensors), None)
        if self.prefix is None:
            raise KeyError(f"{directory}: no embed_tokens.weight under {list(PREFIXES)}")

    def _read_shard(self, path: Path) -> None:
        raw = path.read_bytes()
        header_bytes = int.from_bytes(raw[:8], "little")
        for name, entry in json.loads(raw[8 : 8 + header_bytes]).items():
            if name != "__metadata__":
                self._tensors[name] = (raw, entry, 8 + header_bytes)

    def raw(self, name: str) -> np.ndarray:
        """The tensor as stored: BF16 as u16 bit patterns."""
        data, entry, base = self._tensors[name]
        begin, end = entry["data_offsets"]
        # The offset may be odd; frombuffer on a copied slice does not care.
        return np.frombuffer(data[base + begin : base + end], NUMPY_DTYPE[entry["dtype"]]).reshape(entry["shape"])

    def has(self, name: str) -> bool:
        return self.prefix + name in self._tensors

    def get(self, name: str) -> np.ndarray:
        """Widened to f32 (U8 stays U8). `lm_head.weight` is found outside the prefix."""
        full = PREFIXES[self.prefix] if name == "lm_head.weight" else self.prefix + name
        raw = self.raw(full)
        return bf16_to_f32(raw) if raw.dtype == np.uint16 else raw
