"""Runs `spillway train` as several ranks under mpirun, as a user would."""

import json
import os
import re
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from program import BIN

MPIRUN = os.environ.get("SPILLWAY_MPIEXEC", "mpirun")
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


def command(ranks, *words):
    program = [str(BIN / "spillway"), "train", *map(str, words)]
    return program if ranks == 1 else [MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *program]


def parallel(**sizes):
    return [word for name, size in sizes.items() for word in ("--set", f"parallel.{name}={size}")]


def wait_until(condition, seconds=60):
    """What `condition` gave at last: something true, unless that many seconds are over."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def json_of(file):
    return json.loads(file.read_text(encoding="utf-8"))


def steps_of(folder):
    """What metrics.jsonl says of each step that has ended."""
    file = folder / "metrics.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class RanksTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def train(self, ranks, *words):
        return subprocess.run(command(ranks, *words), env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False)

    def ok(self, ranks, *words):
        result = self.train(ranks, *words)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        return result.stdout

    def figures(self, ranks, *words):
        """What each rank wrote into its train.json."""
        out = self.folder / "figures"
        self.said = self.ok(ranks, *words, "--out", out)
        return [json_of(out / part / "train.json") for part in ([f"rank-{rank}" for rank in range(ranks)] if ranks > 1 else [""])]

    def equal_bits(self, steps, ranks, *words):
        """Trains without and with a session in the same processes; all losses and gradients must be equal. Returns what
        each rank wrote."""
        found = self.figures(ranks, *words, "--compare")
        for each in found:
            self.assertIs(each["bits_equal"], True)
            self.assertEqual(each["different"], 0)
            self.assertEqual(each["losses_compared"], steps)
            self.assertGreater(each["gradients_compared"], 0)
            self.assertEqual(each["gradients_compared"] % steps, 0)
        return found

    def digest_of_equal_bits(self, steps, ranks, *words):
        """The digest of a run within a session, whose losses and gradients are those of one without."""
        self.equal_bits(steps, ranks, "--digest", *words)
        return self.digest_in(self.said)

    baselines = {}  # By what was run: the same for all tests.

    def baseline(self, ranks, *words):
        """The digest without a session, of words that name no file."""
        key = (ranks, *map(str, words))
        if key not in self.baselines:
            self.baselines[key] = self.digest(ranks, *words, "--baseline")
        return self.baselines[key]

    def digest(self, ranks, *words):
        return self.digest_in(self.ok(ranks, "--digest", *words))

    def digest_in(self, text):
        found = re.findall(r"^digest: parameters \w{16} losses \w{16}$", text, re.MULTILINE)
        self.assertEqual(len(found), 1, text)
        return found[0]
