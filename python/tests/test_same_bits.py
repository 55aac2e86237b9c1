"""Loss and all gradients equal those of the run without a session, to the bit."""

from __future__ import annotations

import pytest
import torch
from conftest import Cube, Transformer, fallbacks, moved, baseline_step, same_bits, session_for, tokens, train
from torch import nn
from torch.utils.checkpoint import checkpoint

import spillway


def test_of_a_transformer_with_dropout():
    session = same_bits(Transformer, steps=5)
    out, back = moved(session)
    assert out > 100_000 and back > 50_000
    values = session.report().to_dict()
    assert values["steps"] == 5 and values["recorded_steps"] == 1
    assert values["saved_peak_with"] < values["saved_peak_without"]
    assert not fallbacks(session)


def test_of_an_mlp():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(i))
        loss = model(x).square().mean()
        loss.backward()
        return loss

    session = same_bits(lambda: nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)), forward)
    assert moved(session)[0] > 0


def test_without_rules_where_everything_is_kept():
    session = same_bits(Transformer, rules=None)
    assert moved(session) == (0, 0)


def test_with_tied_weights():
    same_bits(lambda: Transformer(tied=True))


def test_under_autocast():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(tokens(i))
        loss.backward()
        return loss

    session = same_bits(Transformer, forward)
    assert moved(session)[0] > 0 and not fallbacks(session)


def test_with_gradient_accumulation():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        total = torch.zeros(())
        for micro_batch in range(3):
            loss = model(tokens(10 * i + micro_batch))
            loss.backward()
            total += loss.detach()
        return total

    assert not fallbacks(same_bits(Transformer, forward))


def test_with_several_passes_in_flight():
    torch.manual_seed(0)
    model = Transformer()
    session = session_for(model)

    def gradients(step: spillway.Step | None) -> list[torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(1)
        losses = []
        for micro_batch in range(3):
            if step is not None:
                step.pass_(0, micro_batch)
            losses.append(model(tokens(micro_batch)))
        for loss in losses:
            loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients(None)
    for _ in range(4):
        with session.step() as step:
            found = gradients(step)
        assert all(map(torch.equal, expected, found))
    assert not fallbacks(session)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_with_a_checkpoint_inside(use_reentrant):
    class Checkpointed(Transformer):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            x = self.embedding(batch)
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=use_reentrant)
            return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch.flatten())

    session = same_bits(Checkpointed)
    assert not fallbacks(session)


def test_when_the_user_has_saved_tensor_hooks():
    packed = []

    def forward(model: nn.Module, i: int) -> torch.Tensor:
        def pack(tensor: torch.Tensor) -> torch.Tensor:
            packed.append(tensor.shape)
            return tensor.clone()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = model(tokens(i))
        loss.backward()
        return loss

    session = same_bits(Transformer, forward)
    assert packed and moved(session) == (0, 0)


def test_with_torch_autograd_grad():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        loss = model(tokens(i))
        for parameter, gradient in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
            parameter.grad = gradient
        return loss

    assert moved(same_bits(Transformer, forward))[0] > 0


def test_with_double_backward():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(i), requires_grad=True)
        loss = model(x).square().mean()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + gradient.square().sum()).backward()
        return loss

    same_bits(lambda: nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)), forward)


def test_with_two_backward_passes_over_a_retained_graph():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        loss = model(tokens(i))
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    same_bits(Transformer, forward)


def test_with_a_custom_autograd_function():
    class Cubed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(32, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Cube.apply(self.inner(x)).mean()

    def forward(model: nn.Module, i: int) -> torch.Tensor:
        loss = model(torch.randn(64, 32, generator=torch.Generator().manual_seed(i)))
        loss.backward()
        return loss

    session = same_bits(Cubed, forward)
    assert moved(session)[0] >= 64 * 64 * 4


def test_when_python_has_seen_the_storages():
    seen = []

    class Watched(Transformer):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            x = self.embedding(batch)
            for layer in self.layers:
                x = layer(x)
                seen.append(x.untyped_storage().nbytes())
            return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch.flatten())

    same_bits(Watched)
    assert seen


def test_with_tensors_of_a_python_class():
    class Wrapped(torch.Tensor):
        pass

    def forward(model: nn.Module, i: int) -> torch.Tensor:
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(i)).as_subclass(Wrapped)
        loss = model(x).square().mean()
        loss.backward()
        return loss.as_subclass(torch.Tensor)

    same_bits(lambda: nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)), forward)


def test_when_sequence_lengths_change():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        loss = model(tokens(i, length=16 + 8 * i))
        loss.backward()
        return loss

    session = same_bits(Transformer, forward, steps=5)
    assert not fallbacks(session)


def test_of_a_model_that_is_frozen_in_part():
    def make() -> nn.Module:
        model = Transformer()
        for parameter in model.layers[:2].parameters():
            parameter.requires_grad_(False)
        return model

    same_bits(make)


def test_after_an_evaluation_in_between():
    torch.manual_seed(0)
    model = Transformer()
    expected = train(model, None, baseline_step, 3)
    torch.manual_seed(0)
    model = Transformer()
    session = session_for(model)

    def with_evaluation(model: nn.Module, i: int) -> torch.Tensor:
        with torch.no_grad():
            model(tokens(50 + i))
        torch.manual_seed(100 + i)
        return baseline_step(model, i)

    found = train(model, session, with_evaluation, 3)
    assert all(map(torch.equal, expected, found))
    assert not fallbacks(session)


def test_when_a_forward_in_the_step_gets_no_backward():
    torch.manual_seed(0)
    expected = train(Transformer(), None, baseline_step, 3)
    torch.manual_seed(0)
    model = Transformer()
    session = session_for(model)

    def with_unused_forward(model: nn.Module, i: int) -> torch.Tensor:
        model(tokens(50 + i))
        torch.manual_seed(100 + i)
        return baseline_step(model, i)

    found = train(model, session, with_unused_forward, 3)
    assert all(map(torch.equal, expected, found))
