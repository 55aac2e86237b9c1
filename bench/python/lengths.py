#!/usr/bin/env python3
"""Question: what does a budget cost if every batch has another length, beside no limit and full checkpointing?

How to read it: every row trains the same unmodified Llama of transformers on the same batches, whose lengths are drawn
at random, as in any fine-tuning run; for each batch the step without and the step with what the row is about take
turns. The figure is the time of all batches after the warm-up over the time of the same batches without a limit.
"peak" is the highest of torch's own statistics in a step, less what was allocated before it (weights, gradients), in
any step, those of the warm-up included; on the CPU it is not measured. "steps over budget" counts the steps of all batches whose peak is above the
budget. "gradients that differ" counts those that differ in a bit from those without, over three of the lengths. Rows
within a budget are sessions of Spillway that are given the budget and nothing else; they plan in the background, as
users have it.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import sys
from collections.abc import Callable

from figures import Figure, Value
from llama_bench import GIB, Bench, Checkpointed, Measured, Program, budget_id, layers_replaced, progress
from torch import nn

import spillway

WARM_UP = 10


@dataclasses.dataclass
class Row:
    id: str
    text: str
    budget: str | None = None
    at_most: float | None = None


def rows(full: bool) -> list[Row]:
    budgets = [("10 GiB", 1.05), ("4 GiB", 1.13)] if full else [("70 %", 5.0)]
    return [Row("checkpointing", "full checkpointing")] + [
        Row(budget_id(size), f"Spillway, budget of {size}", size, limit) for size, limit in budgets
    ]


def lengths_of(bench: Bench, count: int) -> list[int]:
    """From an eighth of the longest to the longest; the same in every run."""
    longest = bench.shape.tokens
    draw = random.Random(1)
    return [draw.randint(longest // 8, longest) for _ in range(count)]


class Batches:
    """Steps with batches of given lengths, without and with what a row is about."""

    def __init__(self, bench: Bench, row: Row) -> None:
        self._bench = bench
        self._tokens = bench.tokens
        self._decoder = bench.model.get_submodule("model")
        self._layers = self._decoder.layers
        self.session: spillway.Session | None = None
        if row.budget is not None:
            self.session = spillway.Session(bench.model, budget=row.budget, device=bench.device)
        else:
            self._layers = nn.ModuleList(Checkpointed(layer) for layer in self._layers)

    def without(self, length: int) -> Measured:
        self._bench.tokens = self._tokens[:, :length].contiguous()
        return self._bench.step()

    def step(self, length: int) -> Measured:
        self._bench.tokens = self._tokens[:, :length].contiguous()
        with layers_replaced(self._decoder, self._layers):
            return self._bench.step(self.session)

    def over(self) -> None:
        self._bench.tokens = self._tokens


def differences(bench: Bench, batches: Batches, lengths: list[int]) -> int:
    def at(step: Callable[[int], Measured], length: int) -> Callable[[], Measured]:
        return functools.partial(step, length)

    return sum(bench.different(at(batches.without, each), at(batches.step, each)) for each in lengths)


def measure(bench: Bench, row: Row, lengths: list[int], warm_up: int, full: bool) -> Figure:
    batches = Batches(bench, row)
    base_ms, step_ms, ratios = [], [], []
    base_peak, peaks = 0.0, []
    for number, length in enumerate(lengths):
        base, step = batches.without(length), batches.step(length)
        base_peak = max(base_peak, base.peak)
        peaks.append(step.peak)
        if number >= warm_up:
            base_ms.append(base.milliseconds)
            step_ms.append(step.milliseconds)
            ratios.append(step.milliseconds / base.milliseconds)
    beside = [
        Value("of single batches", "x", 3, ratios),
        Value("all batches", "s", 2, [sum(step_ms) / 1e3]),
        Value("without", "s", 2, [sum(base_ms) / 1e3]),
    ]
    on_gpu = bench.device.type == "cuda"
    if on_gpu:
        beside += [Value("peak", "GiB", 2, [max(peaks)]), Value("peak without", "GiB", 2, [base_peak])]
    if batches.session is not None:
        report = batches.session.report().to_dict()
        budget = report["budget"]["budget"] / GIB
        beside.append(Value("budget", "GiB", 2, [budget]))
        if on_gpu:
            beside.append(Value("steps over budget", "", 0, [float(sum(each > budget for each in peaks))]))
        beside += [
            Value("plans", "", 0, [float(report["budget"]["plans"])]),
            Value("recorded steps", "", 0, [float(report["recorded_steps"])]),
            Value("fallbacks", "", 0, [float(sum(report["fallbacks"].values()))]),
        ]
    different = differences(bench, batches, [min(lengths), lengths[0], max(lengths)])
    batches.over()
    beside.append(Value("gradients that differ", "", 0, [float(different)]))
    ratio = Value(row.text, "x", 3, [sum(step_ms) / sum(base_ms)])
    return Figure(f"python_lengths.{row.id}", ratio, row.at_most, full, beside)


def main() -> int:
    program = Program("python/lengths", __doc__)
    program.parser.add_argument("--batches", type=int, default=40, help=f"batches, after {WARM_UP} of warm-up (40)")
    options = program.start()
    full = program.full
    count, warm_up = (options.batches, WARM_UP) if full else (8, 4)
    bench = Bench(program.shape, program.device, options.repeats)
    lengths = lengths_of(bench, warm_up + count)
    program.report.settings["lengths"] = f"{min(lengths)} to {max(lengths)} tokens, {len(lengths)} batches"
    bench.step()  # What libraries allocate once.
    for row in program.chosen(rows(full)):
        progress(f"measuring: {row.text} ...")
        program.report.figures.append(measure(bench, row, lengths, warm_up, full))
        progress(f"  {program.report.figures[-1].found}")
        program.save()
    program.publish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
