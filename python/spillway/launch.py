"""The trainer as one process, or as one of the ranks that torchrun started."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

import torch
import torch.distributed as dist

from .errors import Error, InvalidArgument

if TYPE_CHECKING:
    from . import _trainer

_FAILED = "spillway/failed"
# How long the other ranks of a job that one has ended wait for its message.
_WAIT = timedelta(seconds=5)


def has_trainer() -> bool:
    return importlib.util.find_spec(f"{__package__}._trainer") is not None


def require_trainer() -> None:
    """InvalidArgument if the package was built without the trainer."""
    if has_trainer():
        return
    raise InvalidArgument(
        "[train] this installation has sessions only, not the trainer; install the package again with "
        "--config-settings=cmake.define.SPILLWAY_PYTHON_TRAINER=ON"
    )


def train(options: _trainer.TrainOptions) -> int:
    """Trains, and gives the exit code. Raises the classes of spillway.errors if this is the only rank."""
    from . import _trainer

    with _signals_reach_the_trainer():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
            return _trainer.Trainer(options).run_alone()
        return _Rank().train(options)


@contextmanager
def _signals_reach_the_trainer() -> Iterator[None]:
    """Python handles Ctrl-C only when its interpreter runs again, which is after the training. The trainer itself ends
    after the step on the first Ctrl-C; before its first step the process ends at once."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Rank:
    """One of the ranks that torchrun started, by the variables that it set."""

    def __init__(self) -> None:
        self._store, self._rank, self._size = next(dist.rendezvous("env://"))

    def train(self, options: _trainer.TrainOptions) -> int:
        from . import _trainer

        try:
            trainer = _trainer.Trainer(options)
            self._backend = trainer.backend(self._size)
            self._timeout = timedelta(seconds=trainer.timeout)
            dist.init_process_group(
                self._backend,
                store=self._store,
                rank=self._rank,
                world_size=self._size,
                timeout=self._timeout,
                device_id=self._device(),
            )
            code = trainer.run_as_rank(self._rank, self._size, self._new_group, self._abort)
            dist.barrier()  # Whoever ends early closes connections that others may still read from.
            dist.destroy_process_group()
            return code
        except Error as error:
            self._abort(str(error))
        except Exception as error:  # Other ranks wait for this one, whatever it is.
            self._abort(f"{type(error).__name__}: {error}")

    def _device(self) -> torch.device | None:
        """The GPU that the trainer takes if each rank has its own; NCCL's groups belong to it from the start."""
        return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if "nccl" in self._backend else None

    def _new_group(self, ranks: Sequence[int]) -> str:
        group = dist.new_group(list(ranks), backend=self._backend, timeout=self._timeout)
        return str(group.group_name) if self._rank in ranks else ""

    def _abort(self, why: str) -> NoReturn:
        """Ends this process; torchrun then ends the others. Only the first rank that fails says why: the others
        only see that it is gone."""
        # When the second one ends, torchrun ends all the others.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if self._is_first_to_fail():
            print(f"spillway: rank {self._rank} of {self._size} ends the job: {why}", file=sys.stderr, flush=True)
        os._exit(1)

    def _is_first_to_fail(self) -> bool:
        try:
            self._store.set_timeout(_WAIT)
            first = self._store.compare_set(_FAILED, "", str(self._rank))
        except RuntimeError:
            return True  # The rank that served the store is gone. Better twice than not at all.
        return first.decode() == str(self._rank)
