"""Spillway trains within a budget of device memory: it keeps, offloads or recomputes what autograd saves, with the same
bits.

    session = spillway.Session(model, budget="8 GiB")
    for batch in data:
        with session.step():
            model(**batch).loss.backward()
        optimizer.step()
    print(session.report())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import _build_info
from ._compatible import check_torch

check_torch(torch.__version__, torch.version.cuda, _build_info.TORCH_VERSION, _build_info.CUDA_VERSION)

from .errors import (  # noqa: E402  (the check comes first)
    ConfigError,
    DeviceError,
    Error,
    InvalidArgument,
    IoError,
    OutOfMemory,
    PlanInfeasible,
    VerificationError,
)
from . import pipeline  # noqa: E402
from .report import Report  # noqa: E402
from .scopes import scope  # noqa: E402
from .session import Session, Step  # noqa: E402
from .unmanaged import unmanaged  # noqa: E402

if TYPE_CHECKING:
    from .trainer import SessionCallback

__version__ = _build_info.VERSION

__all__ = [
    "ConfigError",
    "DeviceError",
    "Error",
    "InvalidArgument",
    "IoError",
    "OutOfMemory",
    "PlanInfeasible",
    "Report",
    "Session",
    "SessionCallback",
    "Step",
    "VerificationError",
    "pipeline",
    "scope",
    "unmanaged",
]


def __getattr__(name: str) -> Any:
    # Only who asks for it needs transformers.
    if name == "SessionCallback":
        from .trainer import SessionCallback

        return SessionCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
