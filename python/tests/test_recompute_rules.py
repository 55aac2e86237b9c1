"""Every rule file of examples/rules on three models of transformers: the same bits from the first step on."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import fallbacks, same_bits, session_for, train
from torch import nn

pytest.importorskip("transformers", reason="skipped: transformers is not installed")

import hugging_face  # noqa: E402

RULES = Path(__file__).parents[2] / "examples/rules"
STEPS = 5  # Recorded, verified, and executed three times.

LAYERS = 8  # Enough that "the first three" and "half of them" are not all.
MODELS: dict[str, Callable[..., nn.Module]] = {
    "llama": lambda layers=LAYERS: hugging_face.llama(num_hidden_layers=layers),
    "gpt2": lambda layers=LAYERS: hugging_face.gpt2(n_layer=layers),  # Drops out a tenth, as it is by default.
    "mixtral": lambda layers=LAYERS: hugging_face.model("Mixtral", num_hidden_layers=layers, num_local_experts=4),
}

# What the plan of each file does to Llama, GPT-2 and Mixtral: R recompute, O offload, - neither.
PLANS: dict[str, tuple[str, str, str]] = {
    "demo.toml": ("O", "O", "O"),
    "dropout-masks.toml": ("-", "R", "-"),  # Only GPT-2 drops anything.
    "first-layers-offloaded.toml": ("RO", "RO", "RO"),
    "full-recompute.toml": ("R", "R", "R"),
    "internevo.toml": ("RO", "RO", "RO"),
    "megatron-experts.toml": ("RO", "RO", "RO"),
    "megatron-full.toml": ("R", "R", "R"),
    "megatron.toml": ("RO", "RO", "RO"),
    "mixed.toml": ("RO", "RO", "R"),  # Offloads inputs of a dense MLP, which Mixtral has none of.
    "mlp-recompute-offload-small.toml": ("RO", "RO", "RO"),
    "norms-and-activations-offload-small.toml": ("RO", "RO", "RO"),
    "norms-and-activations.toml": ("R", "R", "R"),
    "offload-attention.toml": ("O", "O", "O"),
    "offload-everything.toml": ("O", "O", "O"),
    "offload-layer-inputs.toml": ("RO", "RO", "RO"),
    "paddle.toml": ("RO", "RO", "RO"),
    # With dropout GPT-2's attention is no single operator on the CPU, so it is recomputed like everything else.
    "selective-attention-kept.toml": ("R", "R", "R"),
    "selective-attention-offloaded.toml": ("RO", "RO", "RO"),
}


def for_small_tensors(rules: str) -> str:
    """A rule file with sizes for models whose tensors have kilobytes where those it was written for have megabytes.

    As they are, the least sizes would match nothing and the windows would hold the whole model.
    """
    for key, value in {
        "min_size": '"1 KiB"',
        "min_offloaded_tensor_size": "256",
        "host": '"64 MiB"',
        "offload_window": '"16 KiB"',
        "prefetch_window": '"64 KiB"',
    }.items():
        rules = re.sub(rf"^{key} = [^#\n]*", f"{key} = {value} ", rules, flags=re.MULTILINE)
    return rules


@functools.cache
def without_spillway(name: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return train(MODELS[name](), None, hugging_face.step, STEPS)


def test_every_rule_file_is_in_the_table():
    assert {path.name for path in RULES.glob("*.toml")} == set(PLANS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("file", PLANS)
def test_a_rule_file_gives_the_same_bits(file, name):
    expected = without_spillway(name)
    torch.manual_seed(0)
    model = MODELS[name]()
    session = session_for(model, rules=for_small_tensors((RULES / file).read_text()))
    found = train(model, session, hugging_face.step, STEPS)
    assert len(found) == len(expected)
    different = [i for i, pair in enumerate(zip(expected, found)) if not torch.equal(*pair)]
    report = session.report()
    assert not different, f"{len(different)} of {len(found)} values differ\n{report}"

    values = report.to_dict()
    planned = PLANS[file][list(MODELS).index(name)]
    assert ("R" in planned) == ("recompute" in values["actions"]), str(report)
    assert ("O" in planned) == ("offload" in values["actions"]), str(report)
    assert (values["repeated_calls"] > 0) == (values["bytes_recomputed"] > 0) == ("R" in planned), str(report)
    assert values["recorded_steps"] == 1 and not fallbacks(session) and not values["demoted"], str(report)
    assert (values["saved_peak_with"] < values["saved_peak_without"]) == (planned != "-"), str(report)


def accumulated(model: nn.Module, i: int) -> torch.Tensor:
    total = torch.zeros(())
    for micro_batch in range(3):
        total += hugging_face.step(model, 10 * i + micro_batch).detach()
    return total


def accumulated_under_one_autocast(model: nn.Module, i: int) -> torch.Tensor:
    # Weights are cast once: the passes after the first have fewer operators.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return accumulated(model, i)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("forward", [accumulated, accumulated_under_one_autocast])
@pytest.mark.parametrize("file", ["full-recompute.toml", "norms-and-activations-offload-small.toml", "megatron.toml"])
def test_micro_batches_and_autocast_are_no_obstacle(file, forward, name):
    rules = for_small_tensors((RULES / file).read_text())
    session = same_bits(lambda: MODELS[name](layers=3), forward, rules=rules)
    values = session.report().to_dict()
    assert values["repeated_calls"] > 0 and values["recorded_steps"] == 1, str(session.report())
    assert not fallbacks(session) and not values["demoted"], str(session.report())


@pytest.mark.parametrize("name", MODELS)
def test_gradient_checkpointing_of_the_model_is_not_managed(name):
    def make() -> nn.Module:
        model = MODELS[name](layers=3)
        model.gradient_checkpointing_enable()
        return model

    rules = for_small_tensors((RULES / "norms-and-activations-offload-small.toml").read_text())
    session = same_bits(make, hugging_face.step, rules=rules)
    assert not fallbacks(session) and not session.report().to_dict()["demoted"]
