"""Scopes from the module tree: while a step records, each module's qualified name is the scope of what it runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from . import _native


def unwrapped(model: nn.Module, compiled: bool = True) -> nn.Module:
    """The user's own module inside torch's wrappers, so that its names have no prefix."""
    while True:
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif compiled and _is_compiled(model):
            model = model.get_submodule("_orig_mod")
        else:
            return model


def layer_list(model: nn.Module) -> str:
    """The qualified name of the model's repeated layers: the longest list of modules of one class.

    A list inside another one (experts of a layer) does not count. Empty if there is none.
    """
    best, length = "", 1
    lists: list[str] = []
    for name, module in unwrapped(model).named_modules():
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
    _native.enter_inner_scope(name)
    try:
        yield
    finally:
        _native.leave_scope()


class ModuleScopes:
    """Hooks on the modules of a model, from its making until remove(). Follows the thread that made it.

    A module called outside of its position in the tree, or several times, has its own name each time; one that raises
    leaves its scope. Modules inside compiled ones get no hooks: those would be compiled, too.
    """

    def __init__(self, model: nn.Module) -> None:
        self._thread = threading.get_ident()
        self._entered: list[nn.Module] = []
        self._handles: list[RemovableHandle] = []
        for name, module in _named_modules(unwrapped(model, compiled=False)):
            self._handles.append(module.register_forward_pre_hook(_Enter(self, name), prepend=True))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if threading.get_ident() != self._thread:
            return  # That thread forgets its scopes with the step.
        while self._entered:  # A step that ends inside a module's forward.
            self._entered.pop()
            _native.leave_scope()

    def enter(self, module: nn.Module, name: str) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != self._thread:
            return
        self._entered.append(module)
        _native.enter_scope(name)

    def _leave(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != self._thread:
            return
        # Another's hook may have raised before ours could enter.
        if self._entered and self._entered[-1] is module:
            self._entered.pop()
            _native.leave_scope()


class _Enter:
    def __init__(self, scopes: ModuleScopes, name: str) -> None:
        self._scopes = scopes
        self._name = name

    def __call__(self, module: nn.Module, arguments: Any) -> None:
        self._scopes.enter(module, self._name)


def _named_modules(model: nn.Module, name: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, nn.Module]]:
    """As named_modules(), but nothing inside compiled or scripted modules."""
    seen = set() if seen is None else seen
    if id(model) in seen or isinstance(model, torch.jit.ScriptModule):
        return
    seen.add(id(model))
    if getattr(model, "_compiled_call_impl", None) is not None:  # Made by model.compile().
        return
    yield name, model
    if _is_compiled(model):
        return
    for child_name, child in model.named_children():
        yield from _named_modules(child, f"{name}.{child_name}" if name else child_name, seen)


def _is_compiled(module: nn.Module) -> bool:
    # torch.compile's class, without the second that importing it takes.
    return isinstance(module._modules.get("_orig_mod"), nn.Module)
