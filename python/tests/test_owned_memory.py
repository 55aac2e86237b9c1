"""Libraries that free, gather, swap and refill memory that autograd saved; and what autograd must give back as it was."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from conftest import as_ranks, join
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

import spillway

WIDTH = 64
ROWS = 256
STEPS = 5
ACTIONS = ["keep", "offload", "recompute", "budget"]
WINDOWS = ["0 B", "16 KiB", "64 MiB"]
# A race need not show every time.
REPEATS = 20 if os.environ.get("SPILLWAY_TEST_LONG") == "1" else 1


def managed(model: nn.Module, action: str, window: str, budget: float | str = 0.9) -> spillway.Session:
    if action == "budget":
        return spillway.Session(
            model, budget=budget, plan_in_background=False, small="1 KiB", offload_window=window, prefetch_window=window
        )
    rules = f'[[rule]]\naction = "{action}"\n'
    return spillway.Session(model, rules=rules, small="1 KiB", offload_window=window, prefetch_window=window)


class Block(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def blocks(width: int = WIDTH) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(width) for _ in range(4)])


def train(
    model: nn.Module, session: spillway.Session | None, rank: int = 0, rows: int = ROWS, width: int = WIDTH
) -> list[torch.Tensor]:
    """Losses and gradients of a few steps."""
    values = []
    for i in range(STEPS):
        x = torch.randn(rows, width, generator=torch.Generator().manual_seed(10 * i + rank))
        x = x.to(next(model.parameters()).device)
        with session.step() if session is not None else contextlib.nullcontext():
            loss = model(x).square().mean()
            loss.backward()
        values.append(loss.detach().clone())
        for parameter in model.parameters():
            grad = parameter.grad
            if grad is not None:
                values.append((grad.to_local() if hasattr(grad, "to_local") else grad).clone())
            parameter.grad = None
    return values


def fsdp2(frozen: bool = False) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = blocks()
    if frozen:
        for block in model:
            block.up.requires_grad_(False)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh)
    return model


def fsdp2_frozen() -> nn.Module:
    return fsdp2(frozen=True)


def on_ranks(rank: int, folder: str, make: Callable[[], nn.Module], repeats: int) -> None:
    join(rank, folder)
    without = train(make(), None, rank)
    for action, window in itertools.product(ACTIONS, WINDOWS):
        for repeat in range(repeats):
            model = make()
            session = managed(model, action, window)
            with_session = train(model, session, rank)
            assert all(map(torch.equal, without, with_session)), (action, window, repeat, session.report())
            values = session.report().to_dict()
            if action == "offload" and window == "0 B":
                assert values["bytes_out"] > 0
            if action == "recompute":
                assert values["repeated_calls"] > 0
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_gloo_available(), reason="skipped: this torch has no gloo")
@pytest.mark.parametrize("make", [fsdp2, fsdp2_frozen])
def test_fsdp2_gives_the_same_bits(tmp_path, make):
    as_ranks(on_ranks, str(tmp_path), make, REPEATS)


class Partitioned(nn.Module):
    """As ZeRO-3 does it: `weight.data` is gathered before its use and given up after it, by hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.shards = {name: parameter.detach().clone() for name, parameter in self.linear.named_parameters()}
        self.gathered: list[StorageWeakRef] = []  # In forward.
        self.partition()
        for parameter in self.linear.parameters():
            parameter.register_post_accumulate_grad_hook(self.partition_one)

    def gather(self) -> None:
        for name, parameter in self.linear.named_parameters():
            parameter.data = self.shards[name].clone()
            self.gathered.append(StorageWeakRef(parameter.data.untyped_storage()))

    def gather_again(self) -> None:
        """Within the memory of all of them, which is larger."""
        flat = torch.cat([shard.flatten() for shard in self.shards.values()])
        begin = 0
        for name, parameter in self.linear.named_parameters():
            shard = self.shards[name]
            parameter.data = flat[begin : begin + shard.numel()].view(shard.shape)
            begin += shard.numel()

    def partition_one(self, parameter: torch.Tensor) -> None:
        parameter.data = torch.empty(0)

    def partition(self) -> None:
        for parameter in self.linear.parameters():
            self.partition_one(parameter)


class PartitionedLinear(Partitioned):
    """With a function of the library in the place of F.linear."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gather()
        y = PartitionedProduct.apply(x, self.linear.weight) + self.linear.bias
        y.register_hook(lambda _: self.gather_again())
        self.partition()
        return nn.functional.gelu(y)


class PartitionedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


class HookedLinear(Partitioned):
    """With hooks on a layer that knows nothing of it. In its place F.linear saves a view of the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.linear.register_forward_pre_hook(lambda *_: self.gather())
        self.linear.register_forward_hook(lambda *_: self.partition())
        self.gathering_again().register_full_backward_pre_hook(lambda *_: self.gather_again())

    def gathering_again(self) -> nn.Module:
        return self.linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x))


class HookedProduct(HookedLinear):
    """A product saves the weight itself. Gathered again early enough for what is recomputed from it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear.forward = lambda x: x @ self.linear.weight + self.linear.bias

    def gathering_again(self) -> nn.Module:
        return self


class Discarded(nn.Module):
    """As Megatron's CheckpointWithoutOutput: the activation's memory is freed after its use and filled again."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = nn.functional.gelu(x)
        y = self.linear(output)
        size, owned, source = output.untyped_storage().size(), [output.detach()], x.detach()

        def fill(_: torch.Tensor) -> None:
            owned[0].untyped_storage().resize_(size)
            owned[0].data.copy_(nn.functional.gelu(source))
            owned.clear()

        y.register_hook(fill)
        output.untyped_storage().resize_(0)
        return y


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # In the first layer.
@pytest.mark.parametrize("action,window", list(itertools.product(ACTIONS, WINDOWS)))
@pytest.mark.parametrize("layer", [PartitionedLinear, HookedLinear, HookedProduct, Discarded])
def test_memory_that_comes_and_goes_gives_the_same_bits(layer, action, window):
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(*[layer() for _ in range(4)])

    # What is discarded is no memory that a plan could lower.
    budget = "2 MiB" if layer is Discarded else 0.9
    without = train(make(), None)
    for _ in range(REPEATS):
        model = make()
        session = managed(model, action, window, budget)
        assert all(map(torch.equal, without, train(model, session))), session.report()
        values = session.report().to_dict()
        if action == "offload" and window == "0 B" and layer is not Discarded:
            assert values["bytes_out"] > 0
        if action == "recompute" and layer is HookedProduct:
            # Its product is repeated with the weight as it is then; other layers' weights have no memory.
            assert values["repeated_calls"] > 0
            assert not any("aten::gelu" in each for each in values["demoted"]), values["demoted"]


@pytest.mark.parametrize("layer", [PartitionedLinear, HookedLinear, HookedProduct])
@pytest.mark.parametrize("action", ACTIONS)
def test_gathered_weights_are_not_kept_until_backward(layer, action):
    def kept(session_of: Callable[[nn.Module], spillway.Session] | None) -> list[int]:
        """Of each step: how many of the storages that its forward gathered are alive when backward begins."""
        torch.manual_seed(0)
        model = nn.Sequential(*[layer() for _ in range(4)])
        session = session_of(model) if session_of is not None else None
        alive = []
        for _ in range(STEPS):
            for each in model:
                each.gathered.clear()
            with session.step() if session is not None else contextlib.nullcontext():
                loss = model(torch.randn(ROWS, WIDTH, requires_grad=True)).square().mean()
                gathered = [storage for each in model for storage in each.gathered]
                assert len(gathered) == 8
                alive.append(sum(not storage.expired() for storage in gathered))
                loss.backward()
            for parameter in model.parameters():
                parameter.grad = None
        return alive

    without = kept(None)
    assert without == [4 if layer is HookedLinear else 0] * STEPS
    assert kept(lambda model: managed(model, action, "0 B")) == without


class FusedGradient(torch.autograd.Function):
    """As Megatron's gradient fusion: backward adds to an attribute of the Parameter."""

    @staticmethod
    def forward(ctx, x, weight, early):
        if early:
            ctx.save_for_backward(x, weight)
        y = x @ weight.t()
        if not early:
            ctx.save_for_backward(weight, x)
        ctx.early = early
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors if ctx.early else reversed(ctx.saved_tensors)
        weight.main_grad.add_(grad.t() @ x)
        assert isinstance(weight, nn.Parameter)
        return grad @ weight, None, None


class Fused(nn.Module):
    def __init__(self, early: bool, frozen: bool) -> None:
        super().__init__()
        self.early = early
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 8, requires_grad=not frozen)
        self.weight.main_grad = torch.zeros(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(FusedGradient.apply(x, self.weight, self.early))


def same_main_gradients(make: Callable[[], nn.Module], action: str) -> None:
    def run(action: str | None) -> tuple[list[torch.Tensor], spillway.Session | None]:
        torch.manual_seed(0)
        model = nn.Sequential(*[make() for _ in range(4)])
        session = None if action is None else managed(model, action, "0 B")
        for i in range(STEPS):
            x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(i), requires_grad=True)
            with session.step() if session is not None else contextlib.nullcontext():
                model(x).square().mean().backward()
        return [parameter.main_grad for parameter in model.parameters()], session

    without, _ = run(None)
    with_session, session = run(action)
    assert all(map(torch.equal, without, with_session))
    assert all(gradient.any() for gradient in without)
    if action in ("keep", "offload"):
        assert (session.report().to_dict()["bytes_out"] > 0) == (action == "offload")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_custom_function_gets_its_parameter_back(action, early, frozen):
    same_main_gradients(lambda: Fused(early, frozen), action)


class Scaled(torch.autograd.Function):
    """A function that others apply within theirs."""

    @staticmethod
    def forward(ctx, x, weight, fails):
        ctx.save_for_backward(weight, x)
        if fails:
            raise ZeroDivisionError
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        weight, x = ctx.saved_tensors
        weight.main_grad.add_((grad * x).sum(0))
        return grad * weight, None, None


class Nesting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, scale, inner):
        ctx.save_for_backward(x, weight)
        y = x * 2
        ctx.inner = None
        if inner == "without gradients":
            y = Scaled.apply(y, scale, False)
        elif inner == "with gradients":
            with torch.enable_grad():
                leaf = y.requires_grad_()
                ctx.inner = leaf, Scaled.apply(leaf, scale, False)
            y = ctx.inner[1].detach()
        elif inner == "with tensors that are no weights":
            with torch.enable_grad():
                leaf = y.requires_grad_()
                ctx.inner = leaf, PartitionedProduct.apply(leaf * 1, weight.detach() + scale)
            y = ctx.inner[1].detach()
        else:
            with contextlib.suppress(ZeroDivisionError):
                Scaled.apply(y, scale, True)
        return y @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        assert isinstance(weight, nn.Parameter)
        weight.main_grad.add_(grad.t() @ x)
        before = grad @ weight
        if ctx.inner is not None:
            leaf, y = ctx.inner
            (before,) = torch.autograd.grad(y, leaf, before)
        return before * 2, None, None, None


class Nested(nn.Module):
    def __init__(self, inner: str) -> None:
        super().__init__()
        self.inner = inner
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 8)
        self.weight.main_grad = torch.zeros(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.scale.main_grad = torch.zeros(WIDTH)
        if inner != "with gradients":
            self.scale.main_grad += 1  # Nothing is added to it.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(Nesting.apply(x, self.weight, self.scale, self.inner))


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "inner", ["without gradients", "with gradients", "with tensors that are no weights", "with an error"]
)
def test_a_custom_function_gets_its_parameter_back_after_another_one_ran_within_it(action, inner):
    same_main_gradients(lambda: Nested(inner), action)


def test_what_is_unmanaged_is_left_to_autograd():
    torch.manual_seed(0)
    model = blocks()
    session = managed(model, "offload", "0 B")
    out = []
    for unmanaged in [False] * 3 + [True] * 3:
        with session.step(), spillway.unmanaged() if unmanaged else contextlib.nullcontext():
            model(torch.randn(ROWS, WIDTH)).square().mean().backward()
        out.append(session.report().to_dict()["bytes_out"])
    assert out[2] > 0 and out[5] == 0
