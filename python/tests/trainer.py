"""Runs of `python -m spillway`, for tests: within this process, or as ranks under torchrun."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spillway.__main__ import main

SMALL = ["--layers", "4", "--hidden", "64", "--tokens", "128", "--steps", "4", "--dropout", "0.1", "--device", "host"]
# Of the C++ program; the tests of the Python package may run without it.
PROGRAM = Path(os.environ.get("SPILLWAY_BIN", Path(__file__).parents[2] / "build/release/bin")) / "spillway"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}


def alone(capfd, *words: str, code: int = 0) -> str:
    """What it printed; the exit code must be `code`, and with another one than 0 it is what went wrong."""
    found = main(list(words))
    out, errors = capfd.readouterr()
    assert found == code, errors + out
    return out if code == 0 else errors


def torchrun(ranks: int, *words: str) -> list[str]:
    """The command for that many ranks."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*launcher, "-m", "spillway", "train", *words]


def run(command: Sequence[str], gpu: bool = False) -> subprocess.CompletedProcess[str]:
    environment = dict(ENVIRONMENT)
    if gpu:
        del environment["CUDA_VISIBLE_DEVICES"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


def ranks(count: int, *words: str) -> str:
    """What that many ranks printed; they must end well."""
    found = run(torchrun(count, *words))
    assert found.returncode == 0, found.stderr + found.stdout
    return found.stdout


def layout(**sizes: int) -> list[str]:
    return [word for name, size in sizes.items() for word in ("--set", f"parallel.{name}={size}")]


def figures(folder: Path, ranks: int = 1) -> list[dict[str, Any]]:
    """What each rank wrote into its train.json."""
    parts = [folder] if ranks == 1 else [folder / f"rank-{rank}" for rank in range(ranks)]
    return [json.loads((part / "train.json").read_text()) for part in parts]


def has_equal_bits(found: dict[str, Any], steps: int) -> bool:
    """Of train.json: whether losses and gradients of all steps were compared, and all are equal."""
    compared = found["losses_compared"] == steps and found["gradients_compared"] > 0
    return compared and found["gradients_compared"] % steps == 0 and found["bits_equal"] is True and found["different"] == 0


def digest_in(text: str) -> str:
    found = re.findall(r"^digest: parameters \w{16} losses \w{16}$", text, re.MULTILINE)
    assert len(found) == 1, text
    return found[0]
