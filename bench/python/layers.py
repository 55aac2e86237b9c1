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

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

# Read when CUDA starts; without it deterministic algorithms refuse to multiply matrices.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import transformers  # noqa: E402
from figures import Figure, Report, Value  # noqa: E402
from torch import nn  # noqa: E402

import spillway  # noqa: E402

QUESTION = __doc__.splitlines()[0].removeprefix("Question: ")
QUESTION = QUESTION[0].upper() + QUESTION[1:]
WARM_UP = 5  # A session with rules has a recording step, a verification step and a timed step.
SETTLING = 16  # One with a budget plans up to four times and times steps of each plan.
GIB = 2**30


@dataclasses.dataclass
class Shape:
    layers: int = 16
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    ffn: int = 14336
    tokens: int = 8192
    vocabulary: int = 32000
    dtype: torch.dtype = torch.bfloat16
    small_operators: int = 2000
    min_size: str = "1 MiB"  # Smaller buffers are kept.
    max_size: str = "128 MiB"  # Larger buffers are those of the MLP.
    # With limits of the step time ratio: those of bench/budget plus 2 %.
    budgets: tuple[tuple[str, float], ...] = (("14.4 GiB", 1.03), ("8 GiB", 1.05), ("3 GiB", 1.13))


SMALL = Shape(4, 256, 8, 2, 512, 512, 1000, torch.float32, 300, "64 KiB", "512 KiB", (("60 %", 2.0),))


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


def rows(shape: Shape) -> list[Row]:
    but_last = f'[[rule]]\nlayers = "0..{shape.layers - 2}"\nmin_size = "{shape.min_size}"\naction = "offload"\n'
    small = but_last + f'max_size = "{shape.max_size}"\n'
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
        for each, limit in shape.budgets
    ]


def budget_id(budget: str) -> str:
    """Its name in JSON: "budget_8_gib"."""
    return "budget_" + budget.lower().replace("%", "percent").replace(" ", "_")


def llama(shape: Shape, device: torch.device) -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.tokens,
        use_cache=False,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    default = torch.get_default_dtype()
    torch.set_default_dtype(shape.dtype)
    try:
        with device:
            return transformers.LlamaForCausalLM(config).train()
    finally:
        torch.set_default_dtype(default)


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


@dataclasses.dataclass
class Measured:
    milliseconds: float
    peak: float  # GiB
    loss: torch.Tensor


class Bench:
    def __init__(self, shape: Shape, device: torch.device, repeats: int, fuse: bool) -> None:
        self.shape = shape
        self.fuse = fuse
        self.device = device
        self.repeats = repeats
        self.model = llama(shape, device)
        self.tokens = torch.randint(shape.vocabulary, (1, shape.tokens), device=device)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def now(self) -> float:
        """Milliseconds, after all queued work of the device."""
        self.wait()
        return time.perf_counter() * 1e3

    def loss(self) -> torch.Tensor:
        loss: torch.Tensor = self.model(input_ids=self.tokens, labels=self.tokens).loss
        return loss

    def step(self, session: spillway.Session | None) -> Measured:
        self.model.zero_grad(set_to_none=False)
        cuda = self.device.type == "cuda"
        self.wait()
        before = torch.cuda.memory_allocated(self.device) if cuda else 0
        if cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
        begin = self.now()
        with session.step() if session is not None else contextlib.nullcontext():
            loss = self.loss()
            loss.backward()
        end = self.now()
        peak = (torch.cuda.max_memory_allocated(self.device) - before) / GIB if cuda else 0.0
        return Measured(end - begin, peak, loss.detach())

    def base_parts(self) -> tuple[float, float]:
        """Medians of forward and backward without a session, in milliseconds."""
        forward, backward = [], []
        for _ in range(self.repeats):
            self.model.zero_grad(set_to_none=False)
            begin = self.now()
            loss = self.loss()
            middle = self.now()
            loss.backward()
            forward.append(middle - begin)
            backward.append(self.now() - middle)
        return Value("", "", 0, forward).median, Value("", "", 0, backward).median

    def different(self, session: spillway.Session) -> int:
        """Uses deterministic algorithms, which are slower and therefore not timed."""

        def found(session: spillway.Session | None) -> list[torch.Tensor]:
            loss = self.step(session).loss
            gradients = [parameter.grad for parameter in self.model.parameters()]
            return [each.clone() for each in [loss, *gradients] if each is not None]

        torch.use_deterministic_algorithms(True, warn_only=False)
        try:
            without = found(None)
            return sum(not torch.equal(*pair) for pair in zip(without, found(session)))
        finally:
            torch.use_deterministic_algorithms(False)


@dataclasses.dataclass
class Outcome:
    base: list[float]
    steps: list[float]
    first_step: float
    peak: float
    different: int
    report: dict[str, Any]
    profile: dict[str, Any]
    plan: dict[str, Any]

    @property
    def ratios(self) -> list[float]:
        return [step / base for step, base in zip(self.steps, self.base)]


def run(bench: Bench, row: Row, explain: bool) -> Outcome:
    """Steps without and with the row's session take turns, so that drift affects both."""
    session = spillway.Session(
        bench.model,
        rules=row.rules,
        budget=row.budget,
        plan_in_background=False,
        device=bench.device,
        prepare=row.prepare if bench.device.type == "cuda" else 0,
        fuse_replays=bench.fuse,
    )
    bench.step(None)
    base, steps, peak, first = [], [], 0.0, 0.0
    warm_up = WARM_UP if row.budget is None else SETTLING
    for i in range(warm_up + bench.repeats):
        without, with_session = bench.step(None), bench.step(session)
        if i == 0:
            first = with_session.milliseconds / without.milliseconds
        if i >= warm_up:
            base.append(without.milliseconds)
            steps.append(with_session.milliseconds)
            peak = max(peak, with_session.peak)
    report = session.report().to_dict()
    different = bench.different(session)
    if explain:
        print(session.explain(), file=sys.stderr)
    profile, plan = json.loads(session.profile_json() or "{}"), json.loads(session.plan_json() or "{}")
    return Outcome(base, steps, first, peak, different, report, profile, plan)


def row_figure(row: Row, outcome: Outcome, judged: bool) -> Figure:
    report = outcome.report
    return Figure(
        f"python_layers.{row.id}",
        Value(row.text, "x", 3, outcome.ratios),
        row.at_most,
        judged,
        [
            Value("step", "ms", 1, outcome.steps),
            Value("without", "ms", 1, outcome.base),
            Value("peak", "GiB", 2, [outcome.peak]),
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
    plan, step = outcome.plan, Value("", "", 0, outcome.steps).median
    error = 100 * (plan["predicted_step_ns"] / 1e6 / step - 1)
    peak = Value("its peak", "GiB", 3, [outcome.peak])
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
    found = Value("its peak", "GiB", 2, [outcome.peak])
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
        Value("the same, compared with what the link allows", "x", 3, [step / limit for step in outcome.steps]),
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


def host_cost_figure(shape: Shape, device: torch.device, repeats: int, judged: bool) -> Figure:
    """With kernels so small that the host determines the time."""
    model = SmallOperators(shape.small_operators, device)
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
    parser = argparse.ArgumentParser(description=QUESTION, epilog="The top of this file says how to read the answer.")
    parser.add_argument("--small", action="store_true", help="a small model, also on the CPU: seconds, not judged")
    parser.add_argument("--explain", action="store_true", help="print the plan of every row")
    parser.add_argument("--no-fuse", dest="fuse", action="store_false",
                        help="recompute consecutive elementwise operators with one kernel each")  # fmt: skip
    parser.add_argument("--repeats", type=int, default=7, help="timed steps of each row (7)")
    parser.add_argument("--row", action="append", help="measure this row only, by its name in JSON; may be given again")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--markdown", type=Path, help="write the table as Markdown")
    parser.add_argument("--commit", default="", help="commit to name in the results (default: ask git)")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats: must be at least 1")

    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    judged = device.type == "cuda" and not options.small
    shape = Shape() if judged else SMALL
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    settings = {"layers": shape.layers, "hidden": shape.hidden, "tokens": shape.tokens, "replays fused": options.fuse, **versions}
    report = Report("python/layers", QUESTION, device, options.commit, settings)

    print("measuring: host cost per saved tensor ...", file=sys.stderr)
    host_cost = host_cost_figure(shape, device, options.repeats, judged)
    bench = Bench(shape, device, options.repeats, options.fuse)
    first_steps = []
    known = {row.id: row for row in rows(shape)}
    if unknown := set(options.row or []) - set(known):
        parser.error(f"--row: there is no {', '.join(sorted(unknown))}, only {', '.join(known)}")
    for row in [known[name] for name in options.row or known]:
        print(f"measuring: {row.text} ...", file=sys.stderr)
        outcome = run(bench, row, options.explain)
        print(f"  {Value('', '', 0, outcome.ratios).median:.3f}x, {outcome.peak:.2f} GiB", file=sys.stderr)
        first_steps.append(outcome.first_step)
        report.figures.append(row_figure(row, outcome, judged))
        peak = peak_figure(row, outcome, judged)
        report.figures += [peak] if peak is not None else []
        report.figures += budget_figures(row, outcome, judged)
        if row.id == "all":
            limit = limit_figure(outcome, bench.base_parts(), judged)
            report.figures += [limit] if limit is not None else []
    first = Value("the first step of each row, which is recorded", "x", 2, first_steps)
    report.figures.append(Figure("python_layers.first_step", first, 3.0, judged))
    report.figures.append(host_cost)
    base_peak = Value("peak without Spillway", "GiB", 2, [bench.step(None).peak])
    report.figures.append(Figure("python_layers.base_peak", base_peak))

    report.notes.append("Gradients are compared under deterministic algorithms, times taken without them.")
    if not judged:
        report.notes.append("Not judged: a small model, or no GPU.")
    print(report.to_text(), end="")
    write(options.out, json.dumps(report.to_dict(), indent=2) + "\n")
    write(options.markdown, report.to_markdown())
    return 0


def write(path: Path | None, text: str) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
