#!/usr/bin/env python3
"""Compares the GPU time of a step with a session with that of one without, from two traces.

usage: compare_traces.py WITHOUT.json WITH.json [--top N] [--gaps N] [--json]

The traces are those of `bench_layers --trace` or `bench_budget --trace`: Chrome's format, with the annotations
"forward" and "backward" on the host. Work belongs to the part in which the host launched it; work launched before
forward is ignored. The compute stream is the one with the most kernel time. A gap of it is "late" if the host launched
the next work after the gap began; otherwise that work waited for another stream, or for the GPU to start it.

--json prints sums of both parts for programs, also of traces without GPU work: "device_work" says which.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

PARTS = ("forward", "backward")
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
NAME_WIDTH = 60


class TraceError(Exception):
    """A trace that cannot be compared."""


class Work(NamedTuple):
    """Something that ran on the GPU. Times are microseconds."""

    category: str
    name: str
    operator: str  # Launched it.
    stream: int
    part: str
    launched: float
    begin: float
    end: float
    bytes: int


class Gap(NamedTuple):
    before: Work
    after: Work

    @property
    def time(self) -> float:
        return self.after.begin - self.before.end

    @property
    def late(self) -> bool:
        return self.after.launched > self.before.end


Span = tuple[float, float]


class HostPart(NamedTuple):
    """What the host did in forward or in backward."""

    time: float
    operators: int


@dataclass
class Trace:
    path: Path
    host: dict[str, HostPart]
    work: list[Work]  # Sorted by begin.

    def has_kernels(self) -> bool:
        return any(work.category == "kernel" for work in self.work)

    def compute_stream(self) -> int:
        times: dict[int, float] = defaultdict(float)
        for work in self.work:
            if work.category == "kernel":
                times[work.stream] += work.end - work.begin
        return max(times, key=lambda stream: times[stream])

    def of(self, *categories: str) -> list[Work]:
        return [work for work in self.work if work.category in categories]

    def on(self, stream: int) -> list[Work]:
        return [work for work in self.work if work.stream == stream]


def read_trace(path: Path) -> Trace:
    """The GPU work of forward and backward in the file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    annotations = {event["name"]: event for event in events if event.get("cat") == "user_annotation"}
    missing = [part for part in PARTS if part not in annotations]
    if missing:
        raise TraceError(f"{path}: no annotation {' and '.join(missing)}; was it written by bench_layers or bench_budget --trace?")
    starts = {part: annotations[part]["ts"] for part in PARTS}
    launches = {event["args"]["correlation"]: event["ts"] for event in events if is_launch(event)}
    operators = {event["args"].get("External id"): event["name"] for event in events if event.get("cat") == "cpu_op"}

    work = []
    for event in events:
        if event.get("cat") not in DEVICE_WORK:
            continue
        launched = launches.get(event["args"].get("correlation"), event["ts"])
        if launched < starts["forward"]:
            continue
        work.append(
            Work(
                category=event["cat"],
                name=event["name"],
                operator=operators.get(event["args"].get("External id"), "(none)"),
                stream=event["args"]["stream"],
                part="backward" if launched >= starts["backward"] else "forward",
                launched=launched,
                begin=event["ts"],
                end=event["ts"] + event["dur"],
                bytes=event["args"].get("bytes", 0),
            )
        )
    host = {part: host_part(annotations[part], events) for part in PARTS}
    return Trace(path, host, sorted(work, key=lambda one: one.begin))


def host_part(annotation: dict[str, Any], events: list[dict[str, Any]]) -> HostPart:
    begin, end = annotation["ts"], annotation["ts"] + annotation["dur"]
    operators = [event for event in events if event.get("cat") == "cpu_op" and begin <= event["ts"] < end]
    return HostPart(annotation["dur"], len(operators))


def is_launch(event: dict[str, Any]) -> bool:
    return event.get("cat") in LAUNCHES and "correlation" in event.get("args", {})


def union(work: Iterable[Work]) -> list[Span]:
    """The times in which at least one of `work` runs: disjoint and sorted."""
    spans: list[Span] = []
    for begin, end in sorted((one.begin, one.end) for one in work):
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((begin, end))
    return spans


def length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def overlap(first: list[Span], second: list[Span]) -> float:
    """How long both run at once. Both lists are disjoint and sorted."""
    total = 0.0
    i = j = 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total


def gaps(trace: Trace) -> list[Gap]:
    """The idle times of the compute stream, sorted."""
    found = []
    last: Work | None = None
    for work in trace.on(trace.compute_stream()):
        if last is not None and work.begin > last.end:
            found.append(Gap(last, work))
        if last is None or work.end > last.end:
            last = work
    return found


# Parts of a name that do not identify the kernel: namespaces, passed pointers, lambda suffixes.
NOISE = re.compile(
    r"at::native::|at_cuda_detail::|c10::|\(anonymous namespace\)::|<unnamed>::|\bvoid |"
    r"\((at::)?TensorIterator(Base)?&\)|,? ?std::array<char ?\*, \d+ul?> ?|"
    r"::\{lambda\([^()]*\)#\d+\}|::operator\(\)\(\) const"
)


def short_name(name: str) -> str:
    """A kernel's name in at most 60 characters: without arguments and noise; the middle is elided if still too long."""
    if name.endswith(")"):
        depth = 0
        for i in range(len(name) - 1, 0, -1):
            depth += {")": 1, "(": -1}.get(name[i], 0)
            if depth == 0:
                name = name[:i]
                break
    name = NOISE.sub("", name)
    if len(name) > NAME_WIDTH:
        front = NAME_WIDTH // 2 - 2
        name = name[:front] + "..." + name[front + 3 - NAME_WIDTH :]
    return name


def table(head: list[str], rows: list[list[str]]) -> str:
    """Aligned columns: the first left, the others right."""
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    lines = []
    for line in [head, *rows]:
        cells = [line[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def milliseconds(time: float) -> str:
    return f"{time / 1e3:.3f}"


def times_table(title: str, without: Trace, with_: Trace, key: Callable[[Work], tuple[str, str]], top: int) -> str:
    """Count and time of kernels by `key`, a part and a name; the largest differences first."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    times: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for side, trace in enumerate((without, with_)):
        for work in trace.of("kernel", "gpu_memset"):
            counts[key(work)][side] += 1
            times[key(work)][side] += work.end - work.begin

    def row(name: str, part: str, count: list[int], time: list[float]) -> list[str]:
        each = [f"{time[side] / count[side]:.1f}" if count[side] else "" for side in (0, 1)]
        return [name, part, *map(str, count), *each, *map(milliseconds, time), f"{(time[1] - time[0]) / 1e3:+.3f}"]

    def total(keys: list[tuple[str, str]]) -> tuple[list[int], list[float]]:
        return (
            [sum(counts[one][side] for one in keys) for side in (0, 1)],
            [sum(times[one][side] for one in keys) for side in (0, 1)],
        )

    ordered = sorted(times, key=lambda one: (-abs(times[one][1] - times[one][0]), one))
    rows = [row(short_name(one[1]), one[0], counts[one], times[one]) for one in ordered[:top]]
    if len(ordered) > top:
        rows.append(row(f"({len(ordered) - top} others)", "", *total(ordered[top:])))
    for part in PARTS:
        rows.append(row("all", part, *total([one for one in ordered if one[0] == part])))
    head = [title, "part", "count", "with", "us each", "with", "ms", "with", "difference"]
    return table(head, rows)


def stream_table(without: Trace, with_: Trace) -> str:
    """Busy and idle time of the compute stream, by part."""
    rows = []
    for part in PARTS:
        for side, trace in (("without", without), ("with", with_)):
            stream = trace.compute_stream()
            work = [one for one in trace.on(stream) if one.part == part]
            span = max((one.end for one in work), default=0) - min((one.begin for one in work), default=0)
            idle = [gap for gap in gaps(trace) if gap.after.part == part]
            late = [gap for gap in idle if gap.late]
            others = union(one for one in trace.of("kernel", "gpu_memset") if one.part == part)
            rows.append(
                [
                    f"{part} {side}",
                    str(stream),
                    milliseconds(span),
                    milliseconds(length(union(work))),
                    milliseconds(length(others)),
                    milliseconds(sum(gap.time for gap in idle)),
                    str(len(idle)),
                    milliseconds(sum(gap.time for gap in late)),
                    str(len(late)),
                ]
            )
    head = ["compute stream, ms", "stream", "span", "busy", "any stream", "idle", "gaps", "of it late", "gaps"]
    return table(head, rows)


def gaps_table(title: str, trace: Trace, number: int) -> str:
    rows = []
    for gap in sorted(gaps(trace), key=lambda gap: -gap.time)[:number]:
        names = [short_name(gap.before.name), short_name(gap.after.name)]
        rows.append([title, f"{gap.time:.1f}", "late" if gap.late else "", gap.after.part, *names])
    return table(["largest gaps", "us", "launched", "part", "after", "before"], rows)


def copies_table(without: Trace, with_: Trace) -> str:
    """Copies by direction, and how long kernels of the compute stream run at the same time."""
    rows = []
    for side, trace in (("without", without), ("with", with_)):
        stream = trace.compute_stream()
        computing = union(work for work in trace.on(stream) if work.category == "kernel")
        by_direction: dict[str, list[Work]] = defaultdict(list)
        for work in trace.of("gpu_memcpy"):
            by_direction[work.name].append(work)
        for direction, copies in sorted(by_direction.items()):
            spans = union(copies)
            rows.append(
                [
                    f"{direction} {side}",
                    str(len(copies)),
                    f"{sum(copy.bytes for copy in copies) / 2**30:.3f}",
                    milliseconds(length(spans)),
                    milliseconds(overlap(spans, computing)),
                ]
            )
    return table(["copies", "count", "GiB", "ms", "beside kernels"], rows) if rows else "copies: none"


def report(without: Trace, with_: Trace, top: int, number_of_gaps: int) -> str:
    return "\n\n".join(
        [
            stream_table(without, with_),
            copies_table(without, with_),
            times_table("operators", without, with_, lambda work: (work.part, work.operator), top),
            times_table("kernels", without, with_, lambda work: (work.part, work.name), top),
            gaps_table("without", without, number_of_gaps),
            gaps_table("with", with_, number_of_gaps),
        ]
    )


def part_sums(trace: Trace, part: str) -> dict[str, Any]:
    """What happened in a part, for programs."""
    work = [one for one in trace.work if one.part == part]
    kernels = [one for one in work if one.category == "kernel"]
    copies = [one for one in work if one.category == "gpu_memcpy"]
    return {
        "host_ms": trace.host[part].time / 1e3,
        "operators": trace.host[part].operators,
        "kernels": len(kernels),
        "kernel_ms": length(union(kernels)) / 1e3,
        "copies": len(copies),
        "copied_bytes": sum(copy.bytes for copy in copies),
    }


def sums(without: Trace, with_: Trace) -> dict[str, Any]:
    """The same of both traces and parts."""
    both = {"without": without, "with": with_}
    return {
        "schema": "spillway.traces/1",
        "device_work": without.has_kernels(),
        **{side: {part: part_sums(trace, part) for part in PARTS} for side, trace in both.items()},
    }


def check_kernels(*traces: Trace) -> None:
    for trace in traces:
        if not trace.has_kernels():
            raise TraceError(f"{trace.path}: no kernels in forward and backward; was it written on a machine with a GPU?")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("without", type=Path)
    parser.add_argument("with_", metavar="with", type=Path)
    parser.add_argument("--top", type=int, default=30, help="rows of the tables of operators and kernels")
    parser.add_argument("--gaps", type=int, default=10, help="rows of the tables of gaps")
    parser.add_argument("--json", action="store_true", help="print sums as JSON, also of traces without a GPU")
    options = parser.parse_args(arguments)
    try:
        without, with_ = read_trace(options.without), read_trace(options.with_)
        if not options.json or without.has_kernels() or with_.has_kernels():
            check_kernels(without, with_)
        if options.json:
            print(json.dumps(sums(without, with_), indent=2))
        else:
            print(report(without, with_, options.top, options.gaps))
    except (OSError, json.JSONDecodeError, TraceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
