"""Buffers that two processes hold alike, shared out between them."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from conftest import Transformer, as_ranks, baseline_step, join, session_for, tokens, train

import spillway

needs_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="skipped: this torch has no gloo")
RULES = {
    "kept": '[[rule]]\naction = "keep"\nshard = true\n',
    "offloaded": '[[rule]]\naction = "offload"\nshard = true\n',
    "recomputed": "[paddle]\nrecompute_interval = 1\nrecompute_partition = true\n",
}


def run_equal(rank: int, folder: str, case: str, by_name: bool) -> None:
    join(rank, folder)
    torch.manual_seed(0)
    without = train(Transformer(), None, baseline_step, 5)
    torch.manual_seed(0)
    model = Transformer()
    group = dist.new_group()
    session = session_for(model, rules=RULES[case], shard_group=group.group_name if by_name else group)
    managed = train(model, session, baseline_step, 5)
    assert len(without) == len(managed) > 5
    assert all(map(torch.equal, without, managed))
    values = session.report().to_dict()
    shard = values["shard"]
    assert shard["ranks"] == 2 and shard["buffers"] > 0 and shard["gathers"] == shard["buffers"]
    assert shard["bytes"] // 2 <= shard["part_bytes"] <= shard["bytes"] // 2 + 512 * shard["buffers"]
    assert not shard["mismatched"] and not values["fallbacks"], values
    dist.destroy_process_group()


@needs_gloo
@pytest.mark.parametrize(("case", "by_name"), [("kept", False), ("offloaded", True), ("recomputed", False)])
def test_two_processes_hold_a_half_each_and_have_the_same_bits(tmp_path, case, by_name):
    as_ranks(run_equal, str(tmp_path), case, by_name)


def run_unequal(rank: int, folder: str) -> None:
    join(rank, folder)

    def other_data(model: torch.nn.Module, i: int) -> torch.Tensor:
        loss: torch.Tensor = model(tokens(10 * i + rank))
        loss.backward()
        return loss

    torch.manual_seed(0)
    without = train(Transformer(), None, other_data, 4)
    torch.manual_seed(0)
    model = Transformer()
    session = session_for(model, rules=RULES["kept"], shard_group=dist.new_group())
    assert all(map(torch.equal, without, train(model, session, other_data, 4)))
    values = session.report().to_dict()
    refused = values["shard"]["mismatched"]
    assert refused and all(text.endswith(": it is not equal on all ranks of the shard group") for text in refused)
    assert any(text.startswith("layers.1.mlp.2 ") for text in refused), refused
    assert values["fallbacks"]["not sharded: it is not equal on all ranks of the shard group"] == len(refused)
    assert "not sharded" in str(session.report())
    dist.destroy_process_group()


@needs_gloo
def test_what_is_not_equal_is_refused_with_the_reason(tmp_path):
    as_ranks(run_unequal, str(tmp_path))


def refuse(group: object, text: str) -> None:
    with pytest.raises(spillway.InvalidArgument) as error:
        session_for(Transformer(), shard_group=group)
    assert str(error.value).startswith(f"[session] shard_group: {text}"), error.value


def run_wrong_groups(rank: int, folder: str) -> None:
    join(rank, folder)
    refuse("nobody", "torch.distributed has no group named 'nobody'; ")
    refuse(dist.group.WORLD, "the default group is everybody's, and a session needs one of its own; ")
    refuse(dist.group.WORLD.group_name, "the default group is everybody's, ")
    refuse([0, 1], "a group of torch.distributed or its name wanted, found list; ")
    first = dist.new_group([0])
    if rank == 1:
        refuse(first, "this process is not in the group; ")
    dist.destroy_process_group()


@needs_gloo
def test_groups_that_cannot_be_are_refused(tmp_path):
    refuse("any", "torch.distributed has not begun; call init_process_group() first")
    as_ranks(run_wrong_groups, str(tmp_path))
