"""The benchmarks of the Python package stay alive: they run small, and what they write has the form of the others."""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="skipped: transformers is not installed")

BENCH = Path(__file__).parents[2] / "bench"
SET_BY_PEERS = ["recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit_hit"]


def run_small(tmp_path: Path, name: str, *options: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """What the benchmark wrote: JSON, whose form is that of the others, and Markdown. It runs in this process, which has
    imported what takes longer to import than it runs."""
    out = tmp_path / f"{name}.json"
    program = str(BENCH / f"python/{name}.py")
    words = ["--small", "--repeats", "1", "--commit", "0123456789ab", "--out", str(out), "--markdown", str(out.with_suffix(".md"))]
    config = torch._dynamo.config
    before = config.patch({each: getattr(config, each) for each in SET_BY_PEERS})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended, before:
        patch.setattr(sys, "argv", [program, *words, *options])
        patch.syspath_prepend(str(BENCH / "python"))
        torch.use_deterministic_algorithms(False)  # As in a process of its own.
        runpy.run_path(program, run_name="__main__")
    assert ended.value.code == code
    found = json.loads(out.read_text())
    kept = json.loads((BENCH / "results/json/layers-h200.json").read_text())
    assert found.keys() == kept.keys() and found["hardware"].keys() == kept["hardware"].keys()
    assert found["schema"] == "spillway.bench/1" and found["commit"] == "0123456789ab"
    return found, out.with_suffix(".md").read_text()


def test_layers_runs_small_and_gradients_are_the_same(tmp_path):
    found, markdown = run_small(tmp_path, "layers")
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
    assert "| intercepted, everything kept |" in markdown


def beside_of(figure: dict[str, Any]) -> dict[str, float]:
    return {name: value["median"] for name, value in figure["beside"].items()}


def test_peers_runs_small_with_the_same_gradients(tmp_path):
    found, markdown = run_small(tmp_path, "peers", "--row", "full", "--row", "compiled")
    rows = {figure["id"].removeprefix("python_peers."): beside_of(figure) for figure in found["figures"]}
    assert set(rows) == {"full", "compiled"}
    for row, beside in rows.items():
        assert beside["gradients that differ"] == 0, row
        assert beside["peak without"] > 0, row
    assert rows["full"]["peak"] < rows["full"]["peak without"]
    assert "| full checkpointing |" in markdown


@pytest.mark.skipif(os.environ.get("SPILLWAY_TEST_LONG") != "1", reason="skipped: runs in make test-long")
def test_peers_runs_small_and_every_way_saves_what_it_should(tmp_path):
    found, markdown = run_small(tmp_path, "peers")
    rows = {figure["id"].removeprefix("python_peers."): beside_of(figure) for figure in found["figures"]}
    assert set(rows) == {
        *("budget_60_percent", "selective_products", "selective_attention", "full", "full_offload", "save_on_cpu"),
        *("compiled", "compiled_half", "compiled_fifth", "compiled_selective", "compiled_selective_budget_80_percent"),
    }
    for row, beside in rows.items():
        assert beside["gradients that differ"] == 0, row
        assert beside["peak without"] > 0, row
    peak = {row: beside["peak"] / beside["peak without"] for row, beside in rows.items()}
    assert peak["full"] < peak["selective_attention"] < peak["selective_products"] < 1, peak
    assert peak["compiled_fifth"] < peak["compiled_half"] < 1, peak
    assert peak["compiled_selective_budget_80_percent"] < peak["compiled_selective"] < 1, peak
    for row in ("budget_60_percent", "compiled_selective_budget_80_percent"):
        assert rows[row]["predicted peak"] <= rows[row]["budget"] and rows[row]["fallbacks"] == 0, row
    assert any(note.startswith("Skipped: everything offloaded by TRL: trl ") for note in found["notes"])
    assert "| full checkpointing |" in markdown


def test_lengths_runs_small_with_the_same_gradients(tmp_path):
    found, markdown = run_small(tmp_path, "lengths")
    rows = {figure["id"].removeprefix("python_lengths."): beside_of(figure) for figure in found["figures"]}
    assert set(rows) == {"checkpointing", "budget_70_percent"}
    for row, beside in rows.items():
        assert beside["gradients that differ"] == 0, row
    assert rows["budget_70_percent"]["recorded steps"] >= 1 and rows["budget_70_percent"]["budget"] > 0
    assert found["settings"]["lengths"].endswith("tokens, 12 batches")
    assert "| full checkpointing |" in markdown


def test_fits_runs_small_with_the_same_gradients_as_checkpointing(tmp_path):
    found, _ = run_small(tmp_path, "fits")
    rows = {figure["id"].removeprefix("python_fits."): beside_of(figure) for figure in found["figures"]}
    assert set(rows) == ({"all_32k", "lora_64k"} if importlib.util.find_spec("peft") else {"all_32k"})
    for row, beside in rows.items():
        assert beside["gradients that differ"] == 0, row


def test_a_peer_that_does_not_run_compiled_fails(tmp_path):
    with torch._dynamo.config.patch(disable=True):
        found, _ = run_small(tmp_path, "peers", "--row", "compiled", "--row", "full", code=1)
    assert [figure["id"] for figure in found["figures"]] == ["python_peers.full"]
    assert "Failed: compiled layers: 0 of 4 layers ran compiled." in found["notes"]
