"""Runs Spillway's programs as a user would. SPILLWAY_BIN names the folder they are in."""

import os
import pty
import re
import resource
import subprocess
from pathlib import Path

BIN = Path(os.environ.get("SPILLWAY_BIN", Path(__file__).resolve().parents[2] / "build/release/bin"))


def some(cases, count):
    """All cases in `make test-long`, else the first of them."""
    return cases if os.environ.get("SPILLWAY_TEST_LONG") == "1" else cases[:count]


def run(*words, gpu=False, address_space=None, timeout=240):
    """The finished process of a program and its arguments. Without `gpu` no GPU is to be seen;
    `address_space` is the most bytes of addresses it may have."""
    environment = dict(os.environ)
    if not gpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    program, *arguments = words
    limit = None
    if address_space is not None:
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    return subprocess.run(
        [str(BIN / program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        preexec_fn=limit,
    )


def cells(text):
    """The cells of each line of printed tables, whatever their widths."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def run_on_a_terminal(*words):
    """The exit code of a program without GPU, and what it wrote to its terminal; its output is thrown away."""
    program, *arguments = words
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [str(BIN / program), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=slave,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    os.close(slave)
    text = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # The other end is closed.
            break
        if not data:
            break
        text += data
    os.close(master)
    return process.wait(), text.decode()
