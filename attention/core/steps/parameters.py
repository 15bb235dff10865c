"""The parameters of a layer: its mask, projections, biases, and tensors of other runs."""

from __future__ import annotations

from attention.core.step import Parameter, called


def _parameter(name: str, symbol: str, axes: str, meaning: str, **elsewhere: str) -> Parameter:
    return Parameter(name, symbol, tuple(axes.split()), meaning, called(**elsewhere))


# fmt: off
PARAMETERS: tuple[Parameter, ...] = (
    _parameter("mask",
        "mask", "query_pos key_pos", "which keys a query may attend to: True = may",
        lens="mask", transformers="attention_mask", torch="attn_mask", n2="tril", n4="mask"),
    _parameter("w_q",
        "W_Q", "head d_model d_k", "turns a token's row into its query",
        lens="W_Q", transformers="q_proj.weight", torch="in_proj_weight", n1="W_Q, MW_Q", n2="query", n3="W_Q", n4="Wq", n5="W_q"),
    _parameter("w_k",
        "W_K", "kv_head d_model d_k", "turns a token's row into its key",
        lens="W_K", transformers="k_proj.weight", torch="in_proj_weight", n1="W_K, MW_K", n2="key", n3="W_K", n4="Wk", n5="W_k"),
    _parameter("w_v",
        "W_V", "kv_head d_model d_v", "turns a token's row into its value",
        lens="W_V", transformers="v_proj.weight", torch="in_proj_weight", n1="W_V, MW_V", n2="value", n3="W_V", n4="Wv", n5="W_v"),
    _parameter("w_o",
        "W_O", "head d_v d_model", "mixes the heads' outputs, side by side, into one row",
        lens="W_O", transformers="o_proj.weight", torch="out_proj.weight", n4="Wo"),
    _parameter("b_q",
        "b_Q", "head d_k", "is added to every query", lens="b_Q", transformers="q_proj.bias", torch="in_proj_bias"),
    _parameter("b_k",
        "b_K", "kv_head d_k", "is added to every key", lens="b_K", transformers="k_proj.bias", torch="in_proj_bias"),
    _parameter("b_v",
        "b_V", "kv_head d_v", "is added to every value", lens="b_V", transformers="v_proj.bias", torch="in_proj_bias"),
    _parameter("b_o",
        "b_O", "d_model", "is added to every output", lens="b_O", transformers="o_proj.bias", torch="out_proj.bias"),
    _parameter("w_s",
        "w_S", "head d_k", "weighs the columns of tanh(q + k) in additive scores"),
    _parameter("bias",
        "bias", "head query_pos key_pos", "what is added to the scores of each pair of positions",
        transformers="position_bias", torch="attn_mask"),
    _parameter("sinks",
        "sink", "head", "an extra score in every row of its head that belongs to no key: its weight is dropped",
        transformers="sinks"),
    _parameter("dropout_mask",
        "dropout_mask", "head query_pos key_pos", "what the weights are multiplied by: 0 drops one, 1 / (1 − dropout) keeps it"),
    _parameter("patched_weights",
        "A₂", "head query_pos key_pos", "weights of another run of the model, for the heads that are patched with them"),
    _parameter("patched_head_output",
        "Z₂", "head query_pos d_v", "heads' outputs of another run of the model, for the heads that are patched with them"),
    _parameter("bias_table",
        "R", "bucket head", "what is added to the scores of keys at this distance", transformers="relative_attention_bias.weight"),
)
"""All parameters of a layer."""
# fmt: on
