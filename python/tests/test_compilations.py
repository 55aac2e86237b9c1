"""torch.compile compiles as often with a session as without: nothing that it guards on changes from step to step."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import OFFLOAD, Block, Transformer, session_for, tokens
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import spillway

RECOMPUTE = '[[rule]]\naction = "recompute"\nfallback = "offload"\n'


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Breaking(Transformer):
    """Dynamo compiles it in parts, with its layers' calls in between."""

    def __init__(self) -> None:
        super().__init__(layers=3, dropout=0.0)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        x = self.embedding(batch)
        for layer in self.layers:
            torch._dynamo.graph_break()
            with spillway.scope("region"):
                x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch.flatten())


Run = Callable[[torch.Tensor], torch.Tensor]


def whole(backend: Any) -> tuple[nn.Module, Run]:
    model = torch.compile(Transformer(dropout=0.0), backend=backend)
    return model, model


def in_place(backend: Any) -> tuple[nn.Module, Run]:
    model = Transformer(dropout=0.0)
    model.compile(backend=backend)
    return model, model


def layers(backend: Any) -> tuple[nn.Module, Run]:
    model = Transformer(dropout=0.0)
    for i, layer in enumerate(model.layers):
        model.layers[i] = torch.compile(layer, backend=backend)
    return model, model


def layers_in_place(backend: Any) -> tuple[nn.Module, Run]:
    model = Transformer(dropout=0.0)
    for layer in model.layers:
        layer.compile(backend=backend)
    return model, model


def breaking(backend: Any) -> tuple[nn.Module, Run]:
    model = torch.compile(Breaking(), backend=backend)
    return model, model


def function(backend: Any) -> tuple[nn.Module, Run]:
    model = Transformer(dropout=0.0)

    @torch.compile(backend=backend)
    def loss(batch: torch.Tensor) -> torch.Tensor:
        return model(batch)

    return model, loss


def function_of_each_layer(backend: Any) -> tuple[nn.Module, Run]:
    # One version of the function for each layer would be more than Dynamo compiles.
    model = Transformer(layers=torch._dynamo.config.recompile_limit + 1, dropout=0.0)

    @torch.compile(backend=backend)
    def call(layer: Block, x: torch.Tensor) -> torch.Tensor:
        with spillway.scope("region"):
            return layer(x)

    def loss(batch: torch.Tensor) -> torch.Tensor:
        x = model.embedding(batch)
        for layer in model.layers:
            x = call(layer, x)
        return nn.functional.cross_entropy(model.head(x).flatten(0, 1), batch.flatten())

    return model, loss


Make = Callable[[Any], tuple[nn.Module, Run]]
KINDS: list[Make] = [whole, in_place, layers, layers_in_place, breaking, function, function_of_each_layer]


def compilations(make: Make, backend: str, rules: str | None) -> tuple[list[int], dict[str, dict[str, int]], Any]:
    """After each step, how often was compiled; at the end all that Dynamo counts; the session, if there are rules."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    counting = CompileCounterWithBackend(backend)
    torch.manual_seed(0)
    model, run = make(counting)
    session = session_for(model, rules=rules) if rules is not None else None
    counts = []
    for i in range(7):
        if session is not None and i == 3:
            session.record_next_step()  # It verifies again then.
        if session is not None and i == 5:
            session.trace_next_step()
        with session.step() if session is not None else contextlib.nullcontext():
            run(tokens(i)).backward()
        counts.append(counting.frame_count)
    kept = ["stats", "frames", "recompiles", "graph_break", "recompile_limit"]
    counters = {kind: dict(torch._dynamo.utils.counters[kind]) for kind in kept}
    return counts, counters, session


def check(make: Make, backend: str, rules: str = RECOMPUTE) -> Any:
    without, counters, _ = compilations(make, backend, None)
    assert without[0] > 0
    with_session, counters_with_session, session = compilations(make, backend, rules)
    assert with_session == without
    assert counters_with_session == counters
    values = session.report().to_dict()
    assert values["recorded_steps"] == 2, str(session.report())
    assert not values["fallbacks"], str(session.report())
    return session


@pytest.mark.parametrize("make", KINDS)
def test_are_as_many_as_without_a_session(make):
    check(make, "aot_eager")


@pytest.mark.skipif(
    not any(map(shutil.which, ["g++", "clang++"])), reason="skipped: inductor needs a C++ compiler, and there is none"
)
def test_are_as_many_with_inductor():
    check(breaking, "inductor", OFFLOAD)  # What its kernels made is not recomputed.


def test_leave_the_scope_of_the_compiled_module():
    def scopes(make: Make) -> set[str]:
        profile = check(make, "aot_eager").profile_json()
        return {scope for scope in NAMES if f'"{scope}"' in profile}

    assert scopes(layers) == scopes(layers_in_place) == {"embedding", "layers.0", "layers.2", "head"}
    assert scopes(whole) == scopes(in_place) == set()
    assert scopes(breaking) >= {"layers.0"}


NAMES = ["embedding", "layers.0", "layers.2", "layers.0._orig_mod", "layers.0.norm", "layers.2.mlp.0", "head"]
