"""What a session leaves to autograd: tensors by request, and the weights that custom functions save."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from . import _native


@contextlib.contextmanager
def unmanaged() -> Iterator[None]:
    """What autograd saves inside is left to autograd: not profiled, not moved, not recomputed.

    For code that needs the very tensors it saved, or that frees or writes their memory itself. May be nested.
    """
    _native.enter_unmanaged()
    try:
        yield
    finally:
        _native.leave_unmanaged()


def keep_saved_weights() -> None:
    """Has custom functions get back the very Parameters that they save, with their attributes (`weight.main_grad`).

    With saved-tensor hooks torch makes a new tensor of whatever it unpacks, and asks for hooks before it says for what.
    So ctx.save_for_backward(), once for the process, also tells the session of this thread what will be saved.
    """
    original = FunctionCtx.save_for_backward
    if hasattr(original, "_spillway"):
        return

    @functools.wraps(original)
    def save_for_backward(self: FunctionCtx, *tensors: torch.Tensor) -> None:
        _native.expect_saves(*tensors)
        original(self, *tensors)

    marked: Any = save_for_backward
    marked._spillway = True
    FunctionCtx.save_for_backward = marked  # type: ignore[method-assign]
