"""The groups of torch.distributed over which sessions share buffers."""

from __future__ import annotations

from typing import Union

import torch.distributed as dist

from .errors import InvalidArgument

ShardGroup = Union["dist.ProcessGroup", str]

_MAKE_ONE = "make one with torch.distributed.new_group()"


def read_shard_group(group: ShardGroup) -> tuple[str, list[int]]:
    """The name of a group that this process is in, and the ranks of its members."""
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgument("[session] shard_group: torch.distributed has not begun; call init_process_group() first")
    found = _by_name(group) if isinstance(group, str) else group
    if found is dist.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgument(
            "[session] shard_group: this process is not in the group; give every rank the group that it is a member of"
        )
    if not isinstance(found, dist.ProcessGroup):
        raise InvalidArgument(
            f"[session] shard_group: a group of torch.distributed or its name wanted, found {type(group).__name__}; {_MAKE_ONE}"
        )
    if found is dist.group.WORLD:
        # What others call on it, on other threads, would get between the session's calls.
        raise InvalidArgument(
            f"[session] shard_group: the default group is everybody's, and a session needs one of its own; {_MAKE_ONE}"
        )
    return found.group_name, dist.get_process_group_ranks(found)


def _by_name(name: str) -> dist.ProcessGroup:
    try:
        return dist.distributed_c10d._resolve_process_group(name)
    except (RuntimeError, ValueError):
        raise InvalidArgument(
            f"[session] shard_group: torch.distributed has no group named '{name}'; give a group's group_name"
        ) from None
