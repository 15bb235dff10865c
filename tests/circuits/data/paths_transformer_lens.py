"""Direct path patching by TransformerLens 4.3.0, of which `paths_transformer_lens.json` has the numbers.

In an environment with TransformerLens: `PYTHONPATH=tests/circuits python tests/circuits/data/paths_transformer_lens.py` writes the file again.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from formula_models import BASE_IDS, DISTRACTOR, MODELS, OTHER_IDS, TARGET, model, tokenizer

FILE = Path(__file__).with_suffix(".json")


def main() -> None:
    """Writes the metric with each path patched, [source_layer source_head target_layer target_head], by model and receiver."""
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.patching import get_act_patch_direct_path_all_sources

    numbers: dict[str, Any] = {}
    for name in MODELS:
        with TemporaryDirectory() as folder:
            model(name).save_pretrained(folder)
            tokenizer().save_pretrained(folder)
            bridge = TransformerBridge.boot_transformers(folder, dtype=torch.float32)
        tokens, other = torch.tensor([BASE_IDS]), torch.tensor([OTHER_IDS])
        logits, cache = bridge.run_with_cache(tokens)
        _, other_cache = bridge.run_with_cache(other)

        def metric(logits: torch.Tensor) -> torch.Tensor:
            return logits[0, -1, TARGET] - logits[0, -1, DISTRACTOR]

        numbers[name] = {"baseline": float(metric(logits))}
        for component, receiver in (("q", "query"), ("k", "key"), ("v", "value")):
            if component != "q" and "shared" in name:  # TransformerLens patches no shared key or value
                continue
            values = get_act_patch_direct_path_all_sources(bridge, tokens, other_cache, cache, metric, component, verbose=False)  # fmt: skip
            numbers[name][receiver] = [round(float(value), 7) for value in values.flatten()]
    FILE.write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
