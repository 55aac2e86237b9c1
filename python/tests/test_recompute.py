"""Recomputed buffers: what must be right, what must be caught, and what the report says of it."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable

import pytest
import torch
from conftest import Cube, Transformer, fallbacks, baseline_step, same_bits, session_for, tokens, train
from torch import nn
from torch.utils.checkpoint import checkpoint

import spillway

EVERYTHING = '[[rule]]\naction = "recompute"\nfallback = "offload"\n'
LAYERS = "[internevo]\ncheckpoint = true\n"
Program = Callable[[torch.Tensor, int], torch.Tensor]


class OneWeight(nn.Module):
    """Runs a function of one weight and of the step's number."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(64, 64))
        self.program = program

    def forward(self, i: int) -> torch.Tensor:
        return self.program(self.weight, i)


def run(program: Program, steps: int = 6, **options: object) -> spillway.Session:
    """Requires the bits of the run without a session in every step."""

    def step(model: nn.Module, i: int) -> torch.Tensor:
        loss: torch.Tensor = model(i)
        loss.backward()
        return loss

    return same_bits(lambda: OneWeight(program), step, steps, **{"rules": EVERYTHING, **options})


def demoted(session: spillway.Session) -> list[str]:
    return list(session.report().to_dict()["demoted"])


def repeated(session: spillway.Session) -> int:
    return int(session.report().to_dict()["repeated_calls"])


# What is wrong about the recipe, and so must be caught.


def write_by_numpy(x: torch.Tensor) -> None:
    x.detach().numpy()[0, 5] = 7


def write_by_ctypes(x: torch.Tensor) -> None:
    ctypes.c_float.from_address(x.data_ptr() + 20).value = 7.0


@pytest.mark.parametrize("write", [write_by_numpy, write_by_ctypes])
def test_a_write_that_torch_does_not_see_is_caught(write):
    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = weight * 2
        write(x)
        y = x.sin()
        return (y * y.cos()).sum() + (x * x).sum()

    session = run(program)
    assert len(demoted(session)) == 1 and "its recomputed bits differ" in demoted(session)[0]
    assert "not recomputed" in str(session.report()) and repeated(session) > 0
    assert session.report().to_dict()["actions"]["offload"]["buffers"] == 1, "the second choice"


@pytest.mark.parametrize("verify_every, found", [(3, True), (0, False)])
def test_a_write_that_comes_late_is_caught_by_a_later_verification(verify_every, found):
    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = weight * 2
        if i >= 5:  # The sixth step, and so a multiple of three.
            write_by_numpy(x)
        return (x * x).sum()

    if found:
        assert len(demoted(run(program, 8, verify_every=verify_every))) == 1
    else:
        with pytest.raises(AssertionError, match="values differ"):
            run(program, 8, verify_every=verify_every)


def test_a_verification_is_asked_for():
    writes = []

    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = weight * 2
        for write in writes:
            write(x)
        return (x * x).sum()

    torch.manual_seed(0)
    model = OneWeight(program)
    session = session_for(model, rules=EVERYTHING)

    def step() -> torch.Tensor:
        model.zero_grad()
        with session.step():
            model(0).backward()
        return model.weight.grad

    for _ in range(4):
        step()
    assert not demoted(session)
    writes.append(write_by_numpy)
    session.verify_next_step()
    expected = 4 * (2 * model.weight.detach())
    expected[0, 5] = 4 * 7
    assert torch.equal(step(), expected)
    assert len(demoted(session)) == 1
    assert torch.equal(step(), expected)


unsteady_calls = itertools.count()


@torch.library.custom_op("spillway_test::unsteady", mutates_args=())
def unsteady(x: torch.Tensor) -> torch.Tensor:
    return x + 0.01 * next(unsteady_calls)


@unsteady.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


unsteady.register_autograd(lambda context, gradient: gradient)


def test_an_operator_that_gives_something_else_each_time_is_caught():
    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        global unsteady_calls
        unsteady_calls = itertools.count(100 * i)
        x = unsteady(weight)
        return (x * x).sum() + x.exp().sum()

    session = run(program)
    assert len(demoted(session)) == 1 and "bits differ" in demoted(session)[0]
    assert repeated(session) == 1, "only what was made of it"


def test_an_operator_that_keeps_more_for_gradients_is_caught():
    # Repeated without gradients, the LSTM of the CPU gives no workspace.
    def make() -> nn.Module:
        model = OneWeight(lambda weight, i: lstm(weight[None] * 2)[0].square().sum())
        lstm = nn.LSTM(64, 16)
        model.add_module("lstm", lstm)
        return model

    def step(model: nn.Module, i: int) -> torch.Tensor:
        loss: torch.Tensor = model(i)
        loss.backward()
        return loss

    session = same_bits(make, step, 5, rules=EVERYTHING)
    assert all("mkldnn_rnn_layer" in each for each in demoted(session))


# What must be right and is no reason to demote anything.


def test_a_scalar_that_changes_every_step_is_followed():
    session = run(lambda weight, i: (weight * (1.5 + i)).square().sum())
    assert repeated(session) > 0 and not demoted(session)


def test_writes_to_data_are_followed():
    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = weight * 2
        x.data.add_(1)
        y = weight.sin() * 3
        if i >= 3:  # After the verification.
            y.data.mul_(2)
        return x.exp().sum() + (x * x).sum() + (y * y).sum()

    session = run(program)
    assert repeated(session) > 0 and not demoted(session)


def test_a_write_to_the_data_of_what_was_saved_is_seen_as_without_a_session():
    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = weight * 2
        y = x * x
        if i >= 3:
            x.data.add_(1)
        return y.sum()

    session = run(program)
    assert fallbacks(session) == {"a saved buffer was modified unseen by autograd: kept": 3}


global_scale = 1.0


class ReadsAGlobal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x) * global_scale
        return (y.sigmoid() * y).sum()


def test_a_global_that_changes_before_backward_is_not_read_again():
    def step(model: nn.Module, i: int) -> torch.Tensor:
        global global_scale
        global_scale = 1.0 + i
        loss: torch.Tensor = model(torch.randn(64, 32, generator=torch.Generator().manual_seed(i)))
        global_scale = -5.0
        loss.backward()
        return loss

    session = same_bits(ReadsAGlobal, step, 5, rules=EVERYTHING)
    assert repeated(session) > 0 and not demoted(session)


cubed = 0


@torch.library.custom_op("spillway_test::scaled_cube", mutates_args=())
def scaled_cube(x: torch.Tensor, scale: float) -> torch.Tensor:
    global cubed
    cubed += 1
    return torch.from_numpy(x.detach().numpy() ** 3 * scale)


@scaled_cube.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


def keep_inputs(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def cube_backward(ctx, gradient):
    (x,) = ctx.saved_tensors
    return 3 * x * x * ctx.scale * gradient, None


scaled_cube.register_autograd(cube_backward, setup_context=keep_inputs)


@torch.library.custom_op("spillway_test::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.detach().numpy()[:] *= 2


def test_custom_operators_written_in_python_are_repeated():
    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = scaled_cube(weight * 2, 1.5 + i)
        y = weight.detach().cos()
        double_(y)
        return x.sin().sum() + (x * x).sum() + (y * weight).sum()

    steps = 6
    session = run(program, steps)
    assert not demoted(session) and not fallbacks(session)
    # Without and with a session, and again in each step but the first.
    assert cubed == steps + steps + steps - 1
    assert "spillway_test::double_" in (session.plan_json() or "")


def in_place(weight: torch.Tensor, i: int) -> torch.Tensor:
    x = (weight * 2).relu_()
    y = nn.functional.dropout(x * x, 0.3).mul_(2)
    z = torch.zeros(64, 64)
    z[:32] = y[:32]
    z[torch.arange(32, 64)] = 3 * x[32:]
    return (y * y).sum() + torch.cat([x, z]).square().sum()


def generators(weight: torch.Tensor, i: int) -> torch.Tensor:
    own = torch.Generator().manual_seed(i)
    x = weight * torch.randn(64, 64, generator=own)
    return (x * x * (torch.rand(64, 64) < 0.5)).sum() + nn.functional.dropout(x).exp().sum()


def lists(weight: torch.Tensor, i: int) -> torch.Tensor:
    a, b = torch.split(weight * 2, 32)
    c, d = torch.stack([a, b]).exp().unbind(0)
    return torch.einsum("ij,ij->", c, d) + (c * d).sin().sum()


def attention(weight: torch.Tensor, i: int) -> torch.Tensor:
    q, k, v = ((weight * j).view(1, 4, 16, 64) for j in (1, 2, 3))
    return nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.2).square().sum()


def convolution(weight: torch.Tensor, i: int) -> torch.Tensor:
    x = nn.functional.conv2d((weight * 2)[None, None], weight[None, None, :3, :3])
    return nn.functional.max_pool2d(x.relu(), 2).square().sum()


def outputs_given(weight: torch.Tensor, i: int) -> torch.Tensor:
    given = torch.empty(64, 64)
    torch.exp(weight.detach() * 2, out=given)
    return (given * weight).sum() + (given.sin() * weight).sum()


PROGRAMS: dict[str, Program] = {
    "in place": in_place,
    "generators": generators,
    "lists": lists,
    "attention": attention,
    "convolution": convolution,
    "outputs given": outputs_given,
    "function": lambda weight, i: Cube.apply(weight * 2).exp().sum(),
    "complex": lambda weight, i: (torch.fft.fft(weight * 2).abs() ** 2).sum(),
    "vmap": lambda weight, i: torch.vmap(lambda row: (row.exp() * row).sum())(weight * 2).sum(),
    "checkpoint": lambda weight, i: (
        checkpoint(lambda x: x.exp().sin(), weight * 2, use_reentrant=False) * weight.cos()
    ).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_the_same_to_the_bit(name):
    session = run(PROGRAMS[name])
    assert repeated(session) > 0 and not demoted(session) and not fallbacks(session), str(session.report())


# Around models.


def accumulated(model: nn.Module, i: int) -> torch.Tensor:
    total = torch.zeros(())
    for micro_batch in range(3):
        loss = model(tokens(10 * i + micro_batch))
        loss.backward()
        total += loss.detach()
    return total


def under_autocast(model: nn.Module, i: int) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(tokens(i))
    loss.backward()
    return loss


def accumulated_under_one_autocast(model: nn.Module, i: int) -> torch.Tensor:
    # Weights are cast once: the passes after the first have fewer operators.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return accumulated(model, i)


def with_other_lengths(model: nn.Module, i: int) -> torch.Tensor:
    loss: torch.Tensor = model(tokens(i, length=16 + 8 * i))
    loss.backward()
    return loss


def retained(model: nn.Module, i: int) -> torch.Tensor:
    loss: torch.Tensor = model(tokens(i))
    loss.backward(retain_graph=True)
    loss.backward()
    return loss


STEPS = [baseline_step, accumulated, under_autocast, accumulated_under_one_autocast, with_other_lengths, retained]


@pytest.mark.parametrize("rules", [EVERYTHING, LAYERS], ids=["everything", "layers"])
@pytest.mark.parametrize("step", STEPS)
def test_a_transformer_with_dropout_gives_the_same_bits(step, rules):
    session = same_bits(lambda: Transformer(tied=True), step, 5, rules=rules)
    values = session.report().to_dict()
    assert values["repeated_calls"] > 0 and values["recorded_steps"] == 1, str(session.report())
    assert not demoted(session) and not fallbacks(session), str(session.report())


class MakesATableOnce(Transformer):
    table: torch.Tensor | None = None

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        x = self.embedding(batch)
        for layer in self.layers:
            x = layer(x)
            if self.table is None:
                self.table = (torch.arange(32.0).sin().mul(2).add(1).cos()[:, None] * torch.ones(1, 32)).exp()
            x = x * self.table
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch.flatten())


@pytest.mark.parametrize("rules", [EVERYTHING, LAYERS], ids=["everything", "layers"])
def test_a_first_step_that_makes_more_than_the_others_is_no_obstacle(rules):
    session = same_bits(MakesATableOnce, rules=rules)
    assert session.report().to_dict()["recorded_steps"] == 1 and repeated(session) > 0
    assert not demoted(session) and not fallbacks(session)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_around_one_layer_is_not_managed(use_reentrant):
    class Checkpointed(Transformer):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            x = self.embedding(batch)
            for i, layer in enumerate(self.layers):
                x = checkpoint(layer, x, use_reentrant=use_reentrant) if i == 1 else layer(x)
            return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch.flatten())

    session = same_bits(Checkpointed, rules=LAYERS)
    assert repeated(session) > 0 and not demoted(session) and not fallbacks(session)


def test_less_is_kept_where_replays_may_keep_nothing():
    def program(weight: torch.Tensor, i: int) -> torch.Tensor:
        x = weight * 2 + 1  # Nobody saves it; both replays below begin there.
        return x.exp().sum() + (x * 3).exp().sum()

    free, bound = (run(program, rules=EVERYTHING, recompute_cache=cache) for cache in ["1 GiB", 0])
    assert repeated(bound) > repeated(free) > 0
    with pytest.raises(spillway.InvalidArgument, match="-1 bytes"):
        session_for(Transformer(), recompute_cache=-1)


def test_a_plan_that_recomputes_is_taken_to_another_session():
    torch.manual_seed(0)
    expected = train(Transformer(), None, baseline_step, 4)
    torch.manual_seed(0)
    model = Transformer()
    first = session_for(model, rules=LAYERS)
    train(model, first, baseline_step, 2)
    torch.manual_seed(0)
    model = Transformer()
    second = session_for(model, rules=None, plan=first.plan_json())
    found = train(model, second, baseline_step, 4)
    assert all(map(torch.equal, expected, found))
    assert second.report().to_dict()["recorded_steps"] == 0 and repeated(second) > 0 and not fallbacks(second)


def test_the_report_names_what_was_recomputed():
    session = same_bits(Transformer, rules=LAYERS, steps=3)
    values = session.report().to_dict()
    assert values["bytes_recomputed"] >= values["actions"]["recompute"]["bytes"] > 0
    assert values["saved_peak_with"] < values["saved_peak_without"] and values["demoted"] == []
    assert set(values["waits"]) == {"step", "release_ns", "reload_ns", "in_place_ns", "gather_ns"}
    assert set(values["offloads_skipped"]) == {"buffers", "bytes"}
    assert "recomputed " in str(session.report())


def test_verifying_every_minus_one_steps_is_refused():
    with pytest.raises(spillway.InvalidArgument, match="verify_every = -1"):
        session_for(Transformer(), verify_every=-1)
