"""What a head writes, why it looks where it does, and which heads and paths matter: sums over parts of a model, written out.

from attention import Model, circuits
trace = Model("SmolLM2-135M-Instruct", "The quiet harbor watched the copper moon. The quiet harbor watched the").trace()
circuits.writes(trace, 23, 1, target=" copper")  # what each cell adds to the logit of " copper", [query_pos key_pos]
circuits.writes(trace, target=" copper")  # the same of all heads at the last query, [layer head key_pos]
circuits.score_terms(trace, 18, 6, q=12, k=5)    # why query 12 looks at key 5: terms [query_part key_part]
circuits.copied_tokens(trace, 23, 1, token=" copper").raised  # the tokens that the head raises when it reads " copper"
circuits.copying_score(trace)                    # of every head, [layer head]
circuits.which(model, target=" copper")          # each head ablated, or patched from another run, in turn
circuits.where(model, target=" copper")          # the residual stream after each layer, patched at each position in turn
circuits.relevance(trace, target=" copper")      # how much each token of the text matters for it, by AttnLRP
circuits.paths(trace, other, target=" copper")  # how much each path from a part of the model to the logits matters, see PathPatching
"""

from __future__ import annotations

from attention.circuits.copying import (
    CopiedTokens,
    CopyingScores,
    OVSpectrum,
    QKSpectrum,
    TokenEffect,
    copied_tokens,
    copying_score,
    ov_spectrum,
    qk_spectra,
    qk_spectrum,
)
from attention.circuits.direct_effects import PartSum, ScoreTerms, head_logits, logit_parts, score_terms, writes
from attention.circuits.path_patching import (
    PathEnd,
    PathPatching,
    PathProgress,
    PathRequest,
    estimated_seconds_of_paths,
    paths,
)
from attention.circuits.positions import PositionSweep, where
from attention.circuits.prompts import EXAMPLES, Prompt, PromptSet, PromptSweep, over_prompts, sweep_prompts
from attention.circuits.sweep import attribution, patch_aligned, together, which
from attention.circuits.token_relevance import Relevance, relevance

__all__ = [
    "EXAMPLES",
    "CopiedTokens",
    "CopyingScores",
    "OVSpectrum",
    "PartSum",
    "PathEnd",
    "PathPatching",
    "PathProgress",
    "PathRequest",
    "PositionSweep",
    "Prompt",
    "PromptSet",
    "PromptSweep",
    "QKSpectrum",
    "Relevance",
    "ScoreTerms",
    "TokenEffect",
    "attribution",
    "copied_tokens",
    "copying_score",
    "estimated_seconds_of_paths",
    "head_logits",
    "logit_parts",
    "ov_spectrum",
    "over_prompts",
    "patch_aligned",
    "paths",
    "qk_spectra",
    "qk_spectrum",
    "relevance",
    "score_terms",
    "sweep_prompts",
    "together",
    "where",
    "which",
    "writes",
]
