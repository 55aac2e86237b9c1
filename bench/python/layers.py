#!/usr/bin/env python3
"""Question: what does a session cost, and what does it save, on an unmodified Llama of transformers?

How to read it: every row trains the same model on the same tokens, in turns without and with a session; its figure is
the median ratio of the two. "peak" is the maximum of torch's own statistics in a step, less what was allocated before
it (weights, gradients). "gradients that differ" counts those that differ in a bit from those without a session,
including the loss. The model saves more than the one of bench/layers: its norms compute and save float32, and the loss
takes float32 logits. The rows that recompute have the limits of bench/layers. They recompute more operators here, since
neither norms nor rotary positions are one operator, and they keep the residual stream, which these norms do not save,
as an input of recomputation. Rows with a budget have a session that is given the budget and nothing else, with the
planner's prediction and its lower bound for any plan. "host cost per saved tensor" is the extra time of a step of many
small operators with a session that keeps everything, forward and backward, over the number of saved tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from typing import Any

import torch
from figures import Figure, Value
from llama_bench import GIB, Bench, Measured, Program, Shape, Turns, budget_id, progress, take_turns, warm_up
from torch import nn

import spillway


@dataclasses.dataclass
class Sizes:
    small_operators: int = 2000
    min_size: str = "1 MiB"  # Smaller buffers are kept.
    max_size: str = "128 MiB"  # Larger buffers are those of the MLP.
    # With limits of the step time ratio: those of bench/budget plus 2 %.
    budgets: tuple[tuple[str, float], ...] = (("14.4 GiB", 1.03), ("8 GiB", 1.05), ("3 GiB", 1.13))


SMALL_SIZES = Sizes(300, "64 KiB", "256 KiB", (("60 %", 2.0),))


@dataclasses.dataclass
class Row:
    id: str
    text: str
    rules: str | None
    at_most: float | None = None
    max_memory: float | None = None  # GiB
    budget: str | None = None
    # Host memory to pin at start, on CUDA: as much as the row needs, so that none is pinned during timed steps.
    prepare: str = "0"


# As examples/rules/norms-and-activations.toml.
CHEAP = """
[[rule]]
made_in = "*.self_attn."
producer = "aten::clone"
action = "recompute"
fallback = "offload"

[[rule]]
made_in_module = ["attn_norm", "mlp_norm", "act"]
action = "recompute"
fallback = "offload"
"""


def rows(shape: Shape, sizes: Sizes) -> list[Row]:
    but_last = f'[[rule]]\nlayers = "0..{shape.layers - 2}"\nmin_size = "{sizes.min_size}"\naction = "offload"\n'
    small = but_last + f'max_size = "{sizes.max_size}"\n'
    return [
        Row("keep", "intercepted, everything kept", None, 1.005),
        Row(
            "attention",
            "attention and residuals offloaded, but of the last layer",
            but_last + 'saved_by = ["*scaled_dot*", "*attention*", "aten::pow"]\n',
            1.015,
            prepare="8 GiB",
        ),
        Row("all", "everything offloaded, but of the last layer", but_last, prepare="24 GiB"),
        Row("cheap", "norms, SwiGLU, copies recomputed", CHEAP, 1.02, 14.4),
        Row("cheap_small", "the same, small buffers offloaded", CHEAP + small, 1.03, 10.2, prepare="8 GiB"),
    ] + [
        Row(budget_id(each), f"within a budget of {each}", None, limit, budget=each, prepare="24 GiB")
        for each, limit in sizes.budgets
    ]


class SmallOperators(nn.Module):
    """Each one saves a tensor of 64 KiB, the smallest that a session manages."""

    def __init__(self, count: int, device: torch.device) -> None:
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(torch.randn(2**14, device=device))

    def forward(self) -> torch.Tensor:
        x = self.weight * 1.5
        for _ in range(self.count):
            x = x.sin()
        return x.sum()


def base_parts(bench: Bench) -> tuple[float, float]:
    """Medians of forward and backward without a session, in milliseconds."""
    forward, backward = [], []
    for _ in range(bench.repeats):
        bench.model.zero_grad(set_to_none=False)
        begin = bench.now()
        loss = bench.loss()
        middle = bench.now()
        loss.backward()
        forward.append(middle - begin)
        backward.append(bench.now() - middle)
    return Value("", "", 0, forward).median, Value("", "", 0, backward).median


@dataclasses.dataclass
class Outcome:
    turns: Turns
    first_step: float
    different: int
    report: dict[str, Any]
    profile: dict[str, Any]
    plan: dict[str, Any]


def run(bench: Bench, row: Row, full: bool, fuse: bool, explain: bool) -> Outcome:
    session = bench.session(row.prepare, rules=row.rules, budget=row.budget, fuse_replays=fuse)

    def with_session() -> Measured:
        return bench.step(session)

    bench.step()
    first = take_turns(bench.step, with_session, 1).ratios[0]
    take_turns(bench.step, with_session, warm_up(full, True, row.budget is not None) - 1)
    turns = take_turns(bench.step, with_session, bench.repeats)
    report = session.report().to_dict()
    different = bench.different(bench.step, with_session)
    if explain:
        print(session.explain(), file=sys.stderr)
    profile, plan = json.loads(session.profile_json() or "{}"), json.loads(session.plan_json() or "{}")
    return Outcome(turns, first, different, report, profile, plan)


def row_figure(row: Row, outcome: Outcome, judged: bool) -> Figure:
    report = outcome.report
    return Figure(
        f"python_layers.{row.id}",
        Value(row.text, "x", 3, outcome.turns.ratios),
        row.at_most,
        judged,
        [
            Value("step", "ms", 1, outcome.turns.step_ms),
            Value("without", "ms", 1, outcome.turns.base_ms),
            Value("peak", "GiB", 2, [outcome.turns.peak]),
            Value("gradients that differ", "", 0, [float(outcome.different)]),
            Value("out", "GiB", 2, [report["bytes_out"] / GIB]),
            Value("back", "GiB", 2, [report["bytes_back"] / GIB]),
            Value("late", "", 0, [float(report["late_reloads"])]),
            Value("waited to release", "ms", 1, [report["waits"]["release_ns"] / 1e6]),
            Value("to reload", "ms", 1, [report["waits"]["reload_ns"] / 1e6]),
            Value("recomputed", "GiB", 2, [report["bytes_recomputed"] / GIB]),
            Value("by operators", "", 0, [float(report["repeated_calls"])]),
            Value("fused kernels", "", 0, [float(report["fused_kernels"])]),
            Value("demoted", "", 0, [float(len(report["demoted"]))]),
            Value("fallbacks", "", 0, [float(sum(report["fallbacks"].values()))]),
            Value("first step", "x", 2, [outcome.first_step]),
        ],
    )


def budget_figures(row: Row, outcome: Outcome, judged: bool) -> list[Figure]:
    """The peak against the budget, and the error of the predicted step time."""
    if row.budget is None:
        return []
    plan, step = outcome.plan, Value("", "", 0, outcome.turns.step_ms).median
    error = 100 * (plan["predicted_step_ns"] / 1e6 / step - 1)
    peak = Value("its peak", "GiB", 3, [outcome.turns.peak])
    time_error = Value("error of the predicted time", "%", 1, [abs(error)])
    predicted = [
        Value("predicted less measured", "%", 1, [error]),
        Value("predicted ratio", "x", 3, [plan["predicted_step_ns"] / plan["base_step_ns"]]),
        Value("bound ratio", "x", 3, [plan["bound_step_ns"] / plan["base_step_ns"]]),
    ]
    name = f"python_layers.{row.id}"
    predicted_peak = Value("predicted", "GiB", 3, [plan["predicted_peak"] / GIB])
    return [
        Figure(f"{name}_time_error", time_error, 3.0, judged, predicted),
        Figure(f"{name}_peak", peak, plan["budget"] / GIB, judged, [predicted_peak]),
    ]


def peak_figure(row: Row, outcome: Outcome, judged: bool) -> Figure | None:
    if row.max_memory is None:
        return None
    found = Value("its peak", "GiB", 2, [outcome.turns.peak])
    return Figure(f"python_layers.{row.id}_peak", found, row.max_memory, judged)


def limit_figure(outcome: Outcome, parts: tuple[float, float], judged: bool) -> Figure | None:
    """A lower bound of the step time with everything offloaded: compute or link, whichever is slower, in each pass."""
    link = outcome.profile.get("link", {})
    if not link.get("out") or not link.get("back"):
        return None
    planned = outcome.report["planned_reduction"]
    out = planned / link["out"] * 1e3
    back = planned / link["back"] * 1e3
    limit = max(parts[0], out) + max(parts[1], back)
    return Figure(
        "python_layers.all_limit",
        Value("the same, compared with what the link allows", "x", 3, [step / limit for step in outcome.turns.step_ms]),
        1.02,
        judged,
        [
            Value("limit", "ms", 1, [limit]),
            Value("forward", "ms", 1, [parts[0]]),
            Value("copies out", "ms", 1, [out]),
            Value("backward", "ms", 1, [parts[1]]),
            Value("copies back", "ms", 1, [back]),
        ],
    )


def host_cost_figure(sizes: Sizes, device: torch.device, repeats: int, judged: bool) -> Figure:
    """With kernels so small that the host determines the time."""
    model = SmallOperators(sizes.small_operators, device)
    session = spillway.Session(model, device=device)

    def step(managed: bool) -> tuple[float, float]:
        """Microseconds of forward and of backward, until the device is done."""

        def now() -> float:
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return time.perf_counter() * 1e6

        begin = now()
        with session.step() if managed else contextlib.nullcontext():
            loss = model()
            middle = now()
            loss.backward()
        return middle - begin, now() - middle

    step(False), step(True), step(True)
    chunk = json.loads(session.profile_json() or "{}")["chunks"][0]
    saved = len(chunk["sites"])
    pairs = [(step(False), step(True)) for _ in range(4 * repeats)]
    forward = [(managed[0] - base[0]) / saved for base, managed in pairs]
    backward = [(managed[1] - base[1]) / saved for base, managed in pairs]
    return Figure(
        "python_layers.host_cost",
        Value("host cost per saved tensor", "us", 2, [a + b for a, b in zip(forward, backward)]),
        3.0,
        judged,
        [
            Value("in forward", "us", 2, forward),
            Value("in backward", "us", 2, backward),
            Value("saved tensors", "", 0, [float(saved)]),
            Value("operator and its backward without", "us", 2, [sum(base) / saved for base, _ in pairs]),
        ],
    )


def main() -> int:
    program = Program("python/layers", __doc__)
    program.parser.add_argument("--explain", action="store_true", help="print the plan of every row")
    program.parser.add_argument("--no-fuse", dest="fuse", action="store_false",
                                help="recompute consecutive elementwise operators with one kernel each")  # fmt: skip
    options = program.start()
    device, full, report = program.device, program.full, program.report
    report.settings["replays fused"] = options.fuse
    sizes = Sizes() if full else SMALL_SIZES
    chosen = program.chosen(rows(program.shape, sizes))

    progress("measuring: host cost per saved tensor ...")
    host_cost = host_cost_figure(sizes, device, options.repeats, full)
    bench = Bench(program.shape, device, options.repeats)
    first_steps = []
    for row in chosen:
        progress(f"measuring: {row.text} ...")
        outcome = run(bench, row, full, options.fuse, options.explain)
        progress(f"  {outcome.turns}")
        first_steps.append(outcome.first_step)
        report.figures.append(row_figure(row, outcome, full))
        peak = peak_figure(row, outcome, full)
        report.figures += [peak] if peak is not None else []
        report.figures += budget_figures(row, outcome, full)
        if row.id == "all":
            limit = limit_figure(outcome, base_parts(bench), full)
            report.figures += [limit] if limit is not None else []
    first = Value("the first step of each row, which is recorded", "x", 2, first_steps)
    report.figures.append(Figure("python_layers.first_step", first, 3.0, full))
    report.figures.append(host_cost)
    base_peak = Value("peak without Spillway", "GiB", 2, [bench.step().peak])
    report.figures.append(Figure("python_layers.base_peak", base_peak))
    program.publish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
