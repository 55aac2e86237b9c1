"""torch's FSDP in both versions: weights whose memory it gathers, frees and gathers again. See test_owned_memory.py."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from conftest import as_ranks, some
from test_owned_memory import ACTIONS, REPEATS, WINDOWS, Block, blocks, managed, on_ranks, train
from torch import nn


def fsdp1(use_orig_params: bool) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        blocks(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        use_orig_params=use_orig_params,
        device_id=torch.device("cpu"),
    )


@pytest.mark.skipif(not dist.is_gloo_available(), reason="skipped: this torch has no gloo")
@pytest.mark.parametrize("use_orig_params", some([True, False], 1))
def test_fsdp1_gives_the_same_bits(tmp_path, use_orig_params):
    make = functools.partial(fsdp1, use_orig_params)
    as_ranks(on_ranks, str(tmp_path), make, REPEATS)


# What copies and collectives do beside each other shows on a GPU alone; on the CPU the same code runs with gloo.
WIDTHS = {"cpu": 64, "cuda": 512}
ROWS = {"cpu": 256, "cuda": 4096}
WINDOWS_ON = {"cpu": WINDOWS, "cuda": ["0 B", "8 MiB", "4 GiB"]}


def fsdp2(device: str, reshard: bool, half: bool) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = blocks(WIDTHS[device]).to(device)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if half else MixedPrecisionPolicy()
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for each in [*model, model]:
        fully_shard(each, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    return model


def on_device(_: int, folder: str, device: str, make: Callable[[], nn.Module], repeats: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(0)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
    sizes = {"rows": ROWS[device], "width": WIDTHS[device]}
    without = train(make(), None, **sizes)
    for action, window in itertools.product(ACTIONS, WINDOWS_ON[device]):
        for repeat in range(repeats):
            model = make()
            session = managed(model, action, window)
            found = train(model, session, **sizes)
            assert len(found) == len(without)
            different = [i for i, pair in enumerate(zip(found, without)) if not torch.equal(*pair)]
            assert not different, (action, window, repeat, different, session.report())
            values = session.report().to_dict()
            assert values["device"].startswith(device), values["device"]
            if action == "offload" and window == "0 B":
                assert values["bytes_out"] > 0
            if action == "recompute":
                assert values["repeated_calls"] > 0
    dist.destroy_process_group()


ON_DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(not dist.is_gloo_available(), reason="skipped: this torch has no gloo")),
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="skipped: no CUDA device"),
            pytest.mark.skipif(not dist.is_nccl_available(), reason="skipped: this torch has no NCCL"),
        ],
    ),
]


@pytest.mark.parametrize("device", ON_DEVICES)
@pytest.mark.parametrize("reshard, half", [(True, False), (False, False), (True, True)])
def test_fsdp2_alone_on_its_device_gives_the_same_bits(tmp_path, device, reshard, half):
    make = functools.partial(fsdp2, device, reshard, half)
    repeats = REPEATS if device == "cuda" else max(1, REPEATS // 2)  # Alone on the CPU nothing races.
    as_ranks(on_device, str(tmp_path), device, make, repeats, ranks=1)
