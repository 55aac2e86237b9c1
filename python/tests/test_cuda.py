"""What the other tests say of the CPU, on a CUDA device: the same bits, and less memory."""

from __future__ import annotations

import contextlib

import pytest
import torch
from conftest import OFFLOAD, fallbacks, moved, same_bits, session_for, train
from torch import nn

pytest.importorskip("transformers", reason="skipped: transformers is not installed")

from hugging_face import gpt2, ids, llama, step  # noqa: E402
from test_transformers import trained  # noqa: E402

import spillway  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="skipped: no CUDA device"),
]


def small_llama(dtype: torch.dtype = torch.float32, layers: int = 3) -> nn.Module:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": layers}
    return llama(**sizes).to("cuda", dtype)


def batch(i: int, length: int = 128) -> torch.Tensor:
    return ids(i, 2, length).cuda()


def long_step(model: nn.Module, i: int) -> torch.Tensor:
    tokens = batch(i)
    loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    return loss


def check(session: spillway.Session) -> None:
    out, back = moved(session)
    assert out > 0 and back > 0 and not fallbacks(session), str(session.report())
    assert session.report().to_dict()["device"].startswith("cuda")


@pytest.mark.parametrize("windows", [{}, {"offload_window": "1 MiB", "prefetch_window": "1 MiB"}, {"offload_window": 0, "prefetch_window": 0}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_llama_gives_the_same_bits(dtype, windows):
    check(same_bits(lambda: small_llama(dtype), long_step, steps=5, **windows))


def test_gpt2_with_dropout_gives_the_same_bits():
    check(same_bits(lambda: gpt2().cuda(), step, steps=5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_the_same_bits(dtype):
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        tokens = batch(i)
        with torch.autocast("cuda", dtype=dtype):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return loss

    check(same_bits(small_llama, forward, steps=5))


def test_gradient_accumulation_gives_the_same_bits():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        total = torch.zeros((), device="cuda")
        for micro_batch in range(3):
            total += long_step(model, 10 * i + micro_batch).detach()
        return total

    check(same_bits(small_llama, forward, steps=5))


def test_other_lengths_give_the_same_bits():
    def forward(model: nn.Module, i: int) -> torch.Tensor:
        tokens = batch(i, length=64 + 32 * i)
        loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return loss

    check(same_bits(small_llama, forward, steps=5))


@pytest.mark.parametrize("around", ["both passes", "the forward pass"])
def test_a_stream_of_the_user_gives_the_same_bits(around):
    stream = torch.cuda.Stream()

    def forward(model: nn.Module, i: int) -> torch.Tensor:
        tokens = batch(i)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
            if around == "both passes":
                loss.backward()
        torch.cuda.current_stream().wait_stream(stream)
        if around == "the forward pass":
            loss.backward()
        # What was made on the other stream must not be handed out again before it is read here.
        torch.cuda.synchronize()
        return loss

    check(same_bits(small_llama, forward, steps=5))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model_gives_the_same_bits(backend):
    if backend == "inductor":
        pytest.importorskip("triton", reason="skipped: inductor needs triton")
    torch._dynamo.reset()
    torch.manual_seed(0)
    # One model for both, since what inductor finds to be the fastest kernel may be another one next time.
    model = torch.compile(small_llama(), backend=backend)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    without = train(model, None, long_step)
    model.load_state_dict(start)
    session = session_for(model)
    assert all(map(torch.equal, without, train(model, session, long_step)))
    check(session)
    torch._dynamo.reset()


def test_a_model_on_the_device_is_managed_there_by_default():
    model = small_llama()
    session = session_for(model)
    with session.step():
        long_step(model, 0)
    assert session.report().to_dict()["device"].startswith("cuda")


def test_offloading_lowers_the_peak_of_the_allocator():
    torch.manual_seed(0)
    model = small_llama(torch.bfloat16, layers=8)
    session = session_for(model, offload_window="1 MiB", prefetch_window="1 MiB")
    tokens = ids(0, 4, 512).cuda()

    def peak(managed: bool) -> int:
        model.zero_grad()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        managing = session.step() if managed else None
        if managing is not None:
            managing.__enter__()
        model(input_ids=tokens, labels=tokens).loss.backward()
        if managing is not None:
            managing.end()
        return torch.cuda.max_memory_allocated() - before

    peak(True)
    peak(True)
    without, with_session = peak(False), peak(True)
    assert with_session < 0.7 * without
    assert session.report().to_dict()["device_peak"] > 0


def test_memory_does_not_grow_with_the_steps():
    torch.manual_seed(0)
    model = small_llama()
    session = session_for(model)
    held = []
    for i in range(12):
        model.zero_grad()
        with session.step():
            long_step(model, i)
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated())
    assert len(set(held[3:])) == 1, held


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_trainer_has_the_same_losses(tmp_path, accumulation):
    pytest.importorskip("accelerate", reason="skipped: accelerate is not installed")
    expected = trained(tmp_path, None, accumulation, use_cpu=False)
    callback = spillway.SessionCallback(rules=OFFLOAD, small="1 KiB", host="64 MiB", offload_window="16 KiB")
    assert trained(tmp_path, callback, accumulation, use_cpu=False) == expected
    assert callback.session is not None
    check(callback.session)


def captured(session: spillway.Session) -> int:
    return sum(count for reason, count in fallbacks(session).items() if "captured in a CUDA graph" in reason)


@pytest.mark.parametrize("step_is_captured", [False, True])
def test_a_captured_step_gives_the_same_bits(step_is_captured):
    torch.manual_seed(0)
    model = small_llama()
    tokens = batch(0)

    def forward() -> torch.Tensor:
        loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return loss.detach()

    def gradients() -> list[torch.Tensor]:
        torch.cuda.synchronize()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = [forward(), *gradients()]
    session = session_for(model)
    for _ in range(3):
        model.zero_grad()
        with session.step():
            assert all(map(torch.equal, expected, [forward(), *gradients()]))
    model.zero_grad()

    def launched(*, managed: bool) -> list[torch.Tensor]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            forward()
        torch.cuda.current_stream().wait_stream(stream)
        model.zero_grad()
        graph = torch.cuda.CUDAGraph()
        within = torch.cuda.graph(graph)
        if not managed:
            with within:
                loss = forward()
        elif step_is_captured:
            with within, session.step():
                loss = forward()
        else:
            with session.step(), within:
                loss = forward()
        values = []
        for _ in range(2):
            graph.replay()
            values += [loss.clone(), *gradients()]
        model.zero_grad()
        return values

    # Operators may choose other kernels while they are captured, so a graph is compared with a graph.
    without = launched(managed=False)
    assert captured(session) == 0
    assert all(map(torch.equal, without, launched(managed=True)))
    assert captured(session) > 0
    model.zero_grad()
    with session.step():
        assert all(map(torch.equal, expected, [forward(), *gradients()]))
    out, back = moved(session)
    assert out > 0 and back > 0


@pytest.mark.parametrize("rules", [OFFLOAD, '[[rule]]\naction = "recompute"\n'])
@pytest.mark.parametrize("made", ["before the session", "within a step"])
def test_graphed_layers_give_the_same_bits(made, rules):
    def blocks() -> nn.ModuleList:
        torch.manual_seed(0)
        return nn.ModuleList(
            nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda() for _ in range(4)
        )

    def graphed(layers: nn.ModuleList) -> list[nn.Module]:
        sample = torch.zeros(512, 256, device="cuda", requires_grad=True)
        return [torch.cuda.make_graphed_callables(each, (sample,)) if i % 2 else each for i, each in enumerate(layers)]

    def run(layers: list[nn.Module], i: int) -> torch.Tensor:
        x = torch.randn(512, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(i), requires_grad=True)
        for layer in layers:
            x = x + layer(x.sin() * 2)
        loss = x.square().mean()
        loss.backward()
        return loss.detach()

    def trained(session: spillway.Session | None, modules: nn.ModuleList, layers: list[nn.Module] | None) -> list[torch.Tensor]:
        values = []
        for i in range(5):
            modules.zero_grad()
            with session.step() if session is not None else contextlib.nullcontext():
                if layers is None:
                    layers = graphed(modules)
                    modules.zero_grad()
                values.append(run(layers, i).clone())
            values += [parameter.grad.clone() for parameter in modules.parameters()]
        return values

    modules = blocks()
    without = trained(None, modules, graphed(modules))
    modules = blocks()
    layers = graphed(modules) if made == "before the session" else None
    session = session_for(modules, rules=rules)
    assert all(map(torch.equal, without, trained(session, modules, layers)))
    assert (captured(session) > 0) == (made == "within a step")
