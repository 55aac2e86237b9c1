"""What the benchmarks of this folder share: a Llama of transformers, steps in turns, the command line."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

# Read when CUDA starts; without it deterministic algorithms refuse to multiply matrices.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import transformers  # noqa: E402
from figures import Report  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import spillway  # noqa: E402

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


SMALL = Shape(4, 256, 8, 2, 512, 256, 1000, torch.float32)


def warm_up(full: bool, session: bool, budget: bool = False) -> int:
    """Steps before the timed ones. A small run only needs a plan that is carried out."""
    if full:
        return SETTLING if budget else WARM_UP
    return 4 if session else 1


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


class Checkpointed(nn.Module):
    """A layer that is recomputed in backward. `options`: of torch.utils.checkpoint.checkpoint()."""

    def __init__(self, layer: nn.Module, **options: Any) -> None:
        super().__init__()
        self.layer = layer
        self._options = options

    def forward(self, hidden_states: torch.Tensor, **others: Any) -> Any:
        return checkpoint(self.layer, hidden_states, use_reentrant=False, **self._options, **others)


@contextlib.contextmanager
def layers_replaced(decoder: nn.Module, layers: nn.ModuleList) -> Iterator[None]:
    """The decoder has these layers meanwhile."""
    original = decoder.layers
    decoder.layers = layers
    try:
        yield
    finally:
        decoder.layers = original


def budget_id(budget: str) -> str:
    """Its name in JSON: "budget_8_gib"."""
    return "budget_" + budget.lower().replace("%", "percent").replace(" ", "_")


class Named(Protocol):
    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=Named)


@dataclasses.dataclass
class Measured:
    milliseconds: float
    peak: float  # GiB
    loss: torch.Tensor


@dataclasses.dataclass
class Turns:
    """Steps without and with something, one after the other, so that drift affects both."""

    base_ms: list[float]
    step_ms: list[float]
    base_peak: float  # GiB
    peak: float

    @property
    def ratios(self) -> list[float]:
        return [step / base for step, base in zip(self.step_ms, self.base_ms)]

    def __str__(self) -> str:
        return f"{statistics.median(self.ratios):.3f} x, {self.peak:.2f} GiB"


class Bench:
    def __init__(self, shape: Shape, device: torch.device, repeats: int) -> None:
        self.shape = shape
        self.device = device
        self.repeats = repeats
        self.model = llama(shape, device)
        self.parameters = list(self.model.parameters())
        self.tokens = torch.randint(shape.vocabulary, (1, shape.tokens), device=device)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def now(self) -> float:
        """Milliseconds, after all queued work of the device."""
        self.wait()
        return time.perf_counter() * 1e3

    def session(self, prepare: str, **options: Any) -> spillway.Session:
        """A session that plans between steps, with as much host memory pinned at start, on CUDA, as `prepare` says."""
        cuda = self.device.type == "cuda"
        return spillway.Session(
            self.model, plan_in_background=False, device=self.device, prepare=prepare if cuda else 0, **options
        )

    def loss(self) -> torch.Tensor:
        loss: torch.Tensor = self.model(input_ids=self.tokens, labels=self.tokens).loss
        return loss

    def step(
        self,
        session: spillway.Session | None = None,
        around_forward: contextlib.AbstractContextManager[Any] | None = None,
    ) -> Measured:
        self.model.zero_grad(set_to_none=False)
        cuda = self.device.type == "cuda"
        self.wait()
        before = torch.cuda.memory_allocated(self.device) if cuda else 0
        if cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
        begin = self.now()
        with session.step() if session is not None else contextlib.nullcontext():
            with around_forward or contextlib.nullcontext():
                loss = self.loss()
            loss.backward()
        end = self.now()
        peak = (torch.cuda.max_memory_allocated(self.device) - before) / GIB if cuda else 0.0
        return Measured(end - begin, peak, loss.detach())

    def different(self, without: Callable[[], Measured], with_it: Callable[[], Measured]) -> int:
        """How many gradients, the loss included, differ in a bit. Uses deterministic algorithms, which are slower and
        therefore not timed."""

        def found(step: Callable[[], Measured]) -> list[torch.Tensor]:
            loss = step().loss
            gradients = [parameter.grad for parameter in self.parameters]
            return [each.clone() for each in [loss, *gradients] if each is not None]

        torch.use_deterministic_algorithms(True, warn_only=False)
        try:
            base = found(without)
            return sum(not torch.equal(*pair) for pair in zip(base, found(with_it), strict=True))
        finally:
            torch.use_deterministic_algorithms(False)


def take_turns(without: Callable[[], Measured], with_it: Callable[[], Measured], count: int) -> Turns:
    turns = Turns([], [], 0.0, 0.0)
    for _ in range(count):
        base, step = without(), with_it()
        turns.base_ms.append(base.milliseconds)
        turns.step_ms.append(step.milliseconds)
        turns.base_peak = max(turns.base_peak, base.peak)
        turns.peak = max(turns.peak, step.peak)
    return turns


class Program:
    """A benchmark's command line and report. Its options may be added to `parser` before start()."""

    def __init__(self, bench: str, document: str | None) -> None:
        question = (document or "").splitlines()[0].removeprefix("Question: ")
        self._bench = bench
        self._question = question[0].upper() + question[1:]
        self.parser = argparse.ArgumentParser(
            description=self._question, epilog="The top of this file says how to read the answer."
        )
        add = self.parser.add_argument
        add("--small", action="store_true", help="a small model, also on the CPU: seconds, not judged")
        add("--repeats", type=int, default=7, help="timed steps of each row (7)")
        add("--row", action="append", help="measure this row only, by its name in JSON; may be given again")
        add("--out", type=Path, help="write the results as JSON")
        add("--markdown", type=Path, help="write the table as Markdown")
        add("--commit", default="", help="commit to name in the results (default: ask git)")

    def start(self) -> argparse.Namespace:
        """Reads the command line. Then there are `device`, `shape` and `report`, and `full` says whether this is a run
        that limits are meant for: the whole model, on a GPU."""
        self._options = self.parser.parse_args()
        if self._options.repeats < 1:
            self.parser.error("--repeats: must be at least 1")
        self.device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        self.full = self.device.type == "cuda" and not self._options.small
        self.shape = Shape() if self.full else SMALL
        settings = {
            "layers": self.shape.layers,
            "hidden": self.shape.hidden,
            "tokens": self.shape.tokens,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        self.report = Report(self._bench, self._question, self.device, self._options.commit, settings)
        return self._options

    def chosen(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that the command line names, or all."""
        known = {row.id: row for row in rows}
        names = self._options.row or known
        if unknown := set(names) - set(known):
            self.parser.error(f"--row: there is no {', '.join(sorted(unknown))}, only {', '.join(known)}")
        return [known[name] for name in names]

    def publish(self) -> None:
        """Prints the report, and writes the files that the command line names."""
        report = self.report
        report.notes.append("Gradients are compared under deterministic algorithms, times taken without them.")
        if not self.full:
            report.notes.append("Not judged: a small model, or no GPU.")
        print(report.to_text(), end="")
        self.save()

    def save(self) -> None:
        """Writes the files that the command line names, with what has been measured so far."""
        _write(self._options.out, json.dumps(self.report.to_dict(), indent=2) + "\n")
        _write(self._options.markdown, self.report.to_markdown())


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
