"""Steps whose gradients are wrong: an error before the optimizer uses them, after which training goes on."""

from __future__ import annotations

import contextlib
import gc

import pytest
import torch
from conftest import OFFLOAD
from torch import nn

import spillway

WIDTH = 64
ROWS = 64  # 16 KiB each.
STEPS = 6


class Layer(nn.Module):
    """Saves its input; `write` is called with that afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.write = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = x * 0.5
        y = scaled.sin()
        if self.write is not None:
            self.write(scaled)
        return self.linear(y)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def write_through_numpy(tensor: torch.Tensor) -> None:
    tensor.detach().numpy()[...] += 1


def made() -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Model()
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def batch(i: int) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(i))


def session_for(model: nn.Module, **options: object) -> spillway.Session:
    settings: dict[str, object] = {"small": "1 KiB", "host": "64 MiB", "offload_window": "64 KiB", "prefetch_window": 0}
    return spillway.Session(model, **{"rules": OFFLOAD, **settings, **options})  # type: ignore[arg-type]


def values_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def trained(steps: int = STEPS) -> list[torch.Tensor]:
    model, optimizer = made()
    for i in range(steps):
        model(batch(i)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return values_of(model)


@pytest.mark.parametrize("written_in", [[0], [2], [0, 3, STEPS - 1]])
def test_a_step_with_wrong_gradients_raises_before_the_optimizer_uses_them(written_in):
    model, optimizer = made()
    session = session_for(model, verify_every=1)
    errors = []
    for i in range(STEPS):
        layer = model.layers[1 + written_in.index(i)] if i in written_in else None
        if layer is not None:
            layer.write = write_through_numpy
        before = values_of(model)
        try:
            with session.step():
                model(batch(i)).backward()
            assert layer is None, "a step with wrong gradients has ended well"
        except spillway.VerificationError as error:
            assert layer is not None
            errors.append(str(error))
            assert all(map(torch.equal, before, model.parameters()))
            layer.write = None
            optimizer.zero_grad()
            with session.step():  # The same batch again.
                model(batch(i)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(errors) == len(written_in)
    for error in errors:
        assert "the gradients of this step are wrong" in error
        assert "it was written in place after autograd had saved it" in error
    assert all(map(torch.equal, trained(), values_of(model))), session.report()
    assert len(session.report().to_dict()["demoted"]) == len([i for i in written_in if i > 0])


def write_through_data(tensor: torch.Tensor) -> None:
    tensor.data.add_(1)


RECOMPUTE = '[[rule]]\naction = "recompute"\n'
BOTH = '[[rule]]\nproducer = "aten::mul"\naction = "offload"\n' + RECOMPUTE


@pytest.mark.parametrize("window", ["0 B", "64 KiB", "1 MiB"])
@pytest.mark.parametrize("rules, written_in", [(OFFLOAD, 0), (RECOMPUTE, 0), (RECOMPUTE, 1), (RECOMPUTE, 3), (BOTH, 3)])
def test_where_operators_are_recorded_a_write_through_data_is_as_without_a_session(rules, written_in, window):
    def gradients(model: Model, session: spillway.Session | None) -> list[torch.Tensor]:
        found = []
        for i in range(written_in + 2):
            model.layers[2].write = write_through_data if i == written_in else None
            with session.step() if session is not None else contextlib.nullcontext():
                model(batch(i)).backward()
            found += [parameter.grad.clone() for parameter in model.parameters()]
            model.zero_grad()
        return found

    session = session_for(model := made()[0], rules=rules, offload_window=window)
    assert all(map(torch.equal, gradients(made()[0], None), gradients(model, session))), session.report()


def test_a_step_that_verifies_has_autograds_result_of_a_write_through_data():
    def gradients(*, managed: bool) -> list[torch.Tensor]:
        model, _ = made()
        step: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if managed:
            session = session_for(model)
            for i in range(3):
                with session.step():
                    model(batch(i)).backward()
            model.zero_grad()
            session.verify_next_step()
            step = session.step()
        model.layers[2].write = write_through_data
        with step:
            model(batch(3)).backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    assert all(map(torch.equal, gradients(managed=True), gradients(managed=False)))


def test_the_error_names_what_was_written():
    model, _ = made()
    session = session_for(model)
    model.layers[3].write = write_through_numpy
    with pytest.raises(spillway.VerificationError, match=r"layers\.3 aten::sin, made by aten::mul \(16\.0 KiB\)"):
        with session.step():
            model(batch(0)).backward()
    assert issubclass(spillway.VerificationError, spillway.Error)


def test_an_error_of_a_step_that_is_dropped_is_raised_by_the_next_one():
    model, _ = made()
    session = session_for(model)
    model.layers[1].write = write_through_numpy
    step = session.step().__enter__()
    model(batch(0)).backward()
    del step
    gc.collect()
    with pytest.raises(spillway.VerificationError, match="step 1"):
        session.step().__enter__()
    model.layers[1].write = None
    with session.step():
        model(batch(0)).backward()


class Batches(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2 * STEPS

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"x": batch(i)}


class Loss(nn.Module):
    """As the Trainer wants a model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = Model()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.model(x.flatten(0, 1))}


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("written_in", [0, 2, STEPS - 1])
def test_a_trainer_ends_before_it_uses_wrong_gradients(tmp_path, accumulation, written_in):
    transformers = pytest.importorskip("transformers", reason="skipped: transformers is not installed")
    pytest.importorskip("accelerate", reason="skipped: accelerate is not installed")
    weights: list[list[torch.Tensor]] = []  # At the begin of each step.

    class Writes(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, model=None, **kwargs):
            weights.append(values_of(model))
            model.model.layers[1].write = write_through_numpy if state.global_step == written_in else None

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=accumulation,
        max_steps=STEPS,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        seed=1,
    )
    options = {"small": "1 KiB", "host": "64 MiB", "offload_window": "64 KiB", "prefetch_window": 0, "verify_every": 1}
    callback = spillway.SessionCallback(rules=OFFLOAD, **options)
    model = Loss()
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Batches(), callbacks=[callback, Writes()])
    with pytest.raises(spillway.VerificationError, match=f"step {written_in + 1}: .* the gradients of this step are wrong"):
        trainer.train()
    assert len(weights) == written_in + 1
    assert all(map(torch.equal, weights[-1], values_of(model)))
    assert (written_in == 0) == all(map(torch.equal, weights[0], weights[-1]))


def test_the_programs_own_error_is_not_replaced():
    model, optimizer = made()
    session = session_for(model)
    model.layers[1].write = write_through_numpy
    with pytest.raises(ZeroDivisionError), session.step():
        model(batch(0)).backward()
        raise ZeroDivisionError
    model.layers[1].write = None
    optimizer.zero_grad()
    with pytest.raises(spillway.VerificationError, match="step 1: "):
        session.step().__enter__()
    for i in range(STEPS):
        with session.step():
            model(batch(i)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(map(torch.equal, trained(), values_of(model))), session.report()


def test_a_second_training_has_no_error_of_the_one_before():
    pytest.importorskip("transformers", reason="skipped: transformers is not installed")
    options = {"small": "1 KiB", "host": "64 MiB", "offload_window": "64 KiB"}
    callback = spillway.SessionCallback(rules=OFFLOAD, **options)
    model, _ = made()
    callback.on_train_begin(None, None, None, model=model)
    callback.on_step_begin(None, None, None)
    model.layers[1].write = write_through_numpy
    model(batch(0)).backward()  # And then an error ends it.
    first = callback.session
    callback.on_train_begin(None, None, None, model=model)
    assert first.report().to_dict()["steps"] == 1 and callback.session is not first
