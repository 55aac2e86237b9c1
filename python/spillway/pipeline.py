"""The order of passes on one rank of a pipeline, for Session.step().

    schedule = spillway.pipeline.schedule(stage=0, stages=4, micro_batches=16)
    with session.step(schedule) as step:
        for what, chunk, micro_batch in schedule:
            if what == "forward":
                step.pass_(chunk, micro_batch)
                ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from . import _native
from .errors import InvalidArgument

Pass = tuple[Literal["forward", "backward"], int, int]


def schedule(stage: int, stages: int, micro_batches: int, chunks: int = 1, kind: str = "1f1b") -> list[Pass]:
    """The passes of one stage, in order: ("forward" or "backward", chunk, micro-batch).

    chunks     parts of the model on each stage; with several the pipeline is interleaved
    kind       "1f1b": one forward, one backward, after a warm-up; "gpipe": all forwards, then all backwards

    InvalidArgument for a pipeline that cannot be.
    """
    passes = _native.pass_list(kind, stage, stages, chunks, micro_batches)
    return [("backward" if backward else "forward", chunk, micro_batch) for backward, chunk, micro_batch in passes]


def pass_list(schedule: Sequence[Pass]) -> list[tuple[bool, int, int]]:
    """The same as the compiled half takes it."""
    for what, _, _ in schedule:
        if what not in ("forward", "backward"):
            raise InvalidArgument(f'[step] "{what}" is no pass; each is ("forward" or "backward", chunk, micro-batch)')
    return [(what == "backward", chunk, micro_batch) for what, chunk, micro_batch in schedule]
