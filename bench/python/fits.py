#!/usr/bin/env python3
"""Question: do models train whose activations do not fit, from the first step on, and how fast beside checkpointing?

How to read it: every row trains an unmodified Llama of transformers of 8 billion parameters on so many tokens that
autograd's activations do not fit on the device; its figure is the time of a step with a session (`budget="auto"`)
over that of a step with full checkpointing in the same run, after the plan is made. A row whose session runs out of
memory has no figure, and says in which step. "first step" is the recording step, over a step with checkpointing.
"peak" is the maximum of torch's own statistics in a step, less what was allocated before it; "highest" is that of any
step of the session. "gradients that differ" counts those that differ in a bit from those with checkpointing, under
deterministic algorithms. --small: a small model that would fit, within 60 % of its activations.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import sys

import torch
from figures import Figure, Value
from llama_bench import Bench, Checkpointed, Measured, Program, Shape, layers_replaced, progress
from torch import nn

import spillway


@dataclasses.dataclass
class Row:
    id: str
    text: str
    tokens: int
    at_most: float
    lora: bool = False


def rows(full: bool) -> list[Row]:
    def tokens(count: int) -> int:
        return count if full else 256

    return [
        Row("all_32k", f"all weights, {tokens(32768)} tokens", tokens(32768), 0.85),
        Row("lora_64k", f"LoRA, {tokens(65536)} tokens", tokens(65536), 0.88, lora=True),
    ]


class Model:
    """A Llama, with checkpointed layers beside its own."""

    def __init__(self, shape: Shape, row: Row, device: torch.device, repeats: int) -> None:
        self.bench = Bench(dataclasses.replace(shape, tokens=row.tokens), device, repeats)
        if row.lora:
            import peft

            config = peft.LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
            self.bench.model = peft.get_peft_model(self.bench.model, config)
            # Without it no gradient would reach the input of a checkpointed layer.
            self.bench.model.enable_input_require_grads()
            self.bench.parameters = [each for each in self.bench.model.parameters() if each.requires_grad]
        base = self.bench.model.get_base_model() if row.lora else self.bench.model
        self._decoder = base.get_submodule("model")
        self._checkpointed = nn.ModuleList(Checkpointed(layer) for layer in self._decoder.layers)

    def checkpointed(self) -> Measured:
        with layers_replaced(self._decoder, self._checkpointed):
            return self.bench.step()


def measure(program: Program, row: Row, repeats: int, compare: bool) -> Figure | None:
    full, device = program.full, program.device
    model = Model(dataclasses.replace(program.shape, layers=32) if full else program.shape, row, device, repeats)
    bench = model.bench
    model.checkpointed()
    checkpointed = [model.checkpointed() for _ in range(repeats)]
    base = Value("with checkpointing", "ms", 0, [each.milliseconds for each in checkpointed])
    session = spillway.Session(bench.model, budget="auto" if full else "60 %", device=device)
    steps: list[Measured] = []
    try:
        while len(steps) < 4:  # Recorded, planned meanwhile, verified.
            steps.append(bench.step(session))
            progress(f"  step {len(steps)}: {steps[-1].milliseconds / base.median:.2f} x, {steps[-1].peak:.1f} GiB")
        session.wait_for_plan()
        for _ in range(3 + repeats):
            steps.append(bench.step(session))
        different = bench.different(model.checkpointed, lambda: bench.step(session)) if compare else -1
    except torch.cuda.OutOfMemoryError as error:
        program.report.notes.append(f"Failed: {row.text}: out of memory in step {len(steps) + 1} ({str(error)[:120]}).")
        progress(program.report.notes[-1])
        return None
    timed = steps[-repeats:]
    report = session.report().to_dict()
    beside = [
        Value("step", "ms", 0, [each.milliseconds for each in timed]),
        base,
        Value("first step", "x", 2, [steps[0].milliseconds / base.median]),
        Value("fallbacks", "", 0, [float(sum(report["fallbacks"].values()))]),
    ]
    if device.type == "cuda":
        beside += [
            Value("peak", "GiB", 1, [max(each.peak for each in timed)]),
            Value("highest", "GiB", 1, [max(each.peak for each in steps)]),
            Value("with checkpointing, peak", "GiB", 1, [max(each.peak for each in checkpointed)]),
        ]
    if compare:
        beside.append(Value("gradients that differ", "", 0, [float(different)]))
    ratios = [each.milliseconds / base.median for each in timed]
    return Figure(f"python_fits.{row.id}", Value(row.text, "x", 3, ratios), row.at_most, full, beside)


def main() -> int:
    program = Program("python/fits", __doc__)
    program.parser.add_argument("--no-compare", dest="compare", action="store_false",
                                help="compare no bits: deterministic algorithms take long")  # fmt: skip
    options = program.start()
    failed = False
    for row in program.chosen(rows(program.full)):
        if row.lora and importlib.util.find_spec("peft") is None:
            program.report.notes.append(f"Skipped: {row.text}: peft is not installed.")
            continue
        progress(f"measuring: {row.text} ...")
        figure = measure(program, row, options.repeats, options.compare)
        gc.collect()
        if program.device.type == "cuda":
            torch.cuda.empty_cache()
        failed = failed or figure is None
        program.report.figures += [figure] if figure is not None else []
        program.save()
    program.publish()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
