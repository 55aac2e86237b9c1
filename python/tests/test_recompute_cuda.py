"""Recompute on a CUDA device: the same bits, less memory, and kernels of one's own are caught."""

from __future__ import annotations

import functools

import pytest
import torch
from conftest import Transformer, fallbacks, same_bits, session_for, tokens, train
from torch import nn

pytest.importorskip("transformers", reason="skipped: transformers is not installed")

import hugging_face  # noqa: E402
from test_recompute import EVERYTHING, LAYERS, OneWeight, demoted, repeated  # noqa: E402
from test_recompute_rules import MODELS, PLANS, RULES, for_small_tensors  # noqa: E402

try:
    import triton
    import triton.language as tl

    @triton.jit
    def set_one(pointer, index, value):
        tl.store(pointer + index, value)
except ImportError:
    triton = None

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="skipped: no CUDA device"),
]


@functools.cache
def without_spillway(name: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return train(MODELS[name]().cuda(), None, hugging_face.step)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("file", PLANS)
def test_a_rule_file_gives_the_same_bits(file, name):
    expected = without_spillway(name)
    torch.manual_seed(0)
    model = MODELS[name]().cuda()
    session = session_for(model, rules=for_small_tensors((RULES / file).read_text()))
    found = train(model, session, hugging_face.step)
    different = [i for i, pair in enumerate(zip(expected, found)) if not torch.equal(*pair)]
    assert not different and len(found) == len(expected), str(session.report())
    assert (repeated(session) > 0) == ("R" in PLANS[file][list(MODELS).index(name)]), str(session.report())
    assert not demoted(session) and not fallbacks(session), str(session.report())


def accumulated(model: nn.Module, i: int) -> torch.Tensor:
    total = torch.zeros((), device="cuda")
    for micro_batch in range(3):
        loss = model(tokens(10 * i + micro_batch).cuda())
        loss.backward()
        total += loss.detach()
    return total


def accumulated_under_one_autocast(model: nn.Module, i: int) -> torch.Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return accumulated(model, i)


@pytest.mark.parametrize("rules", [EVERYTHING, LAYERS], ids=["everything", "layers"])
@pytest.mark.parametrize("step", [accumulated, accumulated_under_one_autocast])
def test_a_transformer_with_dropout_gives_the_same_bits(step, rules):
    session = same_bits(lambda: Transformer(tied=True).cuda(), step, 5, rules=rules)
    assert repeated(session) > 0 and session.report().to_dict()["recorded_steps"] == 1, str(session.report())
    assert not demoted(session) and not fallbacks(session), str(session.report())


def test_recomputing_layers_lowers_the_peak_of_the_allocator():
    torch.manual_seed(0)
    model = Transformer(width=256, layers=8).cuda()
    session = session_for(model, rules=LAYERS)
    batch = tokens(0, 8, 256).cuda()

    def peak(managed: bool) -> int:
        model.zero_grad()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        if managed:
            with session.step():
                model(batch).backward()
        else:
            model(batch).backward()
        return torch.cuda.max_memory_allocated() - before

    for _ in range(3):
        peak(True)
    assert peak(True) < 0.5 * peak(False), str(session.report())


def test_a_triton_kernel_that_writes_in_place_is_caught():
    if triton is None:
        pytest.skip("skipped: triton is not installed")

    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = weight * 2
        set_one[(1,)](x.detach(), 5, 7.0)
        y = x.sin()
        return (y * y.cos()).sum() + (x * x).sum()

    def step(model: nn.Module, i: int) -> torch.Tensor:
        loss: torch.Tensor = model(i)
        loss.backward()
        return loss

    session = same_bits(lambda: OneWeight(program).cuda(), step, 6, rules=EVERYTHING)
    assert len(demoted(session)) == 1 and "bits differ" in demoted(session)[0], str(session.report())
    assert repeated(session) > 0


def test_writes_to_data_are_followed():
    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = weight * 2
        if i >= 3:  # After the verification.
            x.data.add_(1)
        return x.exp().sum() + (x * x).sum()

    def step(model: nn.Module, i: int) -> torch.Tensor:
        loss: torch.Tensor = model(i)
        loss.backward()
        return loss

    session = same_bits(lambda: OneWeight(program).cuda(), step, 6, rules=EVERYTHING)
    assert repeated(session) > 0 and not demoted(session)
