"""The sizes of the demo model, and its config.json in the released form."""

from __future__ import annotations

RANKS = 3040  # ordinary tokens
RESERVED_SLOTS = 32  # control tokens and reserved ids above them
VOCAB = RANKS + RESERVED_SLOTS
EOS_ID = RANKS + 1  # what ends a document

HIDDEN = 192
LAYERS = 9
FULL_ATTENTION = (4, 8, 9)  # one-based, as in config.json: 0-based 3, 7, 8
RESIDUAL_BLOCK = 4  # borders at layers 0, 4, 8
DENSE_WIDTH = 512  # layer 0's mlp
KDA_HEADS, KDA_WIDTH, CONV_TAPS = 3, 64, 4
GATE_LOWER_BOUND = -5.0
HEADS, NOPE, ROPE, V = 4, 32, 16, 32
Q_LORA, KV_LORA = 96, 64
EXPERTS, TOP_K, SHARED = 16, 4, 1
LATENT, INNER = 96, 96
SITU_BETA, SITU_LINEAR_BETA = 4.0, 25.0
EPS = 1e-5
A_LOG_STORED = 8  # stored longer than the head count, the rest zero


def is_mla(layer: int) -> bool:
    return layer + 1 in FULL_ATTENTION


def config_json() -> dict:
    kda_layers = [i for i in range(1, LAYERS + 1) if i not in FULL_ATTENTION]
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "group_size": 32, "strategy": "group",
               "scale_dtype": "uint8"}  # fmt: skip
    text = {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "dtype": "bfloat16",
        "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "intermediate_size": DENSE_WIDTH,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "hidden_act": "situ", "rms_norm_eps": EPS,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": Q_LORA, "kv_lora_rank": KV_LORA,
        "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": V, "mla_use_nope": True,
        "mla_use_output_gate": True, "num_experts": EXPERTS, "num_experts_per_token": TOP_K,
        "num_shared_experts": SHARED, "moe_intermediate_size": INNER, "routed_expert_hidden_size": LATENT,
        "latent_moe_use_norm": True, "moe_renormalize": True, "moe_router_activation_func": "sigmoid",
        "routed_scaling_factor": 1.0, "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1,
        "topk_method": "noaux_tc", "attn_res_block_size": RESIDUAL_BLOCK, "tie_word_embeddings": False,
        "activation_situ_beta": SITU_BETA, "activation_situ_linear_beta": SITU_LINEAR_BETA, "eos_token_id": EOS_ID + 1,
        "linear_attn_config": {
            "head_dim": KDA_WIDTH, "num_heads": KDA_HEADS, "short_conv_kernel_size": CONV_TAPS,
            "gate_lower_bound": GATE_LOWER_BOUND, "use_full_rank_gate": True,
            "full_attn_layers": list(FULL_ATTENTION), "kda_layers": kda_layers,
        },
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        },
    }  # fmt: skip
    return {
        "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16",
        "bos_token_id": RANKS, "eos_token_id": EOS_ID + 1, "pad_token_id": VOCAB - 1, "tie_word_embeddings": False,
        "text_config": text,
    }  # fmt: skip
