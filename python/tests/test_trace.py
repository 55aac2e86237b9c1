"""Traces of steps: what was predicted and what was measured, in one file."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from conftest import OFFLOAD
from torch import nn

import spillway


def traced(steps: int, **options: object) -> tuple[spillway.Session, list[dict]]:
    """A session whose last step was traced, and the events."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(6)])
    session = spillway.Session(model, device="cpu", small=0, **options)
    for number in range(steps):
        if number == steps - 1:
            session.trace_next_step()
        with session.step():
            model(torch.ones(256, 128)).sum().backward()
    return session, json.loads(session.trace())["traceEvents"]


def tracks(events: list[dict]) -> dict[tuple[str, str], list[dict]]:
    """Spans by the names of process and thread."""
    processes = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    threads = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    found: dict[tuple[str, str], list[dict]] = {}
    for each in events:
        if each["ph"] == "X":
            key = (processes[each["pid"]], threads[each["pid"], each["tid"]])
            found.setdefault(key, []).append(each)
    return found


def copies(spans: list[dict]) -> Counter:
    return Counter((each["name"], each["args"]["bytes"], each["args"]["micro-batch"]) for each in spans)


@pytest.mark.parametrize(
    "options",
    [{"rules": OFFLOAD, "offload_window": "256 KiB"}, {"budget": 0.6, "plan_in_background": False}],
    ids=["rules", "budget"],
)
def test_a_traced_step_has_the_copies_that_were_predicted(options: dict[str, object]) -> None:
    _, events = traced(20, **options)
    spans = tracks(events)
    for lane in ("copy out", "copy back"):
        measured = spans["measured", lane]
        assert copies(measured) == copies(spans["predicted", lane])
        for before, after in zip(measured, measured[1:]):
            assert before["ts"] + before["dur"] <= after["ts"] + 0.0015


def test_a_traced_step_is_named_by_the_modules_of_the_model() -> None:
    _, events = traced(5, rules=OFFLOAD, offload_window="256 KiB")
    names = {each["name"] for each in tracks(events)["measured", "compute"]}
    assert {"0.0 aten::linear", "5.1 aten::gelu"} <= names
    passes = [each["name"] for each in tracks(events)["measured", "passes"]]
    assert passes == ["forward, chunk 0, micro-batch 0", "backward, chunk 0, micro-batch 0"]


def test_the_top_of_the_memory_curve_is_the_measured_peak() -> None:
    session, events = traced(20, budget=0.6, plan_in_background=False)
    pids = {each["args"]["name"]: each["pid"] for each in events if each["name"] == "process_name"}
    memory = [each["args"]["bytes"] for each in events if each["ph"] == "C" and each["pid"] == pids["measured"]]
    assert max(memory) == session.report().to_dict()["budget"]["measured_peak"]


def test_there_is_no_trace_before_a_step_was_traced() -> None:
    session = spillway.Session(nn.Linear(4, 4), device="cpu")
    with pytest.raises(spillway.InvalidArgument, match="no step was traced yet"):
        session.trace()
