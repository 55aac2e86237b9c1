"""Models whose activations neither the device nor host memory holds."""

from __future__ import annotations

import torch
from conftest import same_bits
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, factor: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, factor * width)
        self.down = nn.Linear(factor * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(nn.functional.gelu(self.up(self.norm(x))), 0.1)
        return x + self.down(hidden)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(32, 16) for _ in range(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def step(model: nn.Module, i: int) -> torch.Tensor:
    torch.manual_seed(i)
    loss: torch.Tensor = model(torch.randn(512, 32)).square().mean()
    loss.backward()
    return loss


def test_a_model_that_no_memory_holds_is_trained_from_the_first_step():
    session = same_bits(
        Stack, step, steps=5, rules=None, budget=12 << 20, host=2 << 20, small=1024, regions=True, plan_in_background=False
    )
    values = session.report().to_dict()
    assert values["regions"]["regions"] > 3
    assert values["regions"]["bytes"] > 20 << 20
    assert values["host_peak"] <= 2 << 20
    assert values["budget"]["steps"]["recording"]["peak"] <= 12 << 20


def test_steps_that_wait_for_their_plan_need_no_more_memory():
    session = same_bits(
        Stack, step, steps=5, rules=None, budget=12 << 20, host=2 << 20, small=1024, regions=True, plan_in_background=True
    )
    steps = session.report().to_dict()["budget"]["steps"]
    assert all(steps[kind]["peak"] <= 12 << 20 for kind in ("recording", "unplanned") if kind in steps)
