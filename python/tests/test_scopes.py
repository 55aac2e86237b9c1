"""The module tree gives the scopes, while a step records and no longer."""

from __future__ import annotations

import json

import pytest
import torch
from conftest import Transformer, baseline_step, session_for, tokens, train
from torch import nn

import spillway
from spillway import _native
from spillway.scopes import ModuleScopes, layer_list


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
    scopes = ModuleScopes(model)
    model(torch.ones(1))
    scopes.remove()
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
    scopes = ModuleScopes(model)
    model(torch.ones(1))
    scopes.remove()
    assert model.good.seen == ["good"]


def test_stay_right_when_anothers_hook_raises():
    model = nn.Sequential(Seen(), Seen())

    def refuse(module: nn.Module, arguments: object) -> None:
        raise ZeroDivisionError

    handle = model[0].register_forward_pre_hook(refuse)
    scopes = ModuleScopes(model)
    with pytest.raises(ZeroDivisionError):
        model(torch.ones(1))
    assert _native.current_scope() == ""
    handle.remove()
    model(torch.ones(1))
    scopes.remove()
    assert model[0].seen == ["0"] and model[1].seen == ["1"]


def test_hooks_are_there_only_while_a_step_records():
    model = Transformer()
    session = session_for(model)

    def hooks() -> int:
        return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())

    counts = []
    for i in range(3):
        with session.step():
            counts.append(hooks())
            baseline_step(model, i)
        counts.append(hooks())
    assert counts[0] > 0 and counts[1:] == [0] * 5


def test_of_a_shared_module_are_its_first_name():
    model = nn.Sequential(Seen(), nn.Identity())
    model.append(model[0])
    scopes = ModuleScopes(model)
    model(torch.ones(1))
    scopes.remove()
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
