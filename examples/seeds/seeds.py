"""Shared by the three runs: starts `spillway train` for each row, reads its files, prints the table, draws curves.

Standard library only.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@dataclass
class Row:
    """One training run. `words` are the arguments after the config file."""

    name: str
    words: list = field(default_factory=list)
    ranks: int = 1


@dataclass
class Result:
    row: Row
    losses: list  # One per step. JSON keeps all digits: two are equal if and only if their bits are.
    tokens: int  # Per step.
    digest: str  # Of the final parameters and all losses.
    ranks: list  # train.json of each rank.

    def step_ms(self):
        """The step time of the slowest rank. The last step's time if the run was too short for a settled plan."""
        return max(rank["with"].get("step_ms", rank["with"]["milliseconds"][-1]) for rank in self.ranks)

    def step_peak(self, rank):
        return self.ranks[rank]["with"]["step_peak"]

    def step_peak_beside(self, rank, other):
        """The peak over the steps that are measured for `other`: token counts of experts differ between batches."""
        peaks = self.ranks[rank]["with"]["peaks"]
        return max(peaks[min(other.ranks[rank]["warm_up"], len(peaks) - 1):])

    def theoretical_reduction(self, rank):
        """The simulator's peak reduction if offloaded buffers were released at once; without measured times, the planned
        reduction."""
        simulated = self.ranks[rank].get("simulated")
        if simulated is None:
            return self.report(rank)["planned_reduction"]
        return max(0, simulated["kept_peak"] - simulated["least_peak"])

    def highest_peak(self):
        return max(rank["with"]["step_peak"] for rank in self.ranks)

    def tokens_per_second(self):
        return self.tokens / self.step_ms() * 1000

    def report(self, rank):
        return self.ranks[rank].get("report", {})


def parser(about, steps):
    """The options that all runs share."""
    result = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--size", choices=["small", "full"], default="small",
                        help="small: seconds to minutes on a CPU; full: the shapes of the original, for GPUs (default: small)")
    result.add_argument("--steps", type=int, default=steps, help=f"optimizer steps of each row (default: {steps})")
    result.add_argument("--rows", metavar="NAMES", help="only these rows, comma-separated; the first row always runs")
    result.add_argument("--out", type=Path, help="folder for the files of every row and the plot (default: build/seeds/NAME)")
    result.add_argument("--spillway", default=str(ROOT / "build/release/bin/spillway"), metavar="PROGRAM",
                        help="the program, from `make build` (default: build/release/bin/spillway)")
    result.add_argument("--torchrun", action="store_true",
                        help="start ranks with torchrun and the Python package instead of mpirun and the program")
    result.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none", metavar="COMMAND",
                        help="command that starts ranks (default: %(default)s)")
    result.add_argument("--device", metavar="NAME",
                        help="host or cuda (default: a GPU for each rank, or the host); cuda lets several ranks share one GPU")
    result.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="change a key of the configuration in every row, as for spillway train; may be repeated")
    return result


def chosen(rows, options):
    """The first row, which all are compared with, and those that --rows names."""
    if not options.rows:
        return rows
    names = options.rows.split(",")
    unknown = sorted(set(names) - {row.name for row in rows})
    if unknown:
        sys.exit(f"--rows: no row is named {', '.join(unknown)}; there are {', '.join(row.name for row in rows)}")
    return [row for row in rows if row is rows[0] or row.name in names]


def command(options, row, words):
    if options.torchrun:
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(row.ranks),
                "-m", "spillway", "train", *words]
    program = [options.spillway, "train", *words]
    return program if row.ranks == 1 else [*shlex.split(options.mpirun), "-n", str(row.ranks), *program]


def environment(ranks):
    """One thread per rank by default. OpenMPI needs both OMPI variables to start ranks as root."""
    result = dict(os.environ)
    result.setdefault("OMP_NUM_THREADS", "1" if ranks > 1 else str(os.cpu_count()))
    result.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    result.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return result


def run_row(options, config, row, out):
    folder = out / re.sub(r"\W+", "-", row.name)
    shutil.rmtree(folder, ignore_errors=True)
    words = [str(config), "--steps", str(options.steps), "--digest", "--out", str(folder), *row.words]
    if options.device:
        words += ["--device", options.device]
    for text in options.set:
        words += ["--set", text]
    line = command(options, row, words)
    print(f"{row.name}: {shlex.join(line)}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True, env=environment(row.ranks))
    if done.returncode != 0:
        sys.exit(f"{row.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    seconds = time.monotonic() - begin
    digest = re.search(r"^digest: (.*)$", done.stdout, re.MULTILINE)
    steps = [json.loads(text) for text in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    tokens = round(steps[0]["tokens_per_second"] * steps[0]["milliseconds"] / 1000)
    parts = [folder] if row.ranks == 1 else [folder / f"rank-{rank}" for rank in range(row.ranks)]
    ranks = [json.loads((part / "train.json").read_text(encoding="utf-8")) for part in parts]
    result = Result(row, [step["loss"] for step in steps], tokens, digest[1], ranks)
    # Printed per row, so that an interrupted run has shown its finished rows.
    print(f"{row.name}: {seconds:.0f} s, highest peak {result.highest_peak() / MIB:.1f} MiB, digest {digest[1]}",
          file=sys.stderr, flush=True)
    return result


def run_rows(options, name, config, rows):
    """The results of all rows, by name."""
    out = options.out or ROOT / "build/seeds" / name
    out.mkdir(parents=True, exist_ok=True)
    results = {row.name: run_row(options, config, row, out) for row in rows}
    return out, results


def equal_bits(results):
    """Whether all rows have the same losses and parameters, bit for bit. Prints the answer."""
    first, *others = results.values()
    wrong = [other.row.name for other in others if other.digest != first.digest or other.losses != first.losses]
    print(f"bits equal: {'no, not of ' + ', '.join(wrong) if wrong else 'yes'} "
          f"(parameters after, and losses of, {len(first.losses)} steps; {len(results)} rows)")
    return not wrong


def print_table(columns, lines):
    """Aligns the first column left, all others right."""
    widths = [max(len(str(line[i])) for line in [columns, *lines]) for i in range(len(columns))]
    for line in [columns, *lines]:
        cells = [str(cell).rjust(width) for cell, width in zip(line, widths)]
        cells[0] = str(line[0]).ljust(widths[0])
        print("  " + "  ".join(cells))


def write_curves(path, title, curves):
    """Plots the losses of all rows as SVG. Width and dashes differ, so that equal curves can be distinguished."""
    left, right, top, bottom = 64, 616, 40, 304
    losses = [loss for curve in curves.values() for loss in curve]
    low, high = min(losses), max(losses)
    high = high if high > low else low + 1
    steps = max(len(curve) for curve in curves.values())
    x = lambda step: left + (right - left) * step / max(1, steps - 1)
    y = lambda loss: bottom - (bottom - top) * (loss - low) / (high - low)
    colours = ["#0969da", "#bc4c00", "#1a7f37", "#8250df", "#57606a", "#bf3989", "#9a6700", "#0550ae"]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {348 + 18 * len(curves)}" role="img">',
             "<style>text { font: 12px sans-serif; fill: #24292f; } path { fill: none; }</style>",
             '<rect width="100%" height="100%" fill="#ffffff"/>',
             f'<text x="{left}" y="24" font-weight="bold">{title}</text>']
    for i in range(5):
        loss = low + (high - low) * i / 4
        parts.append(f'<path d="M{left} {y(loss):.1f}H{right}" stroke="#d0d7de"/>'
                     f'<text x="{left - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.3f}</text>')
    for step in sorted({0, steps // 2, steps - 1}):
        parts.append(f'<text x="{x(step):.1f}" y="{bottom + 18}" text-anchor="middle">{step + 1}</text>')
    parts.append(f'<text x="{(left + right) / 2}" y="{bottom + 34}" text-anchor="middle">step</text>')
    for i, (name, curve) in enumerate(curves.items()):
        line = "M" + "L".join(f"{x(step):.1f} {y(loss):.2f}" for step, loss in enumerate(curve))
        width = 2 + 2 * (len(curves) - 1 - i)
        dash = "" if i == 0 else f' stroke-dasharray="{4 + 4 * i} {6 + 2 * i}"'
        stroke = f'stroke="{colours[i % len(colours)]}" stroke-width="{width}"{dash}'
        parts.append(f'<path d="{line}" {stroke}/>')
        parts.append(f'<path d="M{left} {352 + 18 * i}h40" {stroke}/><text x="{left + 52}" y="{356 + 18 * i}">{name}</text>')
    parts.append("</svg>")
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")
    print(f"written: {path}")
