#!/usr/bin/env python3
"""The runs of examples/seeds, few steps of each, as a user starts them."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

from program import BIN

SEEDS = Path(__file__).resolve().parents[2] / "examples" / "seeds"
MPIRUN = os.environ.get("SPILLWAY_MPIEXEC", "mpirun")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


class Seeds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_seed(self, name, *words):
        line = [sys.executable, str(SEEDS / name / "run.py"), "--spillway", str(BIN / "spillway"), "--out", str(self.folder),
                "--mpirun", f"{MPIRUN} --oversubscribe --bind-to none", *map(str, words)]  # fmt: skip
        return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)

    def table(self, name, *words):
        """The cells of each line of the table, by the first one's text."""
        result = self.run_seed(name, *words)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertRegex(result.stdout, r"bits equal: yes \(parameters after, and losses of, \d+ steps; \d+ rows\)")
        lines = [re.split(r" {2,}", line.strip()) for line in result.stdout.splitlines() if line.startswith("  ")]
        return {line[0]: line[1:] for line in lines[1:]}

    def test_internevo_offloads_and_recomputes_with_the_same_curve(self):
        rows = self.table("internevo", "--steps", 3, "--rows", "selective + offload,10 layers")
        self.assertEqual(len(rows), 3)
        peak = {name: float(cells[0]) for name, cells in rows.items()}
        self.assertLess(peak["selective + offload"], 0.7 * peak["baseline"])
        self.assertLess(peak["10 layers"], 0.9 * peak["baseline"])
        self.assertGreater(float(rows["selective + offload"][2]), 0)
        paths = xml.parse(self.folder / "loss.svg").getroot()
        self.assertTrue(paths.tag.endswith("svg"))

    def test_megatron_offloads_modules_of_a_pipeline_with_experts(self):
        result = self.run_seed("megatron", "--steps", 3, "--rows", "all")
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertIn("bits equal: yes (parameters after, and losses of, 3 steps; 2 rows)", result.stdout)
        lines = re.findall(r"^  all +([01]) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)%", result.stdout, re.MULTILINE)
        self.assertEqual([stage for stage, *_ in lines], ["0", "1"])
        simulated = [json.loads((self.folder / "all" / f"rank-{rank}" / "train.json").read_text(encoding="utf-8"))["simulated"]
                     for rank in range(8)]  # fmt: skip
        falls = [f"{(each['kept_peak'] - each['least_peak']) / 2**20:.2f}" for each in simulated]
        for _, base, peak, less, theoretical, _ in lines:
            self.assertLess(float(peak), 0.8 * float(base))
            self.assertIn(theoretical, falls)
            self.assertLess(float(less), 1.05 * float(theoretical))

    def test_paddle_recomputes_offloads_and_partitions_with_tensor_parallelism(self):
        names = ["recompute", "recompute + offload", "recompute + partition", "all three"]
        rows = self.table("paddle", "--steps", 4, "--rows", ",".join(names))
        peak = {name: float(cells[0]) for name, cells in rows.items()}
        self.assertLess(peak["recompute"], 0.5 * peak["none"])
        self.assertLess(peak["recompute + offload"], peak["recompute"])
        self.assertLess(peak["recompute + partition"], peak["recompute"])
        for before in names[:-1]:
            self.assertLessEqual(peak["all three"], peak[before], before)

    def test_names_the_rows_there_are(self):
        result = self.run_seed("internevo", "--rows", "selectiv")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no row is named selectiv; there are baseline, selective,", result.stderr)


if __name__ == "__main__":
    unittest.main()
