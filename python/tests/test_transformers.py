"""Unmodified models of Hugging Face transformers, from configurations and with random weights, and its Trainer."""

from __future__ import annotations

import json

import pytest
import torch
from conftest import OFFLOAD, same_bits
from torch import nn

import spillway

transformers = pytest.importorskip("transformers", reason="skipped: transformers is not installed")

from hugging_face import gpt2, ids, llama, step  # noqa: E402


@pytest.mark.parametrize("make, layers", [(llama, "model.layers"), (gpt2, "transformer.h")])
def test_a_model_gives_the_same_bits(make, layers):
    session = same_bits(make, step)
    values = session.report().to_dict()
    assert values["bytes_out"] > 0 and not values["fallbacks"], str(session.report())
    profile = json.loads(session.profile_json() or "")
    assert profile["layer_scope"] == layers and profile["layers"] == 3
    found = {save["scope"] for buffer in profile["chunks"][0]["buffers"] for save in buffer["saves"]}
    assert any(scope.startswith(f"{layers}.2.mlp.") for scope in found)


def test_gradient_checkpointing_of_the_model_is_not_managed():
    def make() -> nn.Module:
        model = llama()
        model.gradient_checkpointing_enable()
        return model

    same_bits(make, step)


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        sentence = ids(i, batch=1)[0]
        return {"input_ids": sentence, "labels": sentence}


def trained(
    tmp_path, callback: spillway.SessionCallback | None, accumulation: int, use_cpu: bool = True, steps: int = 4
) -> list[float]:
    torch.manual_seed(0)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulation,
        max_steps=steps,
        logging_steps=1,
        report_to=[],
        use_cpu=use_cpu,
        save_strategy="no",
        disable_tqdm=True,
        seed=1,
    )
    trainer = transformers.Trainer(
        model=gpt2(), args=arguments, train_dataset=Sentences(), callbacks=[] if callback is None else [callback]
    )
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line] + [
        parameter.sum().item() for parameter in trainer.model.parameters()
    ]


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_trainer_has_the_same_losses(tmp_path, accumulation):
    pytest.importorskip("accelerate", reason="skipped: accelerate is not installed")
    expected = trained(tmp_path, None, accumulation)
    callback = spillway.SessionCallback(rules=OFFLOAD, small="1 KiB", host="64 MiB", offload_window="16 KiB")
    assert trained(tmp_path, callback, accumulation) == expected
    assert callback.session is not None
    values = callback.session.report().to_dict()
    assert values["steps"] == 4 and values["recorded_steps"] == 1 and values["bytes_out"] > 0
    assert not values["fallbacks"]


def test_a_trainer_tells_that_no_plan_fits_also_at_its_end(tmp_path):
    pytest.importorskip("accelerate", reason="skipped: accelerate is not installed")
    options = {"budget": "2 KiB", "small": "1 KiB", "host": "64 MiB"}
    with pytest.warns(RuntimeWarning, match=r"no plan fits 2\.0 KiB"):
        trained(tmp_path, spillway.SessionCallback(**options), 1, steps=1)
    with pytest.raises(spillway.PlanInfeasible, match=r"no plan fits 2\.0 KiB"):
        trained(tmp_path, spillway.SessionCallback(strict=True, **options), 1, steps=1)
    with pytest.raises(spillway.PlanInfeasible, match=r"no plan fits 2\.0 KiB"):
        trained(tmp_path, spillway.SessionCallback(**options), 1)
