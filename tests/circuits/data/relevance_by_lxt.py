"""Makes relevance_by_lxt.json: AttnLRP relevance by the authors' package, and attention × gradient by the authors' functions.

Run it in an environment of its own, from the root of the project (lxt 2.1 supports this transformers, and not the project's):

    python3 -m venv lxt
    lxt/bin/pip install torch==2.13.0 transformers==4.52.4 lxt==2.1
    lxt/bin/python tests/circuits/data/relevance_by_lxt.py [folder of SmolLM2-135M-Instruct]

`build` gives the same weights in every version of transformers, so that the tests rebuild the models. A model that is a folder is
compared only where that folder exists.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
import zlib
from pathlib import Path
from typing import Any

import torch

IDS = [5, 17, 301, 42, 17, 301, 9, 88, 5]
POSITION, TARGET = 7, 42
HARBOR = "The quiet harbor watched the copper moon. The quiet harbor watched the"
_WIDE = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
_GROUPED = _WIDE | {"num_key_value_heads": 2}
MODELS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "Llama": ("llama", "LlamaConfig", "LlamaForCausalLM", _GROUPED),
    "Qwen 2": ("qwen2", "Qwen2Config", "Qwen2ForCausalLM", _GROUPED),
    "Qwen 3": ("qwen3", "Qwen3Config", "Qwen3ForCausalLM", _GROUPED | {"head_dim": 8}),
    "Gemma 3": ("gemma3", "Gemma3TextConfig", "Gemma3ForCausalLM", _GROUPED | {"head_dim": 8, "sliding_window": 64}),
    "GPT-2": ("gpt2", "GPT2Config", "GPT2LMHeadModel", {"vocab_size": 400, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}),
    "BERT": ("bert", "BertConfig", "BertForMaskedLM", _WIDE),
}  # fmt: skip
"""The module of transformers, the class of the config, the class of the model, and the values of the config."""


def build(name: str) -> Any:
    """A tiny model whose weights depend on nothing but the names of its parameters."""
    import transformers

    _, config, model_class, values = MODELS[name]
    model = getattr(transformers, model_class)._from_config(
        getattr(transformers, config)(**values), attn_implementation="eager"
    )
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(parameter_name.encode()))
            noise = 0.2 * torch.randn(parameter.shape, generator=generator)
            is_scale = parameter_name.endswith("weight") and parameter.ndim == 1 and name != "Gemma 3"
            parameter.copy_(1 + noise if is_scale else noise)
    return model.eval()


def _load(folder: str) -> Any:
    """The model of a folder whose config.json may have the format of transformers 5, where the base of RoPE has another place."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    rope = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")).get("rope_parameters", {})
    config.rope_theta = rope.get("rope_theta", config.rope_theta)
    return AutoModelForCausalLM.from_pretrained(
        folder, config=config, attn_implementation="eager", torch_dtype=torch.float32
    )


def _patch(module_name: str) -> None:
    """Applies the rules of lxt to a module of transformers. lxt imports torchvision for a model that is not used here."""
    module = importlib.import_module(f"transformers.models.{module_name}.modeling_{module_name}")
    for missing in ("torchvision", "torchvision.models", "torchvision.models.vision_transformer"):
        sys.modules.setdefault(missing, types.ModuleType(missing))
    transformer = sys.modules["torchvision.models.vision_transformer"]
    transformer.nn = torch.nn
    sys.modules["torchvision.models"].vision_transformer = transformer
    from lxt.efficient import monkey_patch

    monkey_patch(module)


def _by_lxt(model: Any, ids: list[int], position: int, target: int) -> dict[str, Any]:
    """The relevance of each token, as the README of lxt computes it: gradient × input of the embeddings."""
    embeddings = model.get_input_embeddings()(torch.tensor([ids])).detach().requires_grad_()
    logit = model(inputs_embeds=embeddings).logits[0, position, target]
    logit.backward()
    return {"logit": float(logit), "relevance": (embeddings * embeddings.grad).sum(-1)[0].tolist()}


def _by_chefer(model: Any, ids: list[int], position: int, target: int) -> list[list[float]]:
    """R after the last layer by the rules 5 and 6 of Chefer, Gur and Wolf 2021, as their class `Generator` applies them."""
    output = model(torch.tensor([ids]), output_attentions=True)
    for weights in output.attentions:
        weights.retain_grad()
    output.logits[0, position, target].backward()
    relevance = torch.eye(len(ids))
    for weights in output.attentions:
        combined = (weights.grad * weights.detach())[0].clamp(min=0).mean(dim=0)
        relevance = relevance + torch.matmul(combined, relevance)
    return relevance.tolist()


def _main(folders: list[str]) -> None:
    result: dict[str, Any] = {}
    for name in MODELS:
        result[name] = {"chefer": _by_chefer(build(name), IDS, POSITION, TARGET)}
    for folder in folders:
        from transformers import PreTrainedTokenizerFast

        tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
        model = _load(folder)
        ids = tokenizer(HARBOR)["input_ids"]
        entry = {"ids": ids, "position": len(ids) - 1, "target": tokenizer(" copper")["input_ids"][0]}
        result[Path(folder).name] = entry | {"chefer": _by_chefer(model, ids, entry["position"], entry["target"])}
    for name, (module_name, *_) in MODELS.items():
        _patch(module_name)
        result[name] |= _by_lxt(build(name), IDS, POSITION, TARGET)
    for folder in folders:
        model = _load(folder)
        entry = result[Path(folder).name]
        entry |= _by_lxt(model, entry["ids"], entry["position"], entry["target"])
    text = json.dumps(result, indent=None, separators=(", ", ": "))
    Path(__file__).with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
