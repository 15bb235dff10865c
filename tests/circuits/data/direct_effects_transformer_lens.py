"""Direct effects of heads by TransformerLens 4.3.0, of which `direct_effects_transformer_lens.json` has the numbers.

In an environment with TransformerLens: `PYTHONPATH=tests/circuits python tests/circuits/data/direct_effects_transformer_lens.py` writes the file again. The models are
those of `tests/models/formula_models.py`. Norms are folded in, as TransformerLens does by default; biases of values are not, since it
would count what a head writes with its bias as no head's.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from formula_models import BASE_IDS, DISTRACTOR, MODELS, TARGET, model, tokenizer

FILE = Path(__file__).with_suffix(".json")


def main() -> None:
    """Writes what each head adds to the logit difference at the last position, [layer·head], by model."""
    from transformer_lens.model_bridge import TransformerBridge

    numbers: dict[str, list[float]] = {}
    for name in MODELS:
        with TemporaryDirectory() as folder:
            model(name).save_pretrained(folder)
            tokenizer().save_pretrained(folder)
            bridge = TransformerBridge.boot_transformers(folder, dtype=torch.float32)
        bridge.process_weights(fold_value_biases=False)
        bridge.enable_compatibility_mode(no_processing=True)
        _, cache = bridge.run_with_cache(torch.tensor([BASE_IDS]))
        written = cache.stack_head_results(layer=-1, pos_slice=-1, apply_ln=True)[:, 0]
        numbers[name] = (written @ (bridge.W_U[:, TARGET] - bridge.W_U[:, DISTRACTOR])).tolist()
    FILE.write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
