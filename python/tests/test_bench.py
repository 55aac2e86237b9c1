"""The benchmark of the Python package stays alive: it runs small, and what it writes has the form of the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="skipped: transformers is not installed")

BENCH = Path(__file__).parents[2] / "bench"


def test_layers_runs_small_and_gradients_are_the_same(tmp_path):
    subprocess.run(
        [sys.executable, BENCH / "python/layers.py", "--small", "--repeats", "1", "--commit", "0123456789ab"]
        + ["--out", tmp_path / "layers.json", "--markdown", tmp_path / "layers.md"],
        check=True,
    )
    found = json.loads((tmp_path / "layers.json").read_text())
    kept = json.loads((BENCH / "results/json/layers-h200.json").read_text())
    assert found.keys() == kept.keys() and found["hardware"].keys() == kept["hardware"].keys()
    assert found["schema"] == "spillway.bench/1" and found["commit"] == "0123456789ab"
    figures = {figure["id"].removeprefix("python_layers."): figure for figure in found["figures"]}
    rows = {"keep", "attention", "all", "cheap", "cheap_small", "budget_60_percent"}
    others = {"all_limit", "cheap_peak", "cheap_small_peak", "first_step", "host_cost", "base_peak"}
    others |= {"budget_60_percent_time_error", "budget_60_percent_peak"}
    assert rows | others == set(figures)
    for row in rows:
        beside = figures[row]["beside"]
        assert beside["gradients that differ"]["median"] == 0 and beside["fallbacks"]["median"] == 0, row
        if not row.startswith("budget"):
            assert (beside["out"]["median"] > 0) == (row not in ("keep", "cheap")), row
            assert (beside["by operators"]["median"] > 0) == row.startswith("cheap"), row
        assert beside["demoted"]["median"] == 0, row
    assert figures["all"]["beside"]["out"]["median"] > figures["attention"]["beside"]["out"]["median"]
    assert figures["keep"]["wanted"] == {"bound": "at most", "limit": 1.005, "verdict": "not judged"}
    assert "| intercepted, everything kept |" in (tmp_path / "layers.md").read_text()
