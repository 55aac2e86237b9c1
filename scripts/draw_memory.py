#!/usr/bin/env python3
"""Draws the device memory over a step, without and with Spillway, as an SVG that reads well on light and dark pages.

The input is two traces that `spillway train --trace` wrote: one of a step in which everything is kept, one of a step
within a budget. The counter "device memory" of the process "measured" is drawn; --process predicted draws what the
simulator predicts instead. Times count from the begin of each step, bytes from what was allocated before it. --shares
draws times as shares of each step, for machines on which two runs do not take the same time.

The picture in docs/images/memory-over-a-step.svg was made by (docs/results.md says where):

  scripts/draw_memory.py --run build/release/bin/spillway --budget 33% --shares -o docs/images/memory-over-a-step.svg
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 880, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 20, 44, 52
# A session that keeps everything: the memory of a step without Spillway, in a trace of the same form.
KEEP = '[[rule]]\naction = "keep"\n'
MODEL = (
    "--layers 8 --hidden 256 --heads 8 --ffn 704 --tokens 512 --vocabulary 512 --steps 12 "
    "--set train.micro_batches=1 --set train.micro_batch_size=4"
).split()

# One set of colours, of a lightness that stands out from white and from black: pages and systems may differ in theme.
STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #747c85 }
.axis { stroke: #808890; stroke-width: 1; fill: none }
.grid { stroke: #808890; stroke-width: 1; stroke-opacity: 0.25 }
.without { stroke: #cf6a32; fill: #cf6a32 }
.with { stroke: #2f81d8; fill: #2f81d8 }
.curve { fill-opacity: 0.16; stroke-width: 2; stroke-linejoin: round }
.budget { stroke: #808890; stroke-width: 1.5; stroke-dasharray: 6 5 }
text.without, text.with { stroke: none; font-weight: 600 }
.right { text-anchor: end } .middle { text-anchor: middle }
"""


class TraceError(Exception):
    """A trace that cannot be drawn."""


class Step(NamedTuple):
    """A step's memory: (milliseconds, bytes allocated from then on), and when its backward begins and it ends."""

    points: list[tuple[float, float]]
    backward_ms: float | None
    end_ms: float

    @property
    def peak(self) -> float:
        return max(size for _, size in self.points)


def read_step(path: Path, process: str) -> Step:
    try:
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path} is no trace: {error}") from error
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    numbers = [pid for pid, name in names.items() if name == process]
    if not numbers:
        raise TraceError(f"{path} has no process {process!r}; it has {', '.join(sorted(names.values())) or 'none'}")
    own = [e for e in events if e["pid"] == numbers[0]]
    counter = sorted((e["ts"], e["args"]["bytes"]) for e in own if e["ph"] == "C" and e["name"] == "device memory")
    if not counter:
        raise TraceError(f"{path} has no counter 'device memory' in process {process!r}")
    spans = [e for e in own if e["ph"] == "X"]
    begin = min([counter[0][0], *(e["ts"] for e in spans)])
    end = max([counter[-1][0], *(e["ts"] + e["dur"] for e in spans)])
    backward = [e["ts"] for e in spans if e.get("cat") == "backward"]
    return Step(
        [((ts - begin) / 1000, size) for ts, size in counter],
        (min(backward) - begin) / 1000 if backward else None,
        (end - begin) / 1000,
    )


def read_budget(text: str, whole: float) -> float:
    """Bytes of "33%", of `whole`, or of "8 GiB"."""
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "B": 1}
    for unit, factor in units.items():
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    return float(text.rstrip("% ")) / (100 if "%" in text else 1) * whole


def size_text(size: float) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            number = size / factor
            return f"{number:.0f} {unit}" if number >= 100 else f"{number:.1f} {unit}"
    return f"{size:.0f} B"


def round_steps(most: float, count: int, bases: tuple[float, ...]) -> float:
    """The smallest distance, one of `bases` times a power of them, that cuts `most` into at most `count` parts."""
    scale = 1.0
    while True:
        for base in bases:
            if most / (base * scale) <= count:
                return base * scale
        scale *= bases[-1]


def in_shares(step: Step) -> Step:
    """The same with times in percent of the step."""
    scale = 100 / step.end_ms
    return Step(
        [(ms * scale, size) for ms, size in step.points],
        None if step.backward_ms is None else step.backward_ms * scale,
        100,
    )


def thinned(points: list[tuple[float, float]], width: float) -> list[tuple[float, float]]:
    """Of the points in each stretch of `width` the highest and the last: more cannot be seen."""
    kept: list[tuple[float, float]] = []
    stretch: list[tuple[float, float]] = []
    for point in [*points, None]:
        if stretch and (point is None or int(point[0] / width) != int(stretch[0][0] / width)):
            top = max(stretch, key=lambda each: each[1])
            kept += [top] if top == stretch[-1] else [top, stretch[-1]]
            stretch = []
        if point is not None:
            stretch.append(point)
    return kept


def draw(without: Step, with_budget: Step, budget: float | None, budget_text: str, what: str, time: str) -> str:
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    last = max(without.end_ms, with_budget.end_ms)
    most = max(without.peak, with_budget.peak) * 1.06

    def x(ms: float) -> float:
        return LEFT + ms / last * width

    def y(size: float) -> float:
        return TOP + height - size / most * height

    out: list[str] = []
    unit, factor = next(u for u in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)) if most >= u[1])
    step = round_steps(most / factor, 6, (1, 2, 5, 10))
    for i in range(int(most / factor / step) + 1):
        level = y(i * step * factor)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + width}" y1="{level:.1f}" y2="{level:.1f}"/>')
        out.append(f'<text class="right" x="{LEFT - 8}" y="{level + 5:.1f}">{i * step:g}</text>')
    out.append(f'<text class="right" x="{LEFT - 8}" y="{TOP - 22}">{unit}</text>')
    step = round_steps(last, 8, (1, 2, 5, 10))
    for i in range(int(last / step) + 1):
        out.append(f'<text class="middle" x="{x(i * step):.1f}" y="{TOP + height + 20}">{i * step:g}</text>')
    out.append(f'<text class="right" x="{LEFT + width}" y="{TOP + height + 42}">{time}</text>')
    out.append(f'<text x="{LEFT}" y="{TOP + height + 42}">{escape(what)}</text>')

    for name, found in (("without", without), ("with", with_budget)):
        # A value holds from its point until the next one.
        path = [f"M{x(0):.1f},{y(0):.1f}"]
        for ms, size in thinned(found.points, last / width):
            path.append(f"H{x(ms):.1f}V{y(size):.1f}")
        path.append(f"H{x(found.end_ms):.1f}V{y(0):.1f}")
        out.append(f'<path class="curve {name}" d="{"".join(path)}"/>')
    if budget is not None:
        out.append(
            f'<line class="budget" x1="{LEFT}" x2="{LEFT + width}" y1="{y(budget):.1f}" y2="{y(budget):.1f}"/>'
            f'<text class="right" x="{LEFT + width}" y="{y(budget) - 6:.1f}">budget: {escape(budget_text)}</text>'
        )
    out.append(f'<path class="axis" d="M{LEFT},{TOP}V{TOP + height}H{LEFT + width}"/>')
    texts = (
        ("without", f"without Spillway: peak {size_text(without.peak)}"),
        ("with", f"with Spillway: peak {size_text(with_budget.peak)}"),
    )
    for i, (name, text) in enumerate(texts):
        at = LEFT + i * 300
        out.append(f'<rect class="{name}" x="{at}" y="{TOP - 33}" width="14" height="14"/>')
        out.append(f'<text class="{name}" x="{at + 20}" y="{TOP - 21}">{text}</text>')
    described = f"Device memory over a training step. {texts[0][1]}; {texts[1][1]}."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        f"<title>{escape(described)}</title>\n<style>{STYLE}</style>\n" + "\n".join(out) + "\n</svg>\n"
    )


def make_traces(program: Path, budget: str, model: list[str], folder: Path) -> tuple[Path, Path]:
    """Trains twice: with everything kept, and within the budget."""
    rules, kept, within = folder / "keep.toml", folder / "without.json", folder / "with.json"
    rules.write_text(KEEP, encoding="utf-8")
    for options in (["--rules", str(rules), "--trace", str(kept)], ["--budget", budget, "--trace", str(within)]):
        command = [str(program), "train", *model, *options]
        print(" ".join(command))
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return kept, within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE", help="of a step without, and of one with")
    parser.add_argument("--run", type=Path, metavar="PROGRAM", help="make the traces with this spillway program")
    parser.add_argument("--model", metavar="OPTIONS", help=f"options of `spillway train` for --run: {' '.join(MODEL)}")
    parser.add_argument("--budget", default="", help="33%% or 8GiB; drawn as a line, and the budget of --run")
    parser.add_argument("--process", default="measured", choices=("measured", "predicted"), help="which curve")
    parser.add_argument("--shares", action="store_true", help="draw times as shares of each step")
    parser.add_argument("--what", default="forward and backward of one step", help="text below the picture")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the SVG to write")
    options = parser.parse_args()
    if bool(options.run) == bool(options.traces) or (options.traces and len(options.traces) != 2):
        parser.error("give two traces, or --run and --budget")
    if options.run and not options.budget:
        parser.error("--run needs --budget")
    try:
        with tempfile.TemporaryDirectory() as folder:
            traces = options.traces
            if options.run:
                model = options.model.split() if options.model else MODEL
                traces = make_traces(options.run, options.budget, model, Path(folder))
            without, within = (read_step(path, options.process) for path in traces)
        budget = read_budget(options.budget, without.peak) if options.budget else None
        options.out.parent.mkdir(parents=True, exist_ok=True)
        drawn = (in_shares(without), in_shares(within)) if options.shares else (without, within)
        time = "time, % of each step" if options.shares else "time in the step, ms"
        options.out.write_text(draw(*drawn, budget, options.budget, options.what, time), encoding="utf-8")
    except (TraceError, ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"draw_memory: {error}", file=sys.stderr)
        return 1
    print(
        f"{options.out}: {size_text(without.peak)} in {without.end_ms:.1f} ms without, "
        f"{size_text(within.peak)} in {within.end_ms:.1f} ms with Spillway"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
