"""`python -m spillway train` as one process: bits, files, and what it says of a wrong command line."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time

import pytest
from trainer import PROGRAM, SMALL, alone, digest_in, figures, has_equal_bits, run

import spillway
import spillway.__main__
import spillway.launch


def test_gives_the_same_digest_without_spillway_by_rules_and_within_a_budget(capfd, tmp_path):
    baseline = digest_in(alone(capfd, "train", *SMALL, "--baseline", "--digest"))
    assert digest_in(alone(capfd, "train", *SMALL, "--digest")) == baseline
    assert digest_in(alone(capfd, "train", *SMALL, "--digest", "--budget", "70%", "--out", str(tmp_path))) == baseline
    found = figures(tmp_path)[0]
    assert 0 < found["with"]["step_peak"] <= found["predicted"]["budget"]
    assert digest_in(alone(capfd, "train", *SMALL, "--digest", "--seed", "1")) != baseline


@pytest.mark.skipif(not PROGRAM.exists(), reason="skipped: the program spillway is not built here")
def test_is_the_same_as_the_program(capfd):
    found = run([str(PROGRAM), "train", *SMALL, "--digest"])
    assert found.returncode == 0, found.stderr
    assert digest_in(alone(capfd, "train", *SMALL, "--digest")) == digest_in(found.stdout)
    theirs = run([str(PROGRAM), "train", "--help"]).stdout
    with pytest.raises(SystemExit):
        spillway.__main__.main(["train", "--help"])
    ours = capfd.readouterr().out
    options = [set(re.findall(r"^ +(--[a-z-]+)", text, re.MULTILINE)) for text in (theirs, ours)]
    assert len(options[0]) > 20
    assert options[0] == options[1]
    assert "Width within the MLP (model.ffn)" in ours


def test_compares_bits_and_writes_its_files(capfd, tmp_path):
    text = alone(
        capfd, "train", *SMALL, "--compare", "--out", str(tmp_path / "run"), "--trace", str(tmp_path / "{rank}.json")
    )
    assert "bits equal: yes (" in text
    assert has_equal_bits(figures(tmp_path / "run")[0], steps=4)
    steps = [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]
    assert json.loads((tmp_path / "0.json").read_text())["traceEvents"]


def test_reads_a_config_and_what_is_set_over_it(capfd, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[model]\nlayers = 2\nhidden = 32\n[train]\nsteps = 3\ndevice = "host"\n')
    assert "2 layers of width 32" in alone(capfd, "train", str(file), "--baseline")
    assert "1 layers of width 32" in alone(capfd, "train", str(file), "--baseline", "--layers", "3", "--set", "model.layers=1")
    assert "layers = 5" in alone(capfd, "config", str(file), "--set", "model.layers=5")
    assert "layers = 8" in alone(capfd, "config")


def test_saves_and_ends_after_the_step_on_ctrl_c(capfd, tmp_path):
    metrics = tmp_path / "run/metrics.jsonl"

    def press() -> None:
        deadline = time.monotonic() + 60  # Then it is pressed all the same, and the test ends.
        while (not metrics.exists() or not metrics.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    pressing = threading.Thread(target=press, daemon=True)
    pressing.start()
    words = ["--baseline", "--out", str(tmp_path / "run"), "--set", f"train.checkpoint={tmp_path}", "--set", "train.steps=100000"]
    text = alone(capfd, "train", *SMALL, *words)
    pressing.join()
    assert "checkpoint: " in text
    assert len(list(tmp_path.glob("step-*/index.json"))) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_says_what_is_wrong(capfd):
    assert 'did you mean "parallel.pipeline"?' in alone(capfd, "train", "--set", "parallel.pipelin=2", code=1)
    assert "cannot read /nowhere/run.toml" in alone(capfd, "train", "/nowhere/run.toml", code=1)
    assert "3 x 2 = 6 chunks, but 4 layers" in alone(
        capfd, "train", *SMALL, "--set", "parallel.pipeline=3", "--set", "parallel.virtual=2", code=1
    )
    assert "no plan fits" in alone(capfd, "train", *SMALL, "--budget", "1kB", code=3)
    assert '"1.5" is no whole number' in alone(capfd, "train", "--verify-every", "1.5", code=1)


@pytest.mark.parametrize(
    "words, text",
    [
        (["--layers", "0"], "0 is not above 0"),
        (["--dropout", "2"], "2 is not within 0 and 0.99"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--baseline", "--compare"], "--baseline excludes --compare"),
        (["--budgit", "1GiB"], "unrecognized arguments: --budgit"),
    ],
)
def test_refuses_a_wrong_command_line(capfd, words, text):
    with pytest.raises(SystemExit) as ended:
        spillway.__main__.main(["train", *words])
    assert ended.value.code == 2
    assert text in capfd.readouterr().err


def test_prints_versions_and_teaches_its_commands(capfd):
    assert alone(capfd).startswith("spillway ")
    with pytest.raises(SystemExit):
        spillway.__main__.main(["--help"])
    assert "torchrun --nproc-per-node 4 -m spillway train run.toml" in capfd.readouterr().out


def test_names_the_build_option_where_the_trainer_was_not_built(monkeypatch, capsys):
    monkeypatch.setattr(spillway.launch, "has_trainer", lambda: False)
    assert spillway.__main__.main(["train"]) == 1
    assert "SPILLWAY_PYTHON_TRAINER=ON" in capsys.readouterr().err
