"""Runs `spillway train` as several ranks under mpirun, as a user would."""

import os
import re
import subprocess
import tempfile
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

    def digest(self, ranks, *words):
        found = re.search(r"^digest: parameters \w{16} losses \w{16}$", self.ok(ranks, "--digest", *words), re.MULTILINE)
        self.assertIsNotNone(found)
        return found.group()
