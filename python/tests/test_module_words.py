"""The module words of rules, compared with profiles of real models."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import same_bits
from torch import nn

pytest.importorskip("transformers", reason="skipped: transformers is not installed")

from hugging_face import EXPERTS, gpt2, model, step  # noqa: E402

import spillway  # noqa: E402

Locations = dict[str, list[str]]  # By word: where in a layer that which it offloads was saved.

ATTENTION: Locations = {
    "attn_norm": ["input_layernorm"],
    "qkv_linear": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "core_attn": ["self_attn"],
    "attn_proj": ["self_attn.o_proj"],
    "mlp_norm": ["post_attention_layernorm"],
}
NORMED_ATTENTION = {**ATTENTION, "qkv_linear": [*ATTENTION["qkv_linear"], "self_attn.q_norm", "self_attn.k_norm"]}
FUSED_ATTENTION = {**ATTENTION, "qkv_linear": ["self_attn.qkv_proj"]}
MLP: Locations = {
    "fc1": ["mlp.gate_proj", "mlp.up_proj"],
    "act": ["mlp.act_fn", "mlp"],
    "fc2": ["mlp.down_proj"],
}
FUSED_MLP: Locations = {**MLP, "fc1": ["mlp.gate_up_proj"], "act": ["mlp.activation_fn", "mlp"]}
MOE: Locations = {
    "router": ["mlp.gate"],
    "expert_fc1": ["mlp.experts"],
    "moe_act": ["mlp.experts.act_fn", "mlp.experts"],
    "expert_fc2": ["mlp.experts"],
}
SHARED: Locations = {
    "shared_experts": [
        *(f"mlp.shared_expert.{part}" for part in ["gate_proj", "up_proj", "act_fn", "down_proj"]),
        "mlp.shared_expert",
        "mlp.shared_expert_gate",
    ],
    "act": ["mlp"],  # The product with the shared expert's gate: docs/rules.md.
}
GPT2: Locations = {
    "attn_norm": ["ln_1"],
    "qkv_linear": ["attn.c_attn"],
    "core_attn": ["attn"],
    "attn_proj": ["attn.c_proj"],
    "mlp_norm": ["ln_2"],
    "fc1": ["mlp.c_fc"],
    "act": ["mlp.act"],
    "fc2": ["mlp.c_proj"],
}
NEOX: Locations = {
    "attn_norm": ["input_layernorm"],
    "qkv_linear": ["attention.query_key_value"],
    "core_attn": ["attention"],
    "attn_proj": ["attention.dense"],
    "mlp_norm": ["post_attention_layernorm"],
    "fc1": ["mlp.dense_h_to_4h"],
    "act": ["mlp.act"],
    "fc2": ["mlp.dense_4h_to_h"],
}


@dataclasses.dataclass
class Case:
    make: Callable[[], nn.Module]
    locations: Locations
    uncovered: set[str] = dataclasses.field(default_factory=set)  # "location operator" that no word means.


def of(family: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: model(family, **settings)


def with_experts(family: str, implementation: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        made = model(family, **settings)
        made.set_experts_implementation(implementation)
        return made

    return make


ROTARY = {"self_attn aten::mul"}  # Sines and cosines, made once for all layers.
SORTING = {"mlp.experts aten::index"}  # Tokens by expert and back.
CASES = {
    "Llama": Case(of("Llama"), {**ATTENTION, **MLP}, ROTARY),
    "Llama, eager attention": Case(of("Llama", attn_implementation="eager"), {**ATTENTION, **MLP}, ROTARY),
    "Mistral": Case(of("Mistral"), {**ATTENTION, **MLP}, ROTARY),
    "Qwen2": Case(of("Qwen2"), {**ATTENTION, **MLP}, ROTARY),
    "Qwen3": Case(of("Qwen3", head_dim=8), {**NORMED_ATTENTION, **MLP}, ROTARY),
    "Phi-3": Case(of("Phi3"), {**FUSED_ATTENTION, **FUSED_MLP}, ROTARY),
    "GPT-2": Case(gpt2, GPT2, {"attn.resid_dropout aten::mul", "mlp.dropout aten::mul"}),
    "GPT-2, no dropout": Case(lambda: gpt2(resid_pdrop=0.0, attn_pdrop=0.0, embd_pdrop=0.0), GPT2),
    "GPT-NeoX": Case(of("GPTNeoX", hidden_dropout=0.0), NEOX),
    "Mixtral": Case(of("Mixtral", num_local_experts=4), {**ATTENTION, **MOE}, ROTARY | SORTING),
    "Mixtral, batched experts": Case(
        with_experts("Mixtral", "batched_mm", num_local_experts=4), {**ATTENTION, **MOE}, ROTARY
    ),
    "Mixtral, experts in a loop": Case(
        with_experts("Mixtral", "eager", num_local_experts=4),
        {**ATTENTION, **MOE},
        ROTARY | {"mlp.experts aten::index_add_"},
    ),
    "Qwen2-MoE": Case(
        of("Qwen2Moe", shared_expert_intermediate_size=64, **EXPERTS),
        {**ATTENTION, **MOE, **SHARED},
        ROTARY | SORTING,
    ),
    "Qwen3-MoE": Case(of("Qwen3Moe", head_dim=8, **EXPERTS), {**NORMED_ATTENTION, **MOE}, ROTARY | SORTING),
}


def rules_for(words: list[str]) -> str:
    return f"""[megatron]
        fine_grained_activation_offloading = true
        offload_modules = {json.dumps(words)}
        min_offloaded_tensor_size = 1"""


def decided(session: spillway.Session) -> Iterator[tuple[bool, dict[str, Any], list[tuple[str, str]]]]:
    """Of each buffer saved in a layer: whether it is offloaded, the buffer, and its saves' locations and operators."""
    profile = json.loads(session.profile_json() or "")
    prefix = profile["layer_scope"] + "."
    buffers = {buffer["id"]: buffer for buffer in profile["chunks"][0]["buffers"]}
    for decision in json.loads(session.plan_json() or "")["chunks"][0]["decisions"]:
        buffer = buffers[decision["buffer"]]
        saves = [
            (save["scope"].removeprefix(prefix).partition(".")[2], save["saver"])
            for save in buffer["saves"]
            if save["scope"].startswith(prefix)
        ]
        offloaded = decision["action"]["kind"] == "offload"
        assert saves or not offloaded, decision
        if saves:
            yield offloaded, buffer, saves


@pytest.mark.parametrize("name, word", [(name, word) for name, case in CASES.items() for word in case.locations])
def test_a_word_offloads_what_its_module_saved_and_nothing_else(name, word):
    case = CASES[name]
    session = same_bits(case.make, step, steps=3, rules=rules_for([word]))
    values = session.report().to_dict()
    assert values["bytes_out"] > 0 and not values["fallbacks"], str(session.report())
    found = set()
    layers = set()
    for offloaded, buffer, saves in decided(session):
        here = {location for location, _ in saves} & set(case.locations[word])
        if offloaded:
            assert here, f"{word} offloads what {saves} saved"
            found |= here
            layers.add(buffer["layer"])
    assert found == set(case.locations[word])
    assert layers == {0, 1, 2}


@pytest.mark.parametrize("name", CASES)
def test_all_words_together_offload_the_layers(name):
    case = CASES[name]
    session = same_bits(case.make, step, steps=3, rules=rules_for(list(case.locations)))
    left = {
        f"{location} {operator}"
        for offloaded, buffer, saves in decided(session)
        if not offloaded and buffer["fixed"] == "none" and buffer["size"] >= 1024
        for location, operator in saves
    }
    assert left == case.uncovered


@pytest.mark.parametrize("word", ["router", "expert_fc1", "moe_act", "expert_fc2", "shared_experts"])
def test_words_of_experts_mean_nothing_in_a_dense_model(word):
    session = same_bits(of("Llama"), step, steps=2, rules=rules_for([word]))
    assert not any(offloaded for offloaded, _, _ in decided(session))
    assert session.report().to_dict()["bytes_out"] == 0
