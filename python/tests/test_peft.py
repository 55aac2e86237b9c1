"""LoRA by peft on an unmodified model of transformers: what is frozen is not moved, and the bits stay."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from conftest import OFFLOAD, same_bits
from torch import nn

pytest.importorskip("transformers", reason="skipped: transformers is not installed")
peft = pytest.importorskip("peft", reason="skipped: peft is not installed")

from hugging_face import ids, llama, step  # noqa: E402

import spillway  # noqa: E402

ADAPTED = ["q_proj", "v_proj"]


def lora(**settings: Any) -> nn.Module:
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=ADAPTED, init_lora_weights=False, **settings)
    model: nn.Module = peft.get_peft_model(llama(), config)
    assert any(not parameter.requires_grad for parameter in model.parameters())
    return model.train()


def buffers(session: spillway.Session) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(session.profile_json() or "")["chunks"][0]["buffers"]
    return found


def saved_in(session: spillway.Session, part: str) -> set[str]:
    """How buffers that modules of this name saved are fixed: "none" for those that may move."""
    return {b["fixed"] for b in buffers(session) if any(part in save["scope"] for save in b["saves"])}


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_lora_gives_the_same_bits(dropout):
    session = same_bits(lambda: lora(lora_dropout=dropout), step)
    values = session.report().to_dict()
    assert values["bytes_out"] > 0 and values["bytes_back"] > 0 and not values["fallbacks"], str(session.report())


def test_frozen_linear_layers_save_nothing_that_moves():
    # Of x @ w only the gradient of x is wanted, and that takes w, which is a parameter.
    session = same_bits(lora, step)
    for frozen in ["q_proj.base_layer", "v_proj.base_layer", "k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]:
        assert saved_in(session, frozen) == {"parameter"}, frozen
    for trained in ["q_proj.lora_A", "q_proj.lora_B", "v_proj.lora_A", "v_proj.lora_B"]:
        assert "none" in saved_in(session, trained), trained


def test_no_parameter_is_offloaded():
    session = same_bits(lora, step)
    parameters = {b["id"] for b in buffers(session) if b["fixed"] == "parameter"}
    decisions = json.loads(session.plan_json() or "")["chunks"][0]["decisions"]
    kept = {d["buffer"] for d in decisions if d["action"]["kind"] == "keep"}
    assert parameters and parameters <= kept


def test_less_is_saved_than_by_training_everything():
    whole = same_bits(llama, step)
    adapted = same_bits(lora, step)
    assert adapted.report().to_dict()["saved_peak_without"] < whole.report().to_dict()["saved_peak_without"]


def test_layers_and_module_words_are_found_inside_the_wrapper():
    rules = '[megatron]\nfine_grained_activation_offloading = true\noffload_modules = ["qkv_linear"]\n'
    session = same_bits(lora, step, rules=rules + "min_offloaded_tensor_size = 1\n")
    profile = json.loads(session.profile_json() or "")
    assert profile["layer_scope"] == "base_model.model.model.layers" and profile["layers"] == 3
    decisions = json.loads(session.plan_json() or "")["chunks"][0]["decisions"]
    offloaded = {d["position"]["scope"] for d in decisions if d["action"]["kind"] == "offload"}
    assert offloaded and all(any(name in scope for name in ADAPTED) for scope in offloaded), offloaded


def test_switching_the_adapter_off_records_again_and_keeps_the_bits():
    torch.manual_seed(0)
    model = lora()
    session = spillway.Session(model, rules=OFFLOAD, small="1 KiB", host="64 MiB")

    def gradients(managed: bool) -> list[torch.Tensor]:
        model.zero_grad()
        embeddings = model.get_input_embeddings()(ids(0)).detach().requires_grad_()
        step = session.step() if managed else None
        if step is not None:
            step.__enter__()
        model(inputs_embeds=embeddings, labels=ids(0)).loss.backward()
        if step is not None:
            step.end()
        return [embeddings.grad, *(p.grad for p in model.parameters() if p.grad is not None)]

    for _ in range(2):
        assert all(map(torch.equal, gradients(False), gradients(True)))
        with model.disable_adapter():
            assert all(map(torch.equal, gradients(False), gradients(True)))
    assert session.report().to_dict()["recorded_steps"] > 1
