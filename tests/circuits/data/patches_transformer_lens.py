"""Activation patching and attribution patching by TransformerLens 4.3.0, of which `patches_transformer_lens.json` has the numbers.

In an environment with TransformerLens: `PYTHONPATH=tests/circuits python tests/circuits/data/patches_transformer_lens.py` writes the file again.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from formula_models import BASE_IDS, DISTRACTOR, OTHER_IDS, TARGET, model, tokenizer

FILE = Path(__file__).with_suffix(".json")
FAMILIES = ("GPT-2", "Llama")


def _add(z: torch.Tensor, hook: Any, shift: torch.Tensor) -> torch.Tensor:
    return z + shift


def main() -> None:
    """Writes the logit difference with each head patched, [layer head] by model and step, and the estimate for the head output."""
    from transformer_lens import patching
    from transformer_lens.model_bridge import TransformerBridge

    sweeps = {
        "head_output": patching.get_act_patch_attn_head_out_all_pos,
        "query": patching.get_act_patch_attn_head_q_all_pos,
        "key": patching.get_act_patch_attn_head_k_all_pos,
        "value": patching.get_act_patch_attn_head_v_all_pos,
        "weights": patching.get_act_patch_attn_head_pattern_all_pos,
    }

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return logits[0, -1, TARGET] - logits[0, -1, DISTRACTOR]

    numbers: dict[str, Any] = {}
    for name in FAMILIES:
        with TemporaryDirectory() as folder:
            model(name).save_pretrained(folder)
            tokenizer().save_pretrained(folder)
            bridge = TransformerBridge.boot_transformers(folder, dtype=torch.float32)
        clean, other = torch.tensor([BASE_IDS]), torch.tensor([OTHER_IDS])
        _, other_cache = bridge.run_with_cache(other)
        _, cache = bridge.run_with_cache(clean)
        names = [f"blocks.{layer}.attn.hook_z" for layer in range(3)]
        shifts = {hook: torch.zeros_like(cache[hook], requires_grad=True) for hook in names}
        hooks = [(hook, partial(_add, shift=shift)) for hook, shift in shifts.items()]
        with torch.enable_grad(), bridge.hooks(fwd_hooks=hooks):
            value = metric(bridge(clean))
            value.backward()
        numbers[name] = {"baseline": float(value.detach())}
        for step, sweep in sweeps.items():
            values = sweep(bridge, clean, other_cache, metric)
            numbers[name][step] = [[round(float(cell), 7) for cell in row] for row in values]
        estimates = []
        for hook, shift in shifts.items():
            product = (other_cache[hook] - cache[hook]) * shift.grad
            heads = product.reshape(*product.shape[:2], 4, -1)
            estimates.append([round(float(cell), 7) for cell in heads.sum((0, 1, 3))])
        numbers[name]["estimate"] = estimates
    FILE.write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
