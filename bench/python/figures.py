"""Figures of a benchmark, written as text, Markdown and JSON as by bench/support (schema "spillway.bench/1")."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch


@dataclasses.dataclass
class Value:
    """A number with its unit, as it is printed: the median of samples."""

    name: str
    unit: str
    decimals: int
    samples: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def to_dict(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "median": self.median,
            "min": min(self.samples),
            "max": max(self.samples),
            "samples": len(self.samples),
        }

    def __str__(self) -> str:
        return f"{self.median:.{self.decimals}f} {self.unit}".rstrip()

    def spread(self) -> str:
        """Minimum and maximum; empty for a single sample."""
        low, high = min(self.samples), max(self.samples)
        return f"{low:.{self.decimals}f}..{high:.{self.decimals}f}" if len(self.samples) > 1 else ""


@dataclasses.dataclass
class Figure:
    """One measured number, its limit, and values to compare it with."""

    id: str
    found: Value
    at_most: float | None = None
    judged: bool = True
    beside: list[Value] = dataclasses.field(default_factory=list)

    def verdict(self) -> str:
        if self.at_most is None:
            return ""
        if not self.judged:
            return "not judged"
        return "ok" if self.found.median <= self.at_most else "MISSED"

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {"id": self.id, "text": self.found.name, **self.found.to_dict()}
        if self.at_most is not None:
            values["wanted"] = {"bound": "at most", "limit": self.at_most, "verdict": self.verdict()}
        if self.beside:
            values["beside"] = {value.name: value.to_dict() for value in self.beside}
        return values

    def cells(self) -> list[str]:
        wanted = "" if self.at_most is None else f"<= {self.at_most:.{self.found.decimals}f} {self.found.unit}"
        beside = ", ".join(f"{value.name} {value}" for value in self.beside)
        return [self.found.name, wanted, str(self.found), self.found.spread(), self.verdict(), beside]


HEADER = ["figure", "wanted", "measured", "min..max", "verdict", "details"]
RIGHT = {1, 2, 3}


@dataclasses.dataclass
class Report:
    bench: str
    question: str
    device: torch.device
    commit: str
    settings: dict[str, Any]
    figures: list[Figure] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "spillway.bench/1",
            "bench": self.bench,
            "question": self.question,
            "command": command(),
            "commit": self.commit or commit_here(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "hardware": hardware(self.device),
            "settings": self.settings,
            "figures": [figure.to_dict() for figure in self.figures],
            "notes": self.notes,
        }

    def to_text(self) -> str:
        rows = [HEADER, *(figure.cells() for figure in self.figures)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
        widths[-1] = 0
        lines = [
            "  ".join(
                cell.rjust(width) if i in RIGHT else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in rows
        ]
        head = [self.question, hardware_text(hardware(self.device)), ""]
        return "\n".join([*head, *lines, "", *self.notes]) + "\n"

    def to_markdown(self) -> str:
        made = self.to_dict()
        lines = [
            f"# bench/{self.bench}",
            "",
            self.question,
            "",
            f"- hardware: {hardware_text(made['hardware'])}",
            f"- device: {made['hardware']['device']}, {made['hardware']['system']}",
            f"- command: `{made['command']}`",
            f"- commit: {made['commit']}, {made['date']}",
            "",
            "| " + " | ".join(HEADER) + " |",
            "| " + " | ".join("---:" if i in RIGHT else "---" for i in range(len(HEADER))) + " |",
            *("| " + " | ".join(figure.cells()) + " |" for figure in self.figures),
            "",
            *self.notes,
        ]
        return "\n".join(lines) + "\n"


def command() -> str:
    """As typed, without the folder of the program."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def commit_here() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def hardware(device: torch.device) -> dict[str, Any]:
    """Values that cannot be read are "unknown"."""
    cuda = device.type == "cuda"
    cpu = re.search(r"model name\s*: (.*)", _read("/proc/cpuinfo"))
    return {
        "device": f"cuda:{device.index or 0}" if cuda else "host",
        "gpu": torch.cuda.get_device_name(device) if cuda else "",
        "driver": _driver() if cuda else "",
        "cpu": cpu.group(1) if cpu else "unknown",
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
    }


def hardware_text(found: dict[str, Any]) -> str:
    host = f"{found['cpu']}, {found['cores']} cores, {found['memory_bytes'] / 2**30:.1f} GiB"
    return f"{found['gpu']}, driver {found['driver']}; {host}" if found["gpu"] else f"no GPU used; {host}"


def _driver() -> str:
    found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", _read("/proc/driver/nvidia/version"))
    return f"{found.group(1) if found else 'unknown'} (runtime {torch.version.cuda})"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
