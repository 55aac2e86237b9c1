"""Sessions with a schedule of passes, as one rank of a pipeline has it; its neighbours are made up."""

from __future__ import annotations

import pytest
import torch
from conftest import OFFLOAD, Block, fallbacks, session_for
from torch import nn

import spillway
from spillway.pipeline import Pass, schedule

RECOMPUTE = '[[rule]]\naction = "recompute"\n'
WIDTH = 32


def chunk_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleList(nn.Sequential(Block(WIDTH, 0.1), Block(WIDTH, 0.1)) for _ in range(2))


def made_up(seed: int) -> torch.Tensor:
    return torch.randn(2, 16, WIDTH, generator=torch.Generator().manual_seed(seed))


def run_passes(model: nn.Module, passes: list[Pass], step: spillway.Step | None) -> list[torch.Tensor]:
    """Activations come from nowhere, and so do the gradients of what this rank makes."""
    begun: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
    values = []
    for what, chunk, micro_batch in passes:
        key = (chunk, micro_batch)
        if what == "forward":
            if step is not None:
                step.pass_(chunk, micro_batch)
            received = made_up(1000 * chunk + micro_batch).requires_grad_()
            torch.manual_seed(7 * chunk + micro_batch)
            begun[key] = (received, model[chunk](received))
        else:
            if step is not None:
                step.backward()
            received, made = begun.pop(key)
            made.backward(made_up(5000 + 1000 * chunk + micro_batch))
            values.append(received.grad.clone())
    return values


def train(passes: list[Pass], session_of, steps: int = 4) -> list[torch.Tensor]:
    model = chunk_model()
    session = session_of(model) if session_of is not None else None
    values = []
    for _ in range(steps):
        model.zero_grad()
        if session is None:
            values += run_passes(model, passes, None)
        else:
            with session.step(passes) as step:
                values += run_passes(model, passes, step)
        values += [parameter.grad.clone() for parameter in model.parameters()]
    return values


def test_makes_the_lists_of_the_literature():
    assert schedule(0, 2, 2) == [("forward", 0, 0), ("forward", 0, 1), ("backward", 0, 0), ("backward", 0, 1)]
    assert schedule(1, 2, 2) == [("forward", 0, 0), ("backward", 0, 0), ("forward", 0, 1), ("backward", 0, 1)]
    assert [what for what, _, _ in schedule(1, 2, 2, kind="gpipe")] == ["forward"] * 2 + ["backward"] * 2
    assert len(schedule(0, 4, 8, chunks=2)) == 32
    with pytest.raises(spillway.InvalidArgument, match="stage"):
        schedule(4, 4, 8)


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("options", [{"rules": OFFLOAD}, {"rules": RECOMPUTE}, {"rules": None, "budget": 0.9, "plan_in_background": False}],
                         ids=["offload", "recompute", "budget"])  # fmt: skip
def test_gives_the_same_bits_on_an_interleaved_stage(stage, options):
    passes = schedule(stage, 2, 4, chunks=2)
    sessions = []

    def session_of(model: nn.Module) -> spillway.Session:
        sessions.append(session_for(model, **options))
        return sessions[0]

    without = train(passes, None)
    assert all(map(torch.equal, without, train(passes, session_of)))
    assert fallbacks(sessions[0]) == {}
    report = sessions[0].report().to_dict()
    if options["rules"] == OFFLOAD:
        assert report["bytes_back"] > 0
        assert report["late_reloads"] <= 1, "buffers were not prefetched"


def test_counts_a_step_whose_passes_come_in_another_order():
    given, done = schedule(0, 2, 4), schedule(0, 2, 4, kind="gpipe")
    model = chunk_model()
    session = session_for(model)
    for _ in range(2):
        with session.step(given) as step:
            run_passes(model, done, step)
    assert fallbacks(session) == {"the passes did not run in the order of the schedule": 2}


def test_refuses_what_is_no_schedule():
    session = session_for(chunk_model())
    with pytest.raises(spillway.InvalidArgument, match='"sideways" is no pass'):
        session.step([("sideways", 0, 0)])
    with pytest.raises(spillway.InvalidArgument, match="comes before its forward"):
        with session.step([("backward", 0, 0)]):
            pass
    with pytest.raises(spillway.InvalidArgument, match="has no backward"):
        with session.step([("forward", 0, 0)]):
            pass
    step = session.step()
    with pytest.raises(spillway.InvalidArgument, match="within the step"):
        step.backward()
