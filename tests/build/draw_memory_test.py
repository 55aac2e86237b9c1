#!/usr/bin/env python3
"""Tests of scripts/draw_memory.py, on traces made up so that every number is known beforehand."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
sys.dont_write_bytecode = True
import draw_memory  # noqa: E402

MIB = 2**20


def trace(*points: tuple[float, float], name: str = "measured", end: float = 400) -> dict[str, Any]:
    """Points are (microseconds, bytes); the step begins at 100 us and its backward at 200 us."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 2, "tid": 0, "name": "process_name", "args": {"name": name}},
        {"ph": "X", "pid": 2, "tid": 1, "name": "forward", "cat": "forward", "ts": 100.0, "dur": 100.0},
        {"ph": "X", "pid": 2, "tid": 1, "name": "backward", "cat": "backward", "ts": 200.0, "dur": end - 200},
    ]
    for ts, size in points:
        events.append({"ph": "C", "pid": 2, "tid": 0, "name": "device memory", "ts": ts, "args": {"bytes": size}})
    return {"displayTimeUnit": "ms", "traceEvents": events}


class DrawMemory(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, content: dict[str, Any]) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def draw(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        script = Path(draw_memory.__file__)
        return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True)

    def test_reads_times_from_the_begin_of_the_step(self) -> None:
        step = draw_memory.read_step(self.write("t.json", trace((150, 3 * MIB), (250, 5 * MIB))), "measured")
        self.assertEqual(step.points, [(0.05, 3 * MIB), (0.15, 5 * MIB)])
        self.assertEqual((step.backward_ms, step.end_ms, step.peak), (0.1, 0.3, 5 * MIB))

    def test_reads_budgets_as_shares_and_as_bytes(self) -> None:
        self.assertEqual(draw_memory.read_budget("25%", 8 * MIB), 2 * MIB)
        self.assertEqual(draw_memory.read_budget("0.25", 8 * MIB), 2 * MIB)
        self.assertEqual(draw_memory.read_budget("3 MiB", 8 * MIB), 3 * MIB)

    def test_draws_both_peaks_and_the_budget(self) -> None:
        without = self.write("without.json", trace((150, 8 * MIB), (390, 0)))
        within = self.write("with.json", trace((150, 2 * MIB), (410, 0), end=420))
        out = self.folder / "memory.svg"
        found = self.draw(str(without), str(within), "--budget", "25%", "-o", str(out))
        self.assertEqual(found.returncode, 0, found.stderr)
        texts = [each.text for each in ElementTree.parse(out).iter("{http://www.w3.org/2000/svg}text")]
        for text in ("without Spillway: peak 8.0 MiB", "with Spillway: peak 2.0 MiB", "budget: 25%"):
            self.assertIn(text, texts)

    def test_draws_times_as_shares_of_each_step(self) -> None:
        step = draw_memory.in_shares(draw_memory.read_step(self.write("t.json", trace((250, MIB))), "measured"))
        self.assertAlmostEqual(step.points[0][0], 50)
        self.assertAlmostEqual(step.backward_ms or 0, 100 / 3)
        self.assertEqual(step.end_ms, 100)

    def test_thins_points_without_losing_the_top_of_a_stretch(self) -> None:
        points = [(0.1, 5.0), (0.2, 9.0), (0.3, 4.0), (1.5, 7.0)]
        self.assertEqual(draw_memory.thinned(points, 1), [(0.2, 9.0), (0.3, 4.0), (1.5, 7.0)])

    def test_names_the_processes_that_are_there(self) -> None:
        path = self.write("t.json", trace((150, MIB), name="predicted"))
        found = self.draw(str(path), str(path), "-o", str(self.folder / "memory.svg"))
        self.assertEqual(found.returncode, 1)
        self.assertIn("has no process 'measured'; it has predicted", found.stderr)

    def test_refuses_a_file_that_is_no_trace(self) -> None:
        path = self.write("t.json", {})
        found = self.draw(str(path), str(path), "-o", str(self.folder / "memory.svg"))
        self.assertEqual(found.returncode, 1)
        self.assertIn("is no trace", found.stderr)


if __name__ == "__main__":
    unittest.main()
