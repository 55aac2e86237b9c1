"""Models of Hugging Face transformers from small configurations, with random weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

# Where the names of classes begin with the family's own; all have three layers.
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "use_cache": False,
}
EXPERTS = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}


def model(family: str, **settings: Any) -> nn.Module:
    """`LlamaForCausalLM` of a `LlamaConfig` for "Llama", and so on."""
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **settings})
    return getattr(transformers, f"{family}ForCausalLM")(config).train()


def llama(**settings: Any) -> nn.Module:
    return model("Llama", **settings)


def gpt2(**settings: Any) -> nn.Module:
    names = {
        "vocab_size": 64,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    config = transformers.GPT2Config(**{**names, "use_cache": False, "loss_type": "ForCausalLMLoss", **settings})
    return transformers.GPT2LMHeadModel(config).train()


def ids(seed: int, batch: int = 2, length: int = 32) -> torch.Tensor:
    return torch.randint(64, (batch, length), generator=torch.Generator().manual_seed(seed))


def step(model: nn.Module, i: int) -> torch.Tensor:
    """Forward and backward on the model's device."""
    batch = ids(i).to(next(model.parameters()).device)
    loss: torch.Tensor = model(input_ids=batch, labels=batch).loss
    loss.backward()
    return loss
