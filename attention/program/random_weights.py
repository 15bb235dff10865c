"""The beginning of the copied program for typed text and for matrices, in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.formula.config import AttentionConfig
from attention.formula.functions import normal
from attention.formula.inline import defined
from attention.formula.names import INPUT, MEMORY, POSITION
from attention.formula.positions import POSITIONS
from attention.formula.scores import BUCKETS, SCORES
from attention.formula.steps import declared
from attention.program import literals
from attention.program.literals import Snippet

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.layer import Layer
    from attention.trace.trace import Trace

_MAX_INLINE_NUMBERS = 2000
"""The program reads more numbers than this from the exported file instead of listing them."""

_GENERATOR = (
    "def generator(*names):  # one for each matrix, from the seed and its name",
    "    digest = hashlib.blake2b(ascii((seed, *names)).encode(), digest_size=8).digest()",
    '    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)',
    "",
)
_DRAW = {
    "scaled normal": "normal(shape, generator(name)) / math.sqrt(shape[0])",
    "normal": "normal(shape, generator(name))",
    "linear": "(torch.rand(shape, generator=generator(name)) * 2 - 1) / math.sqrt(shape[0])",
    "uniform": "torch.rand(shape, generator=generator(name))",
}


def typed_text(config: AttentionConfig, trace: Trace) -> Snippet:
    """The beginning for a typed text: embeddings, positions and projections, all from the seed."""
    is_cross = trace.layers[0].has(MEMORY)
    lines = [*_size_lines(config), "", *_GENERATOR, *defined(normal), *_input_lines(config, is_cross)]
    if config.init == "identity":
        x2 = "x2" if is_cross else "x"
        lines += ["query = x[None]  # [head query_pos d_model]: one head, no projections"]
        lines += [f"key = value = {x2}[None]"]
    else:
        lines += ["", *_projection_lines(config)]
    if POSITIONS[config.positions].bias == "relative":
        heads = config.sizes.n_heads
        lines += [f'bias_table = normal(({BUCKETS}, {heads}), generator("bias_table"))  # [bucket head]']
    if SCORES[config.score].parameter:
        single_head = f'torch.rand(1, {config.d_model}, generator=generator("w_s"))'
        expression = single_head if config.init == "identity" else 'draw("w_s", n_heads, d_k)'
        lines += [f"w_s = {expression}  # [head d_k]"]
    return Snippet("a typed text, with random weights", tuple(lines))


def matrices(layer: Layer, fields: tuple[str, ...]) -> Snippet:
    """The beginning for the user's matrices: the numbers or, if there are many, the exported file."""
    snippet = recorded(layer, fields, "someone's own matrices")
    if fields[0] == "x" and "w_q" not in fields and MEMORY in fields:
        more: tuple[str, ...] = ("query = x[None]  # [head query_pos d_k]: no projections", "key = value = x2[None]")
    else:
        more = ("query = key = value = x[None]",) * (fields[0] == "x" and "w_q" not in fields)
    return snippet._replace(lines=(*snippet.lines, *more))


def recorded(layer: Layer, fields: tuple[str, ...], about: str) -> Snippet:
    """The beginning for matrices of a layer: the numbers or, if there are many, the exported file."""
    steps = {name: INPUT if name == "x" else name for name in fields}
    is_large = sum(layer[step].numel() for step in steps.values()) > _MAX_INLINE_NUMBERS
    lines = ['exported = np.load("attention.npz")  # all steps, exported with this program'] * is_large
    for name, step in steps.items():
        variable, comment = "x2" if name == MEMORY else name, f"  # [{' '.join(declared(step).axes)}]"
        if is_large:
            lines += [f'{variable} = torch.from_numpy(exported["L0.{step}"]){comment}']
        else:
            rows, split = _joined_heads(name, layer[step])
            lines += literals.assign_matrix(variable, rows.tolist(), split + comment)
    return Snippet(about, tuple(lines))


def _joined_heads(name: str, tensor: Tensor) -> tuple[Tensor, str]:
    """The heads of a tensor as one matrix, and the expression that splits it again."""
    if name == "b_o":
        return tensor[None], "[0]"
    if tensor.ndim == 2:
        return tensor, ""
    if len(tensor) == 1:
        return tensor[0], "[None]"
    if name in ("bias", "dropout_mask") and bool((tensor == tensor[:1]).all()):
        return tensor[0], f".expand({len(tensor)}, -1, -1)"
    if name == "w_o":
        return tensor.flatten(0, 1), f".unflatten(0, ({len(tensor)}, -1))"
    return tensor.transpose(0, 1).flatten(1), f".unflatten(1, ({len(tensor)}, -1)).transpose(0, 1)"


def _size_lines(config: AttentionConfig) -> list[str]:
    n_heads, d_k, d_v = config.sizes
    if config.init == "identity":
        return [f"seed, d_model = {config.seed}, {config.d_model}"]
    return [f"seed, d_model, n_heads, d_k, d_v = {config.seed}, {config.d_model}, {n_heads}, {d_k}, {d_v}"]


def _input_lines(config: AttentionConfig, is_cross: bool) -> list[str]:
    rows = '[normal((d_model,), generator("embedding", {0}, d_model)) for {0} in {1}]'
    positions = POSITIONS[config.positions]
    if not is_cross:
        lines = [
            f"embedding ={'' if positions.is_added else ' x ='} torch.stack(  # [query_pos d_model], a row for every token",
            f"    {rows.format('token', 'tokens')}",
            ")",
        ]
        if not positions.is_added:
            return lines
        return [*lines, *positions.python("len(tokens)", POSITION), "x = embedding + position"]
    lines = [
        "def embed(words):  # a row for every token",
        f"    rows = {rows.format('word', 'words')}",
        "    return torch.stack(rows)",
        "",
    ]
    if not positions.is_added:
        return [
            *lines,
            "embedding = x = embed(tokens)  # [query_pos d_model]",
            "x2 = embed(key_tokens)  # [key_pos d_model]",
        ]
    lines += [
        f"def {positions.name}(count):",
        *(f"    {line}" for line in [*positions.python("count", "rows"), "return rows"]),
        "",
    ]
    return [
        *lines,
        f"embedding, position = embed(tokens), {positions.name}(len(tokens))",
        "x = embedding + position  # [query_pos d_model]",
        f"x2 = embed(key_tokens) + {positions.name}(len(key_tokens))  # [key_pos d_model]",
    ]


def _projection_lines(config: AttentionConfig) -> list[str]:
    (n_heads, d_k, d_v), n_kv_heads = config.sizes, config.kv_heads
    lines = ["def draw(name, *shape):", f"    return {_DRAW[config.init]}", ""]
    heads = "    draw(name, d_model, n_heads, d_k).transpose(0, 1) for name in ({})"
    if n_kv_heads != n_heads:
        lines += [f"n_kv_heads = {n_kv_heads}  # several query heads share one key and value head"]
        lines += ['w_q = draw("w_q", d_model, n_heads, d_k).transpose(0, 1)  # [head d_model d_k]']
        lines += ['w_k = draw("w_k", d_model, n_kv_heads, d_k).transpose(0, 1)  # [kv_head d_model d_k]']
        lines += ['w_v = draw("w_v", d_model, n_kv_heads, d_v).transpose(0, 1)  # [kv_head d_model d_v]']
    elif d_k == d_v:
        lines += ["w_q, w_k, w_v = (  # [head d_model d_k]", heads.format('"w_q", "w_k", "w_v"'), ")"]
    else:
        lines += ["w_q, w_k = (  # [head d_model d_k]", heads.format('"w_q", "w_k"'), ")"]
        lines += ['w_v = draw("w_v", d_model, n_heads, d_v).transpose(0, 1)  # [head d_model d_v]']
    w_o = 'w_o = draw("w_o", n_heads * d_v, d_model).reshape(n_heads, d_v, d_model)  # [head d_v d_model]'
    return [*lines, w_o]
