"""Scopes from the module tree: while a step records, the scope is the qualified name of the module that runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from . import _native


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module inside torch's wrappers, so that its names have no prefix."""
    while True:
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif _is_compiled(model):
            model = model.get_submodule("_orig_mod")
        else:
            return model


def module_names(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Each module of the model with its qualified name, as if none was compiled; a compiled one has its module's."""
    return [
        (".".join(part for part in name.split(".") if part != "_orig_mod"), module)
        for name, module in unwrapped(model).named_modules()
    ]


def layer_list(model: nn.Module) -> str:
    """The qualified name of the model's repeated layers: the longest list of modules of one class.

    A list inside another one (experts of a layer) does not count. Empty if there is none.
    """
    best, length = "", 1
    lists: list[str] = []
    for name, module in module_names(model):
        if any(name.startswith(outer + ".") for outer in lists):
            continue
        if not isinstance(module, (nn.ModuleList, nn.Sequential)) or len(module) < 2 or not name:
            continue
        if len({type(member) for member in module}) > 1:
            continue
        lists.append(name)
        if len(module) > length:
            best, length = name, len(module)
    return best


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Names a region that is no module of its own: within the module `layers.3` it is `layers.3.<name>`.

    Does nothing while no step records on this thread, and in compiled code.
    """
    if torch.compiler.is_compiling() or not _native.scope_wanted():
        yield
        return
    region = _native.enter_scope(name)
    try:
        yield
    finally:
        _native.leave_scope(region)


def _is_compiled(module: nn.Module) -> bool:
    # torch.compile's class, without the second that importing it takes.
    return isinstance(module._modules.get("_orig_mod"), nn.Module)
