#!/usr/bin/env python3
"""The programs of examples/ end well only if what they show holds: each is also run where it cannot."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import BIN, run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MPIRUN = os.environ.get("SPILLWAY_MPIEXEC")

os.environ.setdefault("OMP_NUM_THREADS", "1")


def needs(program):
    return unittest.skipUnless((BIN / program).exists(), f"{program} is not built")


class Examples(unittest.TestCase):
    def ends_well(self, *words):
        result = run(*words)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        return result.stdout

    def fails(self, *words):
        result = run(*words)
        self.assertEqual(result.returncode, 1, result.stderr + result.stdout)
        return result.stderr

    @needs("example_offload_a_buffer")
    def test_a_buffer_goes_out_and_comes_back(self):
        self.ends_well("example_offload_a_buffer")

    @needs("example_session")
    def test_a_session_offloads_by_rules(self):
        self.ends_well("example_session", str(EXAMPLES / "02_session" / "memory.toml"))

    @needs("example_session")
    def test_a_session_that_offloads_nothing_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            rules = Path(folder) / "keep.toml"
            rules.write_text('[[rule]]\naction = "keep"\n', encoding="utf-8")
            self.fails("example_session", str(rules))

    @needs("example_budget")
    def test_a_step_stays_within_its_budget(self):
        self.ends_well("example_budget", "12 MiB")

    @needs("example_budget")
    def test_a_budget_that_no_plan_fits_fails(self):
        self.assertIn("[plan] no plan fits 4.0 KiB", self.fails("example_budget", "4 KiB"))

    @needs("example_pipeline")
    def test_a_pipeline_lowers_the_peak_of_every_rank_with_the_same_losses(self):
        losses = self.losses_of(self.ends_well("example_pipeline"))
        self.assertEqual(list(losses), list(range(5)))
        if MPIRUN is None:
            self.skipTest("built without MPI")
        result = subprocess.run(
            [MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", "2", str(BIN / "example_pipeline")],
            env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True, text=True, timeout=240, check=False)  # fmt: skip
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertEqual(self.losses_of(result.stdout), losses)

    def losses_of(self, text):
        """By step, with all digits."""
        return {int(step): loss for step, loss in re.findall(r"step (\d+): loss (\S+)", text)}


if __name__ == "__main__":
    unittest.main()
