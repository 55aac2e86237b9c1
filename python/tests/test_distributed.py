"""DistributedDataParallel over two processes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from conftest import OFFLOAD, Transformer, as_ranks, baseline_step, join, session_for, train
from torch.nn.parallel import DistributedDataParallel

RECOMPUTE = "[internevo]\ncheckpoint = true\n"


def work(rank: int, folder: str, rules: str) -> None:
    join(rank, folder)
    runs = []
    for managed in [False, True]:
        torch.manual_seed(0)
        model = DistributedDataParallel(Transformer())
        session = session_for(model, rules=rules) if managed else None
        runs.append(train(model, session, lambda m, i: baseline_step(m, 10 * i + rank), 4))
    assert all(map(torch.equal, *runs))
    values = session.report().to_dict()
    assert not values["fallbacks"] and not values["demoted"]
    assert (values["bytes_out"] > 0) == (rules == OFFLOAD) and (values["repeated_calls"] > 0) == (rules == RECOMPUTE)
    assert '"layers.1.mlp.0"' in session.profile_json()
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_gloo_available(), reason="skipped: this torch has no gloo")
@pytest.mark.parametrize("rules", [OFFLOAD, RECOMPUTE], ids=["offload", "recompute"])
def test_ddp_gives_the_same_bits_on_both_ranks(tmp_path, rules):
    as_ranks(work, str(tmp_path), rules)
