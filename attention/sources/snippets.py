"""How the Python of typed text and of matrices begins: plain torch, and nothing but what is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.formula.biases import BUCKETS
from attention.formula.config import AttentionConfig
from attention.formula.names import INPUT, MEMORY, POSITION
from attention.formula.positions import POSITIONS
from attention.formula.scores import SCORES
from attention.formula.steps import declared
from attention.sources import Snippet, literals

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.layer import Layer
    from attention.formula.trace import Trace

MOST_NUMBERS = 2000
"""More numbers than this are not written into the code; it reads them from the exported file."""

GENERATOR = (
    "def generator(*names):  # every matrix has its own, made from the seed and its name",
    "    digest = hashlib.blake2b(ascii((seed, *names)).encode(), digest_size=8).digest()",
    '    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)',
    "",
)
_DRAWN = {
    "scaled normal": "torch.randn(shape, generator=generator(name)) / math.sqrt(shape[0])",
    "normal": "torch.randn(shape, generator=generator(name))",
    "linear": "(torch.rand(shape, generator=generator(name)) * 2 - 1) / math.sqrt(shape[0])",
    "uniform": "torch.rand(shape, generator=generator(name))",
}


def typed_text(config: AttentionConfig, trace: Trace) -> Snippet:
    """The beginning for a typed text: embeddings, positions and projections, all from the seed."""
    crossed = trace.layers[0].has(MEMORY)
    lines = [*_sizes(config), "", *GENERATOR, *_inputs(config, crossed)]
    if config.init == "identity":
        x2 = "x2" if crossed else "x"
        lines += ["query = x[None]  # [head query_pos d_model]: one head, no projections"]
        lines += [f"key = value = {x2}[None]"]
    else:
        lines += ["", *_projections(config)]
    if POSITIONS[config.positions].bias == "relative":
        heads = config.sizes.n_heads
        lines += [f'bias_table = torch.randn({BUCKETS}, {heads}, generator=generator("bias_table"))  # [bucket head]']
    if SCORES[config.score].parameter:
        alone = f'torch.rand(1, {config.d_model}, generator=generator("w_s"))'
        made = alone if config.init == "identity" else 'draw("w_s", n_heads, d_k)'
        lines += [f"w_s = {made}  # [head d_k]"]
    return Snippet("a typed text, with random weights", tuple(lines))


def matrices(layer: Layer, given: tuple[str, ...]) -> Snippet:
    """The beginning for someone's own matrices: the numbers themselves, or where they lie if they are many."""
    steps = {name: INPUT if name == "x" else name for name in given}
    many = sum(layer[step].numel() for step in steps.values()) > MOST_NUMBERS
    lines = ['given = np.load("attention.npz")  # the numbers of all steps, exported beside this code'] * many
    for name, step in steps.items():
        called, said = "x2" if name == MEMORY else name, f"  # [{' '.join(declared(step).axes)}]"
        if many:
            lines += [f'{called} = torch.from_numpy(given["L0.{step}"]){said}']
        else:
            rows, cut = _beside(name, layer[step])
            lines += literals.matrix(called, rows.tolist(), cut + said)
    if given[0] == "x" and "w_q" not in given and MEMORY in given:
        lines += ["query = x[None]  # [head query_pos d_k]: no projections", "key = value = x2[None]"]
    elif given[0] == "x" and "w_q" not in given:
        lines += ["query = key = value = x[None]"]
    return Snippet("someone's own matrices", tuple(lines))


def _beside(name: str, tensor: Tensor) -> tuple[Tensor, str]:
    """The heads of a tensor as one matrix, and what cuts it into heads again."""
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


def _sizes(config: AttentionConfig) -> list[str]:
    n_heads, d_k, d_v = config.sizes
    if config.init == "identity":
        return [f"seed, d_model = {config.seed}, {config.d_model}"]
    return [f"seed, d_model, n_heads, d_k, d_v = {config.seed}, {config.d_model}, {n_heads}, {d_k}, {d_v}"]


def _inputs(config: AttentionConfig, crossed: bool) -> list[str]:
    """Lines that make embedding, position, x and x2."""
    rows = '[torch.randn(d_model, generator=generator("embedding", {0}, d_model)) for {0} in {1}]'
    way = POSITIONS[config.positions]
    if not crossed:
        lines = [
            f"embedding ={'' if way.adds else ' x ='} torch.stack(  # [query_pos d_model], a row for every token",
            f"    {rows.format('token', 'tokens')}",
            ")",
        ]
        return [*lines, *way.python("len(tokens)", POSITION), "x = embedding + position"] if way.adds else lines
    lines = [
        "def embed(words):  # a row for every token",
        f"    rows = {rows.format('word', 'words')}",
        "    return torch.stack(rows)",
        "",
    ]
    if not way.adds:
        return [
            *lines,
            "embedding = x = embed(tokens)  # [query_pos d_model]",
            "x2 = embed(key_tokens)  # [key_pos d_model]",
        ]
    lines += [f"def {way.name}(count):", *(f"    {line}" for line in [*way.python("count", "rows"), "return rows"]), ""]
    return [
        *lines,
        f"embedding, position = embed(tokens), {way.name}(len(tokens))",
        "x = embedding + position  # [query_pos d_model]",
        f"x2 = embed(key_tokens) + {way.name}(len(key_tokens))  # [key_pos d_model]",
    ]


def _projections(config: AttentionConfig) -> list[str]:
    """Lines that make w_q, w_k, w_v and w_o."""
    (n_heads, d_k, d_v), shared = config.sizes, config.kv_heads
    lines = ["def draw(name, *shape):", f"    return {_DRAWN[config.init]}", ""]
    heads = "    draw(name, d_model, n_heads, d_k).transpose(0, 1) for name in ({})"
    if shared != n_heads:
        lines += [f"n_kv_heads = {shared}  # several heads of queries share one of keys and values"]
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
