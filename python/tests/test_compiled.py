"""torch.compile: a compiled model with a session gives the bits of the same compiled model without."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from conftest import Transformer, fallbacks, moved, same_bits, some
from torch import nn


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def whole(backend: str) -> nn.Module:
    return torch.compile(Transformer(dropout=0.0), backend=backend)


def in_place(backend: str) -> nn.Module:
    model = Transformer(dropout=0.0)
    model.compile(backend=backend)
    return model


def layers(backend: str) -> nn.Module:
    model = Transformer(dropout=0.0)
    for i, layer in enumerate(model.layers):
        model.layers[i] = torch.compile(layer, backend=backend)
    return model


def with_dropout(backend: str) -> nn.Module:
    return torch.compile(Transformer(layers=2), backend=backend)


Make = Callable[[str], nn.Module]


def check(make: Make, backend: str) -> None:
    session = same_bits(lambda: make(backend), steps=4)
    assert session.report().to_dict()["recorded_steps"] == 1
    out, back = moved(session)
    assert out > 0 and back > 0 and not fallbacks(session), str(session.report())
    if make is layers:
        assert '"layers.2"' in (session.profile_json() or "")


@pytest.mark.parametrize("make", [whole, in_place, layers])
def test_by_aot_eager(make):
    check(make, "aot_eager")


@pytest.mark.skipif(
    not any(map(shutil.which, ["g++", "clang++"])), reason="skipped: inductor needs a C++ compiler, and there is none"
)
@pytest.mark.parametrize("make", some([with_dropout, layers, whole], 1))
def test_by_inductor(make):
    check(make, "inductor")


RECOMPUTE = '[[rule]]\naction = "recompute"\nfallback = "offload"\n'


def test_what_a_graph_of_operators_made_is_recomputed():
    session = same_bits(lambda: layers("aot_eager"), rules=RECOMPUTE)
    values = session.report().to_dict()
    assert values["repeated_calls"] > 0 and not values["demoted"] and not fallbacks(session), str(session.report())


@pytest.mark.skipif(
    not any(map(shutil.which, ["g++", "clang++"])), reason="skipped: inductor needs a C++ compiler, and there is none"
)
@pytest.mark.parametrize("make", some([with_dropout, layers, whole], 1))
def test_what_compiled_kernels_made_falls_back_to_the_fallback_action(make):
    # They are no operators, and some of them write into what operators made: that is caught.
    session = same_bits(lambda: make("inductor"), steps=5, rules=RECOMPUTE)
    values = session.report().to_dict()
    assert values["recorded_steps"] == 1 and values["bytes_out"] > 0, str(session.report())
    assert values["actions"]["offload"]["bytes"] > values["actions"].get("recompute", {"bytes": 0})["bytes"]
    assert set(fallbacks(session)) <= {"its recomputed bits differ"}, str(session.report())
