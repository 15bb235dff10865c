"""Where a call stands: the line of the user's code, and the path of the module that runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

_TORCH, _HERE = str(Path(torch.__file__).parent), str(Path(__file__).parent)
_WRAPPERS = ("_orig_mod", "_original_component", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_PARTS = (nn.Softmax, nn.Dropout, nn.Identity, nn.Linear)  # parts of a module that attends


def line_of_code() -> str:
    """The line of the user's code that runs now, such as "model.py:31"; never a path of the machine."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, _HERE)):
            is_cell = name.startswith("<") or "ipykernel" in name
            return f"{'a cell' if is_cell else Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown"


class Modules:
    """The modules that run in this thread, with their paths.

    Attributes:
        running: the modules that have begun and not ended, the outermost first, each with its path and its first tensor.
        output: what the last module returned that ran in no other.
        on_enter: is called with each module that begins.
        on_leave: is called with each module that ends, with the arguments of a hook.
    """

    def __init__(self, root: nn.Module | None) -> None:
        self.output: Any = None
        self.on_enter: Callable[[nn.Module], object] = lambda _: None
        self.on_leave: Callable[..., object] = lambda *_: None
        self.running: list[tuple[str, Tensor | None]] = []
        self._thread = threading.get_ident()
        self._paths: dict[int, str] = {}
        self._modules: list[nn.Module] = []  # so that no other module gets the id of one
        if root is not None:
            self._name(root)

    @property
    def path(self) -> str:
        """The path of the innermost module that is more than a part of another."""
        return next((path for path, _ in reversed(self.running) if path), "")

    @contextmanager
    def following(self) -> Iterator[None]:
        """A context in which modules are followed."""
        with ExitStack() as stack:
            before = hooks.register_module_forward_pre_hook(self._enter)
            stack.callback(before.remove)
            after = hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
            stack.callback(after.remove)
            yield

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if threading.get_ident() != self._thread:
            return
        if id(module) not in self._paths:  # the first module of code in a context
            self._name(module)
        path = "" if isinstance(module, _PARTS) else self._paths[id(module)]
        self.running.append((path, next((each for each in args if isinstance(each, Tensor)), None)))
        self.on_enter(module)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        if threading.get_ident() == self._thread and self.running:
            self.on_leave(module, args, *rest)
            self.running.pop()
            if not self.running and rest:
                self.output = rest[-1]

    def _name(self, root: nn.Module) -> None:
        kind = type(root).__name__
        for full_path, module in root.named_modules():
            path = ".".join(part for part in full_path.split(".") if part not in _WRAPPERS)
            self._paths.setdefault(id(module), path or kind)
            self._modules.append(module)
