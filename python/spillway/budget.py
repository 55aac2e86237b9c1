"""A budget as people write it."""

from __future__ import annotations

from typing import Union

from . import _native
from .errors import InvalidArgument

Budget = Union[int, float, str]

_VALID = (
    'bytes (8589934592 or "8 GiB"), a share of what a step has allocated with everything kept (0.33 or "33 %"), '
    'or "auto": the device memory that is free, less a margin'
)


def read_budget(budget: Budget) -> _native.Budget:
    """InvalidArgument, with what is valid, for anything else."""
    if isinstance(budget, str):
        return _read_text(budget)
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise _refused(repr(budget))
    if isinstance(budget, int) and budget > 0:
        return _native.Budget.bytes(budget)
    return _share(float(budget), repr(budget))


def _read_text(text: str) -> _native.Budget:
    word = text.strip()
    if word == "auto":
        return _native.Budget.automatic()
    if word.endswith("%"):
        try:
            percent = float(word[:-1])
        except ValueError:
            raise _refused(repr(text)) from None
        return _share(percent / 100, repr(text))
    try:
        count = _native.parse_bytes(word)
    except InvalidArgument:
        raise _refused(repr(text)) from None
    if count == 0:
        raise _refused(repr(text))
    return _native.Budget.bytes(count)


def _share(share: float, found: str) -> _native.Budget:
    if not 0 < share < 1:
        raise _refused(found)
    return _native.Budget.share(share)


def _refused(found: str) -> InvalidArgument:
    return InvalidArgument(f"[session] budget = {found} is no budget; give {_VALID}")
