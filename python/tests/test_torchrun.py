"""`torchrun -m spillway train`: ranks whose groups torch.distributed makes, their bits, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from trainer import ENVIRONMENT, SMALL, alone, digest_in, figures, has_equal_bits, layout, ranks, run, torchrun

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="skipped: this torch has no gloo")

def test_two_stages_give_the_digest_of_one_process(capfd, tmp_path):
    wanted = digest_in(alone(capfd, "train", *SMALL, "--baseline", "--digest"))
    text = ranks(2, *SMALL, *layout(pipeline=2), "--digest", "--budget", "8MiB", "--out", str(tmp_path))
    assert digest_in(text) == wanted
    for found in figures(tmp_path, ranks=2):
        assert [(each["rank"], each["stage"]) for each in found["ranks"]] == [(0, 0), (1, 1)]


def test_two_stages_of_two_chunks_twice_have_the_same_bits_as_without(tmp_path):
    words = ["--compare", "--digest", "--set", "train.precision=bf16", "--out", str(tmp_path)]
    digest_in(ranks(4, *SMALL, *layout(pipeline=2, virtual=2, data=2), *words))
    for found in figures(tmp_path, ranks=4):
        assert has_equal_bits(found, steps=4)
        assert [(each["data"], each["stage"]) for each in found["ranks"]] == [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="skipped: no CUDA device")
def test_four_ranks_on_a_gpu_have_the_same_bits_as_without(tmp_path):
    words = ["--device", "cuda", "--compare", "--out", str(tmp_path)]
    found = run(torchrun(4, *SMALL, *layout(pipeline=4), *words), gpu=True)
    assert found.returncode == 0, found.stderr + found.stdout
    for rank in figures(tmp_path, ranks=4):
        assert rank["report"]["device"].startswith("cuda")
        assert has_equal_bits(rank, steps=4)


def test_a_wrong_config_is_said_once_and_ends_all():
    found = run(torchrun(2, *SMALL, "--set", "parallel.pipelin=2"))
    assert found.returncode != 0
    said = [line for line in found.stderr.splitlines() if " of 2 ends the job: [config] " in line]
    assert len(said) == 1 and 'did you mean "parallel.pipeline"' in said[0], found.stderr


def test_a_rank_that_fails_ends_all_and_says_why(tmp_path):
    (tmp_path / "rank-1").write_text("a file where the second rank wants its folder")
    found = run(torchrun(2, *SMALL, *layout(pipeline=2), "--out", str(tmp_path), "--digest"))
    assert found.returncode != 0
    said = [line for line in found.stderr.splitlines() if "ends the job" in line]
    assert len(said) == 1, found.stderr
    assert said[0].startswith("spillway: rank 1 of 2 ends the job: ") and "rank-1" in said[0]
    assert "digest:" not in found.stdout


def started(*words: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Two ranks that train for ever, after their first step, and their process numbers."""
    process = subprocess.Popen(
        torchrun(2, *SMALL, *layout(pipeline=2), "--baseline", "--set", "train.steps=100000", *words),
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if "step 1/" in line:
            break
    children = [
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if (folder / "stat").exists() and parent_of(folder) == process.pid
    ]
    assert len(children) == 2
    return process, sorted(children)


def parent_of(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # It has ended.


def test_a_killed_rank_ends_all():
    process, children = started()
    os.kill(children[1], signal.SIGKILL)
    text, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "another rank has ended" in text or "Signal 9" in text, text
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_a_signal_saves_a_checkpoint_and_ends_all(tmp_path):
    process, children = started("--set", f"train.checkpoint={tmp_path}")
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=120)
    assert "ended by signal 15 after step" in text, text
    assert len(list(tmp_path.glob("step-*/index.json"))) == 1
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
