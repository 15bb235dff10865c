"""The relevance of the input tokens of a model for one logit, from a forward and a backward pass: AttnLRP, and attention × gradient.

The rules of AttnLRP are hooks on the model: its outputs stay the same, and gradient × input becomes the relevance.

Source: Achtibat et al. 2024, "AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers", equations 7, 9 and 13; as
gradient × input: Arras et al. 2025, "Close Look at Decomposition-based XAI-Methods for Transformer Language Models".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from attention.base.errors import ConfigError, ModelError
from attention.models import forward_pass, lm_head, recorder, running
from attention.models.attention_call import ModelCall
from attention.models.layer_sites import is_norm

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

_MAX_BYTES = 2**33  # of one pass with gradients, if nothing else is given
_MAX_SECONDS = 60.0  # of one pass with gradients, during which no other thread can run the model

_NORM_TOLERANCE = 1e-4  # relative to the largest number of a norm's output
_STABILIZER = 1e-10  # added to the input of an activation before its output is divided by it, as in the authors' code
_SUM_TOLERANCE = 5e-4  # of the sum of all relevance against the logit, relative to the largest part; measured: 1e-6
_GATED = (  # projections of a gated MLP, and the projection of their product
    (("gate_proj", "up_proj"), "down_proj"),
    (("gate_up_proj",), "down_proj"),
    (("Wi",), "Wo"),
)

_MAPS_COMPUTED = 4  # maps of all heads of one layer while it is computed; each layer keeps one for the backward pass
_RESULT_MAPS = 2  # of each layer: attention × gradient, and what it adds up to
_KEPT_PER_WIDTH = 2  # numbers that a projection keeps per token, input feature and output feature; measured: 1.4
_BYTES_PER_NUMBER = 4
_PASSES = 3  # forward passes that take as long as a forward and a backward pass


class _TokenRelevance(NamedTuple):
    """The relevance for one logit, by AttnLRP: the tokens [query_pos] and the other parts add up to it; heads are [head] by layer of the trace."""

    logit: float
    tokens: Tensor
    other_parts: tuple[tuple[str, float], ...]
    heads: tuple[Tensor, ...]


def token_relevance(
    loaded: LoadedModel, model_inputs: dict[str, Tensor], position: int, target: int, max_bytes: int = _MAX_BYTES
) -> _TokenRelevance:
    """The relevance of every input token for the logit of the target at a position, by AttnLRP.

    Raises:
        ConfigError: the pass would take more than `max_bytes` or too long, or the model computes in half precision.
        ModelError: the model has an operation without a rule, predicts no tokens, or reads two texts.
    """
    _check(loaded, model_inputs, max_bytes, "AttnLRP")
    ledger, embeddings = _Ledger(), _Embeddings(len(lm_head.predicted_text_ids(model_inputs)))
    with loaded.session(), _hook_rules(loaded.model, ledger), embeddings.replaced(loaded.model):
        with recorder.wrapping_attention(ledger.attend):
            output = _logit(loaded, model_inputs, position, target)
        gradients = _gradients(loaded, output, [embeddings.tokens, *embeddings.others])
    logit = float(output.detach())
    tokens = _relevance(embeddings.tokens, gradients[0])
    others = torch.zeros_like(tokens)
    for tensor, gradient in zip(embeddings.others, gradients[1:], strict=True):
        others += _relevance(tensor, gradient)
    parts = [*tokens.tolist(), *others.tolist(), ledger.biases, ledger.softmax]
    other_parts = {
        "other embeddings": float(others.sum()), "biases": ledger.biases, "softmax": ledger.softmax, "rounding": logit - sum(parts)
    }  # fmt: skip
    # Where an operation has no rule, its relevance is counted twice or lost, and the sum is another.
    if not abs(other_parts["rounding"]) <= _SUM_TOLERANCE * max(abs(logit), *map(abs, parts)) or len(
        ledger.heads
    ) != len(loaded.sites):
        raise ModelError(
            f"AttnLRP needs a rule for every operation, and {loaded.name} has one without: the relevance of all parts adds up to "
            f"{sum(parts):.4g}, the logit is {logit:.4g}. Choose another method or model."
        )
    heads = tuple(ledger.heads[loaded.layer_indices.index(layer)] for layer in loaded.sites_by_layer)
    named = tuple((name, value) for name, value in other_parts.items() if value or name in ("softmax", "rounding"))
    return _TokenRelevance(logit, tokens, named, heads)


def gradient_maps(
    loaded: LoadedModel, model_inputs: dict[str, Tensor], position: int, target: int, max_bytes: int = _MAX_BYTES
) -> tuple[float, tuple[Tensor, ...]]:
    """The logit of the target at a position; and attention × gradient of every layer for it: positive parts, mean over heads.

    Source: Chefer, Gur and Wolf 2021, "Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder
    Transformers", equation 5.

    Raises:
        ConfigError: the pass would take more than `max_bytes` or too long, or the model computes in half precision.
        ModelError: the model predicts no tokens, reads two texts, or gives no weights with a gradient.
    """
    _check(loaded, model_inputs, max_bytes, "Attention × gradient")
    maps: dict[int, Tensor] = {}
    n_calls, embeddings = 0, _Embeddings(len(lm_head.predicted_text_ids(model_inputs)))

    def attend(call: ModelCall) -> tuple[Tensor, Tensor | None]:
        nonlocal n_calls
        index, n_calls = n_calls, n_calls + 1
        output, weights = call.run_eager()
        if weights is not None and weights.requires_grad:
            detached = weights.detach()

            def combine(gradient: Tensor) -> None:
                maps[index] = (detached * gradient).clamp(min=0)[0].mean(dim=0).to("cpu", torch.float32)

            _hook_gradient(weights, combine)
        return output, weights

    with loaded.session(), embeddings.replaced(loaded.model):
        with recorder.wrapping_attention(attend):
            logit = _logit(loaded, model_inputs, position, target)
        _gradients(loaded, logit, [embeddings.tokens])
    if len(maps) != len(loaded.sites):
        raise ModelError(
            f"Attention × gradient needs the gradient of all weights, and {loaded.name} gives those of {len(maps)} of "
            f"{len(loaded.sites)} layers: choose another method or model."
        )
    return float(logit.detach()), tuple(maps[loaded.layer_indices.index(layer)] for layer in loaded.sites_by_layer)


def _count_bytes(loaded: LoadedModel, n_tokens: int) -> int:
    """The bytes of a pass with gradients: the weights of all heads, the activations of all layers, and the result."""
    heads = [site.n_heads for site in loaded.sites]
    maps = (sum(heads) + _RESULT_MAPS * len(heads) + _MAPS_COMPUTED * max(heads, default=0)) * n_tokens
    width = sum(
        weight.shape[0] + weight.shape[1]
        for module in loaded.model.modules()
        if isinstance(weight := getattr(module, "weight", None), Tensor) and weight.ndim == 2
        if not isinstance(module, nn.Embedding) and module is not loaded.model.get_output_embeddings()
    )
    logits = lm_head.vocabulary_size(loaded) * (2 * n_tokens if loaded.in_memory else 2)
    return ((maps + _KEPT_PER_WIDTH * width) * n_tokens + logits) * _BYTES_PER_NUMBER


def estimate_seconds(loaded: LoadedModel, n_tokens: int) -> float:
    """The estimated seconds of a forward and a backward pass."""
    return _PASSES * forward_pass.estimate_seconds(loaded, n_tokens)


def _check(loaded: LoadedModel, model_inputs: Mapping[str, Tensor], max_bytes: int, method: str) -> None:
    if not loaded.sites:
        raise ModelError(
            f"{method} needs attention that can be recorded, and that of {loaded.name} cannot: choose a model of another family."
        )
    if not lm_head.vocabulary_size(loaded):
        raise ModelError(
            f"{method} starts from the logit of a token, and {loaded.name} predicts no tokens: choose a model with a language-model head."
        )
    if loaded.is_encoder_decoder:
        raise ModelError(
            f"{method} follows one text here, and {loaded.name} reads two (encoder and decoder): choose a model of one text."
        )
    if loaded.model.dtype != torch.float32:
        dtype = str(loaded.model.dtype).removeprefix("torch.")
        raise ConfigError(
            f"{method} is computed in float32; {loaded.name} computes in {dtype}: load the model in float32."
        )
    loaded.check_text_only(method)
    n_tokens = len(lm_head.predicted_text_ids(model_inputs))
    if (needed := _count_bytes(loaded, n_tokens)) > max_bytes:
        raise ConfigError(
            f"{method} may take at most {max_bytes / 2**20:,.0f} MB; the gradients of {n_tokens:,} tokens in {len(loaded.sites)} layers "
            f"take {needed / 2**20:,.0f} MB: choose a shorter text or a smaller model."
        )
    if (seconds := estimate_seconds(loaded, n_tokens)) > _MAX_SECONDS and not loaded.in_memory:
        raise ConfigError(
            f"{method} may take at most {_MAX_SECONDS:.0f} s here; {n_tokens:,} tokens take about {seconds:,.0f} s: "
            "choose a shorter text or a smaller model."
        )


class _Embeddings:
    """The outputs of all embeddings as the beginning of the graph of gradients: `tokens` [1 query_pos d_model], and others, such as positions."""

    def __init__(self, n_tokens: int) -> None:
        self.n_tokens = n_tokens
        self.tokens: Tensor = torch.empty(0)
        self.others: list[Tensor] = []

    @contextmanager
    def replaced(self, model: Any) -> Iterator[None]:
        """A context in which the graph begins at the embeddings; hold the lock of the model."""
        table = model.get_input_embeddings()
        with ExitStack() as stack:
            for module in model.modules():
                if module is table or isinstance(module, nn.Embedding):
                    hook = self._begin_tokens if module is table else self._begin_other
                    stack.callback(module.register_forward_hook(hook).remove)
            yield

    def _begin_tokens(self, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        self.tokens = output.detach().requires_grad_()
        return self.tokens.clone()

    def _begin_other(self, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        if output.shape[:-1].numel() != self.n_tokens:
            return output  # such as a table of relative positions
        self.others.append(output.detach().requires_grad_())
        return self.others[-1].clone()


def _logit(loaded: LoadedModel, model_inputs: dict[str, Tensor], position: int, target: int) -> Tensor:
    with lm_head.logits_at((position,)):
        output = running.run(loaded, model_inputs, gradients=True)
    logits = output.get("logits", output.get("prediction_logits"))
    row = 0 if logits.shape[1] == 1 else position
    result: Tensor = logits[0, row, target]
    return result


def _gradients(loaded: LoadedModel, logit: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """The gradient of the logit by each of the inputs; 0 where it does not depend on one."""
    try:
        return list(torch.autograd.grad(logit, inputs, materialize_grads=True))
    except RuntimeError as error:
        message = " ".join(str(error).split())[:150]
        raise ModelError(
            f"{loaded.name} should have gradients, and fails with “{message}”: choose another model."
        ) from error


def _relevance(tensor: Tensor, gradient: Tensor) -> Tensor:
    """Gradient × input of each position, [query_pos]."""
    return (tensor.detach().double() * gradient.double()).sum(-1).reshape(-1).cpu()


class _Ledger:
    """The relevance that does not reach the input tokens, collected during the backward pass."""

    def __init__(self) -> None:
        self.biases = 0.0  # of linear layers and norms
        self.softmax = 0.0  # what the softmax rule keeps in its bias term, of all heads
        self.heads: dict[int, Tensor] = {}  # of each head's output in each attention call, [head]
        self.n_calls = 0

    def attend(self, call: ModelCall) -> tuple[Tensor, Tensor | None]:
        """One attention call: both matrix products share their relevance equally between their factors."""
        if call.attention.cap is not None:
            raise ModelError(
                "AttnLRP needs a rule for every operation, and the softcap of this model's scores has none: choose another method or model."
            )
        index, self.n_calls = self.n_calls, self.n_calls + 1
        divisors = 4, 4, 2
        inputs = [*map(_divide_gradient, (call.query, call.key, call.value), divisors)]
        for tensor, divisor in zip(inputs, divisors, strict=True):
            _hook_gradient(tensor, partial(self._pass_on, tensor.detach(), divisor))
        output, weights = replace(call, query=inputs[0], key=inputs[1], value=inputs[2]).run_eager()
        _hook_gradient(output, partial(self._receive, index, output.detach()))
        return output, weights

    def _pass_on(self, x: Tensor, divisor: int, gradient: Tensor) -> None:
        self.softmax -= _sum(x * gradient) / divisor

    def _receive(self, index: int, output: Tensor, gradient: Tensor) -> None:
        relevance = (output * gradient).double().sum(dim=(0, 1, 3)).cpu()
        self.heads[index] = relevance
        self.softmax += float(relevance.sum())

    def add_bias(self, bias: Tensor, gradient: Tensor) -> None:
        self.biases += _sum(bias * gradient)


def _hook_rules(model: nn.Module, ledger: _Ledger) -> ExitStack:
    """A context in which the modules of a model follow the rules; hold its lock. Attention calls need `_Ledger.attend` in addition."""
    linear_types = _linear_types()
    with ExitStack() as stack:
        for module in model.modules():
            hook: Any = None
            if is_norm(module):
                hook = partial(_freeze_norm, ledger)
            elif isinstance(module, _activation_types()):
                hook = _keep_ratio
            elif isinstance(module, linear_types) and getattr(module, "bias", None) is not None:
                hook = partial(_note_bias, ledger)
            if hook is not None:
                stack.callback(module.register_forward_hook(hook).remove)
            if (product := _product_of_gate(module)) is not None:
                stack.callback(product.register_forward_pre_hook(_halve_product).remove)
        return stack.pop_all()


def _freeze_norm(ledger: _Ledger, module: nn.Module, args: tuple[Any, ...], output: Any) -> Tensor:
    """The identity rule for norms: the output with the norm's scale as a constant."""
    if len(args) == 1 and isinstance(args[0], Tensor) and isinstance(output, Tensor) and args[0].shape == output.shape:
        x: Tensor = args[0]
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        epsilon = next((getattr(module, name) for name in ("variance_epsilon", "eps") if hasattr(module, name)), None)
        scales = [1.0] if weight is None else [weight.detach(), 1 + weight.detach()]
        without_mean = x - x.mean(-1, keepdim=True)
        for centered in (without_mean,) if isinstance(module, nn.LayerNorm) else (x, without_mean):
            deviation = (centered.detach().pow(2).mean(-1, keepdim=True) + (epsilon or 0)).sqrt()
            for scale in scales:
                result = centered / deviation * scale
                result = result if bias is None else result + bias.detach()
                if _is_close(result, output):
                    if bias is not None and result.requires_grad:
                        _hook_gradient(result, partial(ledger.add_bias, bias.detach()))
                    return result
    raise ModelError(
        f"AttnLRP needs a rule for every operation, and {type(module).__name__} is neither a LayerNorm nor an RMSNorm: "
        "choose another method or model."
    )


def _keep_ratio(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    """The identity rule for element-wise functions: all relevance of the output goes to the input."""
    if not args or not isinstance(args[0], Tensor) or not isinstance(output, Tensor):
        return None
    ratio = output.detach() / (args[0].detach() + _STABILIZER)
    return _scale_gradient(args[0], output.detach(), ratio)


def _note_bias(ledger: _Ledger, module: Any, _: tuple[Any, ...], output: Any) -> None:
    if isinstance(output, Tensor) and output.requires_grad:
        _hook_gradient(output, partial(ledger.add_bias, module.bias.detach()))


def _halve_product(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The uniform rule for a product of two tensors: each gets half of the relevance."""
    return _divide_gradient(args[0], 2), *args[1:]


def _product_of_gate(module: nn.Module) -> nn.Module | None:
    """The projection of the product in a gated MLP; None for other modules."""
    children = dict(module.named_children())
    for factors, product in _GATED:
        if product in children and all(name in children for name in factors):
            width = sum(_width(children[name], 0) for name in factors)
            return children[product] if width == 2 * _width(children[product], 1) else None
    return None


def _width(linear: nn.Module, axis: int) -> int:
    weight = getattr(linear, "weight", None)
    return int(weight.shape[axis]) if isinstance(weight, Tensor) else 0


class _Scaled(torch.autograd.Function):
    """Returns `output`; its gradient is multiplied by `factor` on its way to `x`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, output: Tensor, factor: Tensor | float) -> Tensor:
        ctx.factor = factor
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.factor, None, None


def _divide_gradient(x: Tensor, divisor: int) -> Tensor:
    return _scale_gradient(x, x.detach(), 1 / divisor)


def _scale_gradient(x: Tensor, output: Tensor, factor: Tensor | float) -> Tensor:
    result: Tensor = _Scaled.apply(x, output, factor)  # type: ignore[no-untyped-call]  # torch has no annotation
    return result


def _hook_gradient(tensor: Tensor, receive: Callable[[Tensor], None]) -> None:
    tensor.register_hook(receive)


@cache
def _activation_types() -> tuple[type, ...]:
    """Classes of element-wise functions: those of torch, and those that transformers finds by the names in configs."""
    from transformers import activations

    types = {entry[0] if isinstance(entry, tuple) else entry for entry in dict.values(activations.ACT2CLS)}
    classes = {entry for entry in types if isinstance(entry, type)}
    return tuple(classes | {nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ReLU6, nn.Mish})


@cache
def _linear_types() -> tuple[type, ...]:
    from transformers.pytorch_utils import Conv1D

    return nn.Linear, Conv1D


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    difference = (actual.detach() - expected.detach()).abs().max()
    return bool(difference <= _NORM_TOLERANCE * expected.detach().abs().max().clamp_min(1e-6))


def _sum(tensor: Tensor) -> float:
    return float(tensor.detach().double().sum())
