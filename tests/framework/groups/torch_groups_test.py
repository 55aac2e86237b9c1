#!/usr/bin/env python3
"""The conformance suite of groups, over gloo groups of torch.distributed: one Python process for each rank.

usage: torch_groups_test.py LIBRARY RANKS
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path


def run_rank(library, rank, size, meeting):
    """In a process of its own."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    groups = []  # c10d finds a group by its name only while somebody holds it.

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    def new_group(ranks, count, name, room):
        members = ranks[:count]
        groups.append(dist.new_group(members, backend="gloo"))
        text = (groups[-1].group_name if rank in members else "not a member").encode()[: room - 1]
        ctypes.memmove(name, text + b"\0", len(text) + 1)

    result = ctypes.CDLL(library).run_conformance(rank, size, new_group)
    dist.barrier()
    dist.destroy_process_group()
    return result


def main():
    if len(sys.argv) == 6:
        _, library, size, _, rank, meeting = sys.argv
        return run_rank(library, int(rank), int(size), meeting)
    library, size = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        ranks = [
            subprocess.Popen([sys.executable, __file__, library, str(size), "rank", str(rank), meeting]) for rank in range(size)
        ]
        codes = [rank.wait() for rank in ranks]
    print(f"ended with {codes}")
    return max(abs(code) for code in codes)


if __name__ == "__main__":
    sys.exit(main())
