"""The module tree gives the scopes, while a step records and no longer."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from conftest import Transformer, baseline_step, session_for, tokens, train
from torch import nn

import spillway
from spillway import _native
from spillway.scopes import layer_list


def scopes_of(session: spillway.Session) -> set[str]:
    profile = json.loads(session.profile_json() or "")
    return {save["scope"] for chunk in profile["chunks"] for buffer in chunk["buffers"] for save in buffer["saves"]}


def test_are_the_qualified_names():
    model = Transformer()
    session = session_for(model)
    train(model, session, baseline_step, 1)
    names = dict(model.named_modules())
    found = scopes_of(session)
    assert found <= set(names)
    assert {"layers.0.norm", "layers.1.mlp.0", "layers.2.mlp.1", "layers.2.dropout", "embedding", "head"} <= found
    assert "layers.1.attention" in found


def test_give_the_layers():
    model = Transformer(layers=4)
    session = session_for(model)
    train(model, session, baseline_step, 1)
    profile = json.loads(session.profile_json() or "")
    assert profile["layer_scope"] == "layers" and profile["layers"] == 4


def test_layers_are_named_or_the_name_is_refused():
    session_for(Transformer(), layers="layers")
    with pytest.raises(spillway.InvalidArgument, match=r'layers = "blocks".*lists of modules are: layers'):
        session_for(Transformer(), layers="blocks")


def test_the_longest_outer_list_is_the_layers():
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(16))

    model = nn.Module()
    model.blocks = nn.ModuleList(Experts() for _ in range(3))
    model.heads = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    assert layer_list(model) == "blocks"
    assert layer_list(nn.Linear(2, 2)) == ""


def test_rules_go_by_scope():
    model = Transformer()
    session = session_for(model, rules='[[rule]]\nscope = "layers.*.mlp"\nlayers = "0..1"\naction = "offload"\n')
    train(model, session, baseline_step, 2)
    plan = json.loads(session.plan_json() or "")
    offloaded = {
        decision["position"]["scope"]
        for decision in plan["chunks"][0]["decisions"]
        if "offload" in json.dumps(decision["action"])
    }
    assert offloaded and all(scope.startswith(("layers.0.", "layers.1.")) for scope in offloaded), offloaded


def record(model: nn.Module) -> None:
    with session_for(model).step():
        model(torch.ones(1))


class Seen(nn.Module):
    """Notes the scope that it runs in."""

    def __init__(self, inner: nn.Module | None = None, fail: bool = False) -> None:
        super().__init__()
        self.inner = inner
        self.fail = fail
        self.seen: list[str] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(_native.current_scope())
        if self.fail:
            raise ZeroDivisionError
        if self.inner is not None:
            x = self.inner(x)
            self.seen.append(_native.current_scope())
        return x


def test_are_exact_out_of_order_and_twice():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Seen(Seen())
            self.b = Seen()
            self.b.elsewhere = [self.a]  # Called from b, but no child of it.
            self.b.register_forward_hook(lambda module, arguments, output: module.elsewhere[0](output))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(self.a.inner(x)))

    model = Odd()
    record(model)
    assert model.a.inner.seen == ["a.inner"] * 3
    assert model.a.seen == ["a"] * 4
    assert model.b.seen == ["b"]
    assert _native.current_scope() == ""


def test_are_left_when_a_module_raises():
    class Catching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad = Seen(fail=True)
            self.outer = Seen(Seen(fail=True))
            self.good = Seen()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for module in [self.bad, self.outer]:
                with pytest.raises(ZeroDivisionError):
                    module(x)
            assert _native.current_scope() == ""
            return self.good(x)

    model = Catching()
    record(model)
    assert model.good.seen == ["good"]


def test_stay_right_when_anothers_hook_raises():
    model = nn.Sequential(Seen(), Seen())

    def refuse(module: nn.Module, arguments: object) -> None:
        raise ZeroDivisionError

    handle = model[0].register_forward_pre_hook(refuse)
    with session_for(model).step():
        with pytest.raises(ZeroDivisionError):
            model(torch.ones(1))
        assert _native.current_scope() == ""
        handle.remove()
        model(torch.ones(1))
    assert model[0].seen == ["0"] and model[1].seen == ["1"]


def test_put_nothing_on_the_modules():
    model = Transformer()
    session = session_for(model)

    def state() -> list[dict[str, object]]:
        kinds = ["_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "forward", "__call__"]
        return [{kind: str(vars(module).get(kind)) for kind in kinds} for module in model.modules()]

    before = state()
    with session.step():
        assert _native.scope_wanted() and state() == before
        baseline_step(model, 0)
    assert state() == before and "layers.1.mlp.0" in scopes_of(session)


def test_are_asked_for_only_while_a_step_records_or_is_traced():
    model = Transformer()
    session = session_for(model)
    wanted = []
    for i in range(4):
        if i == 2:
            session.trace_next_step()
        with session.step():
            wanted.append(_native.scope_wanted())
            baseline_step(model, i)
        assert not _native.scope_wanted()
    assert wanted == [True, False, True, False]


def test_of_a_shared_module_are_its_first_name():
    model = nn.Sequential(Seen(), nn.Identity())
    model.append(model[0])
    record(model)
    assert model[0].seen == ["0", "0"]


def test_a_step_that_ends_inside_a_module_leaves_its_scopes():
    class Ends(Transformer):
        step: spillway.Step | None = None

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            if self.step is not None:
                self.step.end()
            return super().forward(batch)

    model = Ends()
    step = session_for(model).step()
    with step:
        model.step = step
        model(tokens(0))
    assert _native.current_scope() == ""


class Function(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, seen: list[str]) -> torch.Tensor:
        context.save_for_backward(x.exp())
        seen.append(_native.current_scope())
        return x.exp()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * context.saved_tensors[0], None


def test_of_functions_generators_and_checkpoints_are_the_modules():
    class Odd(Seen):
        def parts(self, x: torch.Tensor) -> Iterator[torch.Tensor]:
            yield x.cos()
            self.seen.append(_native.current_scope())
            yield self.inner(x) if self.inner is not None else x

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = sum(map(torch.sin, self.parts(x)), x)
            return Function.apply(x, self.seen)

    model = nn.Sequential(Odd(Seen()), Odd(), nn.Linear(64, 64))
    session = session_for(model, small="1 B")
    x = torch.ones(64, 64, requires_grad=True)
    with session.step():
        y = torch.utils.checkpoint.checkpoint(model[0].__call__, x, use_reentrant=False)
        generator = model[1].parts(y)  # Runs where it is asked, outside of all modules.
        model[2](model[1](next(generator) + next(generator))).sum().backward()
    first = ["0"] * 2
    assert model[0].seen[:2] == first and model[0].inner.seen[0] == "0.inner"
    assert model[1].seen == ["", "1", "1"]
    assert {"1", "2", ""} <= scopes_of(session)


def test_of_other_threads_are_empty():
    model = nn.Sequential(Seen())
    with session_for(model).step():
        thread = threading.Thread(target=model, args=(torch.ones(1),))
        thread.start()
        thread.join()
        model(torch.ones(1))
    assert model[0].seen == ["", "0"]


def test_keep_nothing_alive():
    class Frees(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alive: list[bool] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = x.exp()
            freed = weakref.ref(made)
            assert _native.current_scope() == "0"
            made = made.cos()
            self.alive.append(freed() is not None)
            return made

    model = nn.Sequential(Frees())
    record(model)
    assert model[0].alive == [False]
    weak = weakref.ref(model[0])
    session = session_for(model)
    with session.step():
        pass
    del model[0]
    gc.collect()
    assert weak() is None


def test_are_read_while_other_threads_want_the_interpreter():
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))
            gc.collect(0)

    model = Transformer(layers=1)
    session = session_for(model)
    thread = threading.Thread(target=spin)
    thread.start()
    try:
        with session.step():
            baseline_step(model, 0)
    finally:
        stop.set()
        thread.join()
    assert "layers.0.mlp.1" in scopes_of(session)


def test_of_a_region_are_added_to_the_modules():
    class Regions(Transformer):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            with spillway.scope("outer"), spillway.scope("inner"):
                x = self.embedding(batch).exp()
            for layer in self.layers:
                x = layer(x)
            with spillway.scope("loss"):
                return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch.flatten())

    model = Regions()
    session = session_for(model)
    train(model, session, baseline_step, 2)
    found = scopes_of(session)
    assert {"outer.inner", "loss", "embedding", "head"} <= found
    assert _native.current_scope() == ""


def test_of_a_region_that_raises_are_left():
    model = Transformer()
    session = session_for(model)
    with session.step():
        with pytest.raises(ZeroDivisionError), spillway.scope("region"):
            assert _native.current_scope() == "region"
            raise ZeroDivisionError
        assert _native.current_scope() == ""
    with spillway.scope("region"):
        assert _native.current_scope() == ""
