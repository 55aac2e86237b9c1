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

from program import BIN, some

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

    def ranks_of(self, row):
        """What each rank of a row wrote into its train.json, in the order of the ranks."""
        folder = self.folder / re.sub(r"\W+", "-", row)
        files = sorted(folder.glob("rank-*/train.json"), key=lambda file: int(file.parent.name.removeprefix("rank-")))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files or [folder / "train.json"]]

    def rows(self, name, base, others, *words):
        """What each rank of each row wrote. All rows must have the losses of the base row: all digits of each step."""
        result = self.run_seed(name, *words, "--rows", ",".join(others))
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)  # The digests of all rows are equal, too.
        found = {row: self.ranks_of(row) for row in [base, *others]}
        for row, ranks in found.items():
            for rank, each in enumerate(ranks):
                self.assertEqual(each["with"]["losses"], found[base][rank]["with"]["losses"], row)
        return found

    def highest_peaks(self, found):
        return {row: max(each["with"]["step_peak"] for each in ranks) for row, ranks in found.items()}

    def test_internevo_offloads_and_recomputes_with_the_same_curve(self):
        found = self.rows("internevo", "baseline", some(["selective + offload", "10 layers"], 1), "--steps", 3)
        peak = self.highest_peaks(found)
        self.assertLess(peak["selective + offload"], 0.7 * peak["baseline"])
        if "10 layers" in peak:
            self.assertLess(peak["10 layers"], 0.9 * peak["baseline"])
        self.assertGreater(found["selective + offload"][0]["report"]["actions"]["offload"]["bytes"], 0)
        picture = xml.parse(self.folder / "loss.svg").getroot()
        self.assertTrue(picture.tag.endswith("svg"))

    def test_megatron_offloads_modules_of_a_pipeline_with_experts(self):
        found = self.rows("megatron", "baseline", ["all"], "--steps", 3)
        self.assertEqual(len(found["all"]), 8)
        self.assertEqual({each["stage"] for each in found["all"][0]["ranks"]}, {0, 1})
        for rank, each in enumerate(found["all"]):
            # Batches differ, so only the steps that count for this row are compared.
            base = max(found["baseline"][rank]["with"]["peaks"][min(each["warm_up"], 2):])
            peak = each["with"]["step_peak"]
            theoretical = each["simulated"]["kept_peak"] - each["simulated"]["least_peak"]
            self.assertGreater(theoretical, 0)
            self.assertLess(peak, 0.8 * base, f"rank {rank}")
            self.assertLess(base - peak, 1.05 * theoretical, f"rank {rank}")

    def test_paddle_recomputes_offloads_and_partitions_with_tensor_parallelism(self):
        # That each of the three lowers the peak is what shard_cli_test shows with half of the ranks.
        names = some(["all three", "recompute", "recompute + offload", "recompute + partition"], 1)
        peak = self.highest_peaks(self.rows("paddle", "none", names, "--steps", 4, "--set", "train.micro_batches=2"))
        self.assertLess(peak["all three"], 0.5 * peak["none"])
        for more in names[2:]:
            self.assertLess(peak["recompute"], 0.5 * peak["none"])
            self.assertLess(peak[more], peak["recompute"], more)
            self.assertLessEqual(peak["all three"], peak[more], more)

    def test_names_the_rows_there_are(self):
        result = self.run_seed("internevo", "--rows", "selectiv")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no row is named selectiv; there are baseline, selective,", result.stderr)


if __name__ == "__main__":
    unittest.main()
