"""The beginning of the copied program for each notebook: the notebook's own draws, in its order.

`recipes` computes the same numbers for the app.
"""

from __future__ import annotations

from attention.formula.names import POSITION
from attention.formula.positions import POSITIONS
from attention.program import literals
from attention.program.literals import Snippet

SENTENCES = ("I wonder what will come next!", "This is a basic example paragraph.", "Hello, what is a basic split?")
"""The input of the fourth notebook."""
_OCEANIC = (
    "generator = torch.Generator().manual_seed(123)  # the draws of torch after manual_seed(123)",
    "vocabulary = sorted(set(tokens))",
    "table = torch.randn(len(vocabulary), 64, generator=generator)  # drawn like nn.Embedding",
    "embedding = x = table[[vocabulary.index(token) for token in tokens]]  # [query_pos d_model]",
)
_SAME = ("query = key = value = x[None]  # [head query_pos d_model]: one head, no projections",)
_SEED_42 = "generator = torch.Generator().manual_seed(42)  # the draws of torch after manual_seed(42)"
_LINEAR = (
    "",
    "def linear(d_in, d_out):  # a weight drawn like nn.Linear, transposed",
    "    weight = torch.empty(d_out, d_in)",
    "    return torch.nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator).T",
    "",
)
_X42 = (_SEED_42, "x = torch.randn(4, 8, 2, generator=generator)[{sequence}]  # [query_pos d_model]")

_LINES: dict[str, tuple[str, ...]] = {
    "heatmaps-unscaled": (*_OCEANIC, *_SAME),
    "heatmaps-scaled": (*_OCEANIC, *_SAME),
    "heatmaps-self-attention": (
        *_OCEANIC,
        "# [head d_model d_k] and [head d_model d_v]",
        "w_q, w_k, w_v = (torch.rand(64, size, generator=generator)[None] for size in (32, 32, 48))",
    ),
    "heatmaps-multi-head": (
        *_OCEANIC,
        "torch.rand(64, 32 + 32 + 48, generator=generator)  # the notebook draws its single head first",
        "# [head d_model d_k] and [head d_model d_v]",
        "w_q, w_k, w_v = (torch.rand(4, size, 64, generator=generator).mT for size in (32, 32, 48))",
    ),
    "averaging-trick": (
        *_X42,
        "value = x[None]  # [head key_pos d_model]: one head, no projections",
        "scores = torch.zeros(1, len(tokens), len(tokens))  # [head query_pos key_pos]",
    ),
    "averaging-self-attention": (
        _SEED_42,
        "torch.randn(4, 8, 2, generator=generator)  # the notebook draws the x of its averages first",
        "x = torch.randn(4, 8, 32, generator=generator)[{sequence}]  # [query_pos d_model]",
        *_LINEAR,
        "# [head d_model d_k], the key first, as in the notebook",
        "w_k, w_q, w_v = (linear(32, 16)[None] for _ in range(3))",
    ),
    "numpy": (
        "draws = np.random.RandomState(42)  # the draws of numpy after np.random.seed(42)",
        "# [head d_model d_k], integers from 0 to 2",
        "w_q, w_k, w_v = (torch.from_numpy(draws.randint(3, size=(1, 3, 3))).double() for _ in range(3))",
        "embedding = x = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]).double()",
    ),
    "multi-head": (
        _SEED_42,
        "{sentences}",
        'vocabulary = sorted({{word for sentence in sentences for word in sentence.split(" ")}})',
        "d_model = 8",
        "table = torch.randn(len(vocabulary), d_model, generator=generator)  # drawn like nn.Embedding",
        "embedding = table[[vocabulary.index(token) for token in tokens]]  # [query_pos d_model]",
        *POSITIONS["sinusoidal"].python("len(tokens)", POSITION),
        "x = embedding + position",
        *_LINEAR,
        "# [head d_model d_k]: head h has the columns 2h and 2h + 1",
        "w_q, w_k, w_v = (linear(8, 8).reshape(8, 4, 2).transpose(0, 1) for _ in range(3))",
        "w_o = linear(8, 8).reshape(4, 2, 8)  # [head d_v d_model]",
    ),
    "self-attention-class": (
        _SEED_42,
        *_LINEAR,
        "w_q, w_k, w_v = (linear(2, 2)[None] for _ in range(3))  # [head d_model d_k]",
        "x = torch.tensor([[1.16, 0.23], [0.57, 1.36], [4.41, -2.16]])  # [query_pos d_model]",
    ),
}


def snippet(name: str, title: str, sequence: int) -> Snippet:
    """The beginning for the notebook `name`, which has this title, and one of its sequences."""
    cleaned = [literals.text(sentence.lower().rstrip("!.?")) for sentence in SENTENCES]
    assignment = "\n".join(literals.wrap_items("sentences = [", cleaned, "]"))
    lines = "\n".join(_LINES[name]).format(sequence=sequence, sentences=assignment).split("\n")
    title = title.replace("ᵀ", "^T")  # the program is ASCII only
    about = f'the notebook "{title}"' + (f", sequence {sequence}" if sequence else "")
    return Snippet(about, tuple(lines))
