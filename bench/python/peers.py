#!/usr/bin/env python3
"""Question: what do budgets cost beside other ways to save activation memory, on an unmodified Llama of transformers?

How to read it: every row trains the same model on the same tokens, in turns without and with what it is about; its
figure is the median ratio of the two. "without" is the eager model, or, for rows of compiled layers, the same layers
compiled with nothing recomputed. "peak" is the maximum of torch's own statistics in a step, less what was allocated
before it (weights, gradients); on the CPU it is counted from the allocations that torch's profiler sees in one step.
"gradients that differ" counts those that differ in a bit from those without, including the loss.

- Rows within a budget are sessions of Spillway that are given the budget and nothing else.
- Checkpointing is torch.utils.checkpoint around each layer, without reentry; selective: what is kept is given to
  create_selective_checkpoint_contexts(), by operator.
- Offloaded inputs: torch.autograd.graph.save_on_cpu(pin_memory=True) around each checkpoint. The same around the whole
  forward is "everything offloaded"; it copies weights that autograd saves, too. It waits for each copy.
- Compiled: torch.compile of each layer, without graph breaks, by inductor (with --small: aot_eager, to be fast). A row
  fails, and the command with it, if a layer runs without its graph, if Dynamo's recompile limit is hit, or if anything
  is compiled in a timed step: none of them is a figure of compiled layers.
- Rows whose library is missing are skipped, and say so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config
from figures import Figure, Value
from llama_bench import (
    GIB,
    Bench,
    Checkpointed,
    Measured,
    Program,
    Turns,
    budget_id,
    layers_replaced,
    progress,
    take_turns,
    warm_up,
)
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import create_selective_checkpoint_contexts

import spillway

ATEN = torch.ops.aten
ATTENTION = [
    ATEN._scaled_dot_product_flash_attention.default,
    ATEN._scaled_dot_product_efficient_attention.default,
    ATEN._scaled_dot_product_cudnn_attention.default,
    ATEN._scaled_dot_product_flash_attention_for_cpu.default,
]
MATRIX_PRODUCTS = [ATEN.mm.default, ATEN.addmm.default, ATEN.bmm.default]


class RowFailed(Exception):
    """A row is not what its name says."""


class Backend:
    """A backend of torch.compile that counts what it compiles and runs. Each way has its own and so its own graphs."""

    def __init__(self, name: str, memory_budget: float, device: torch.device) -> None:
        self.compiled = 0
        self.runs = 0
        self._compile = lookup_backend(name)
        # torch's flop counter, its default, refuses attention with fewer key than query heads.
        self._settings: dict[str, Any] = {
            "activation_memory_budget": memory_budget,
            "activation_memory_budget_runtime_estimator": "profile" if device.type == "cuda" else "flops",
        }

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        self.compiled += 1
        with torch._functorch.config.patch(self._settings):
            compiled = self._compile(graph, inputs)

        def run(*arguments: Any) -> Any:
            self.runs += 1
            return compiled(*arguments)

        return run


def saving(layer: nn.Module, kept: list[Any]) -> Checkpointed:
    """The layer, checkpointed but for the outputs of the operators in `kept`."""
    return Checkpointed(layer, context_fn=functools.partial(create_selective_checkpoint_contexts, kept))


class InputOffloaded(Checkpointed):
    """A checkpointed layer whose input is in host memory between forward and backward."""

    def forward(self, hidden_states: torch.Tensor, **others: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return super().forward(hidden_states, **others)


AroundForward = Callable[[], contextlib.AbstractContextManager[Any]]


class Way:
    """A way to run the model's layers."""

    def __init__(
        self,
        bench: Bench,
        wrap: Callable[[nn.Module], nn.Module] = lambda layer: layer,
        backend: Backend | None = None,
        around_forward: AroundForward = contextlib.nullcontext,
    ) -> None:
        self._bench = bench
        self._backend = backend
        self._around_forward = around_forward
        self._decoder = bench.model.get_submodule("model")
        self._layers = nn.ModuleList(self._wrapped(wrap, layer) for layer in self._decoder.layers)

    @property
    def compiled(self) -> int:
        """Graphs compiled so far."""
        return self._backend.compiled if self._backend is not None else 0

    def installed(self) -> contextlib.AbstractContextManager[None]:
        return layers_replaced(self._decoder, self._layers)

    def step(self, session: spillway.Session | None = None) -> Measured:
        before = self._backend.runs if self._backend is not None else 0
        with self.installed():
            measured = self._bench.step(session, self._around_forward())
        if self._backend is not None and (ran := self._backend.runs - before) != len(self._layers):
            raise RowFailed(f"{ran} of {len(self._layers)} layers ran compiled")
        return measured

    def _wrapped(self, wrap: Callable[[nn.Module], nn.Module], layer: nn.Module) -> nn.Module:
        wrapped = wrap(layer)
        if self._backend is None:
            return wrapped
        return torch.compile(wrapped, fullgraph=True, dynamic=False, backend=self._backend)


class Ways:
    """The ways by name. Each is made when first used, once."""

    def __init__(self, bench: Bench, compiler: str) -> None:
        def compiled(memory_budget: float = 1.0, **options: Any) -> Way:
            return Way(bench, backend=Backend(compiler, memory_budget, bench.device), **options)

        products = functools.partial(saving, kept=MATRIX_PRODUCTS + ATTENTION)
        self._makers: dict[str, Callable[[], Way]] = {
            "eager": lambda: Way(bench),
            "selective_products": lambda: Way(bench, products),
            "selective_attention": lambda: Way(bench, functools.partial(saving, kept=ATTENTION)),
            "full": lambda: Way(bench, Checkpointed),
            "full_offload": lambda: Way(bench, InputOffloaded),
            "save_on_cpu": lambda: Way(bench, around_forward=lambda: save_on_cpu(pin_memory=True)),
            "trl": lambda: Way(bench, around_forward=_offload_of_trl(bench)),
            "compiled": compiled,
            "compiled_half": lambda: compiled(0.5),
            "compiled_fifth": lambda: compiled(0.2),
            "compiled_selective": lambda: compiled(wrap=products),
        }
        self._made: dict[str, Way] = {}

    def __getitem__(self, name: str) -> Way:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]


def _offload_of_trl(bench: Bench) -> AroundForward:
    from trl.models.activation_offloading import OffloadActivations

    offload = OffloadActivations()
    offload.update_model_params(bench.model)
    return lambda: offload


@dataclasses.dataclass
class Row:
    id: str
    text: str
    way: str
    budget: str | None = None
    needs: str | None = None  # A package, and a CUDA device to run it on.

    @property
    def without(self) -> str:
        return "compiled" if self.way.startswith("compiled_") else "eager"

    def missing(self, device: torch.device) -> str | None:
        """Why it cannot be measured here."""
        if self.needs is None:
            return None
        if importlib.util.find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return None if device.type == "cuda" else f"{self.needs} needs a CUDA device"


def rows(full: bool) -> list[Row]:
    """From much memory to little."""

    def budget(size: str) -> Row:
        return Row(budget_id(size), f"Spillway, budget of {size}", "eager", size)

    on_top = "8 GiB" if full else "80 %"
    return [
        Row("compiled", "compiled layers", "compiled"),
        budget("14.4 GiB" if full else "60 %"),
        Row("selective_products", "selective checkpointing, matrix products and attention kept", "selective_products"),
        Row("compiled_selective", "the same inside compiled layers", "compiled_selective"),
        Row("compiled_half", "torch.compile, activation_memory_budget 0.5", "compiled_half"),
        *([budget("12 GiB"), budget("8 GiB")] if full else []),
        Row("compiled_selective_" + budget_id(on_top), "compiled layers with selective checkpointing, Spillway on top, "
            f"budget of {on_top}", "compiled_selective", on_top),  # fmt: skip
        Row("compiled_fifth", "torch.compile, activation_memory_budget 0.2", "compiled_fifth"),
        *([budget("6 GiB")] if full else []),
        Row("selective_attention", "selective checkpointing, attention kept", "selective_attention"),
        *([budget("3 GiB")] if full else []),
        Row("full", "full checkpointing", "full"),
        *([budget("2 GiB")] if full else []),
        Row("full_offload", "full checkpointing, its inputs offloaded by save_on_cpu", "full_offload"),
        Row("save_on_cpu", "everything offloaded by save_on_cpu, weights too", "save_on_cpu"),
        Row("trl", "everything offloaded by TRL", "trl", needs="trl"),
    ]


@dataclasses.dataclass
class Outcome:
    turns: Turns
    different: int
    report: dict[str, Any] | None  # Of the session.
    plan: dict[str, Any] | None


def run(bench: Bench, ways: Ways, row: Row, full: bool) -> Outcome:
    base, way = ways[row.without], ways[row.way]
    base.step(), way.step()  # What is compiled is compiled before a session records.
    session = None
    if row.budget is not None:
        with way.installed():
            session = bench.session("24 GiB", budget=row.budget)

    def step() -> Measured:
        return way.step(session)

    take_turns(base.step, step, warm_up(full, session is not None, session is not None))
    compiled = base.compiled + way.compiled
    turns = take_turns(base.step, step, bench.repeats)
    if base.compiled + way.compiled != compiled:
        raise RowFailed(f"{base.compiled + way.compiled - compiled} graphs were compiled in timed steps")
    report, plan = None, None
    if session is not None:
        report, plan = session.report().to_dict(), json.loads(session.plan_json() or "{}")
    if bench.device.type == "cpu":
        turns.base_peak, turns.peak = host_peak(base.step), host_peak(step)
    return Outcome(turns, bench.different(base.step, step), report, plan)


def host_peak(step: Callable[[], Measured]) -> float:
    """GiB that a step has allocated on the CPU at most, beyond what was there before it."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
        step()
    results = profile.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in results if event.name() == "[memory]")
    now = peak = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak / GIB


def figure_of(row: Row, outcome: Outcome) -> Figure:
    turns = outcome.turns
    beside = [
        Value("step", "ms", 1, turns.step_ms),
        Value("without", "ms", 1, turns.base_ms),
        Value("peak", "GiB", 3, [turns.peak]),
        Value("peak without", "GiB", 3, [turns.base_peak]),
        Value("gradients that differ", "", 0, [float(outcome.different)]),
    ]
    if outcome.report is not None and outcome.plan is not None:
        beside += [
            Value("predicted ratio", "x", 3, [outcome.plan["predicted_step_ns"] / outcome.plan["base_step_ns"]]),
            Value("predicted peak", "GiB", 3, [outcome.plan["predicted_peak"] / GIB]),
            Value("budget", "GiB", 3, [outcome.plan["budget"] / GIB]),
            Value("fallbacks", "", 0, [float(sum(outcome.report["fallbacks"].values()))]),
        ]
    return Figure(f"python_peers.{row.id}", Value(row.text, "x", 3, turns.ratios), beside=beside)


def main() -> int:
    program = Program("python/peers", __doc__)
    options = program.start()
    device, report = program.device, program.report
    compiler = report.settings["compiler"] = "inductor" if program.full else "aot_eager"
    chosen = program.chosen(rows(program.full))
    # Graphs of all ways belong to the same code, two for each of them: deterministic algorithms are compiled again.
    torch._dynamo.config.recompile_limit = 16 * program.shape.layers
    torch._dynamo.config.accumulated_recompile_limit = 256 * program.shape.layers
    torch._dynamo.config.fail_on_recompile_limit_hit = True

    bench = Bench(program.shape, device, options.repeats)
    ways = Ways(bench, compiler)
    failed = False
    for row in chosen:
        if missing := row.missing(device):
            report.notes.append(f"Skipped: {row.text}: {missing}.")
            progress(f"skipped: {row.text}: {missing}")
            continue
        progress(f"measuring: {row.text} ...")
        try:
            outcome = run(bench, ways, row, program.full)
        except (RowFailed, torch._dynamo.exc.TorchDynamoException) as error:
            reason = " / ".join(line for line in str(error).splitlines() if line.strip())[:300]
            report.notes.append(f"Failed: {row.text}: {reason}.")
            progress(f"failed: {row.text}: {reason}")
            failed = True
            continue
        progress(f"  {outcome.turns}")
        report.figures.append(figure_of(row, outcome))
        program.save()  # All rows take long; a run that is stopped has those that it has measured.
    program.publish()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
