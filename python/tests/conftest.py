"""What the tests share: small models, and training runs that are compared bit for bit."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import spillway

# Read when CUDA starts; without it deterministic algorithms refuse to multiply matrices.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def some(cases: list[Any], count: int) -> list[Any]:
    """All cases in `make test-long`, else the first of them."""
    return cases if os.environ.get("SPILLWAY_TEST_LONG") == "1" else cases[:count]


OFFLOAD = '[[rule]]\naction = "offload"\n'


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    yield
    torch.use_deterministic_algorithms(False)


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, dropout=dropout, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.dropout(self.mlp(x))


class Transformer(nn.Module):
    def __init__(self, width: int = 32, layers: int = 3, dropout: float = 0.1, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.layers = nn.ModuleList(Block(width, dropout) for _ in range(layers))
        self.head = nn.Linear(width, 64, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


class Cube(torch.autograd.Function):
    """Saves its argument and another tensor."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, x * x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        _, square = ctx.saved_tensors
        return 3 * square * gradient


def tokens(seed: int, batch: int = 2, length: int = 32) -> torch.Tensor:
    return torch.randint(64, (batch, length), generator=torch.Generator().manual_seed(seed))


def session_for(model: nn.Module, rules: str | None = OFFLOAD, **options: object) -> spillway.Session:
    settings: dict[str, object] = {"small": "1 KiB", "host": "64 MiB", "offload_window": "16 KiB", "prefetch_window": "64 KiB"}
    return spillway.Session(model, rules=rules, **{**settings, **options})  # type: ignore[arg-type]


Forward = Callable[[nn.Module, int], torch.Tensor]


def baseline_step(model: nn.Module, i: int) -> torch.Tensor:
    loss: torch.Tensor = model(tokens(i))
    loss.backward()
    return loss


def train(model: nn.Module, session: spillway.Session | None, forward: Forward, steps: int = 4) -> list[torch.Tensor]:
    """Losses and all gradients of some steps."""
    values = []
    for i in range(steps):
        model.zero_grad()
        torch.manual_seed(100 + i)
        with session.step() if session is not None else contextlib.nullcontext():
            values.append(forward(model, i).detach().clone())
        for parameter in model.parameters():
            if parameter.grad is not None:
                values.append(parameter.grad.clone())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
    return values


def same_bits(
    make_model: Callable[[], nn.Module], forward: Forward = baseline_step, steps: int = 4, **options: object
) -> spillway.Session:
    """Trains without and with a session, requires equal bits, and returns the session."""
    torch.manual_seed(0)
    without = train(make_model(), None, forward, steps)
    torch.manual_seed(0)
    model = make_model()
    session = session_for(model, **options)  # type: ignore[arg-type]
    with_session = train(model, session, forward, steps)
    assert len(without) == len(with_session) > steps
    different = [i for i, (a, b) in enumerate(zip(without, with_session)) if not torch.equal(a, b)]
    assert not different, f"{len(different)} of {len(without)} values differ"
    return session


# Ranks are forked from a process that has imported this and started no thread: importing takes longer than most tests.
multiprocessing.set_forkserver_preload(["pytest", "spillway", "torch.distributed.fsdp", "torch.distributed.device_mesh"])


def as_ranks(work: Callable[..., None], *arguments: object, ranks: int = 2) -> None:
    """Runs `work(rank, *arguments)` in a process for each rank, and throws what one of them throws."""
    mp.start_processes(work, args=arguments, nprocs=ranks, start_method="forkserver")


def join(rank: int, folder: str, ranks: int = 2) -> None:
    """What a process of several begins with."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)


def moved(session: spillway.Session) -> tuple[int, int]:
    """Bytes out and back in the last step."""
    values = session.report().to_dict()
    return values["bytes_out"], values["bytes_back"]


def fallbacks(session: spillway.Session) -> dict[str, int]:
    return dict(session.report().to_dict()["fallbacks"])
