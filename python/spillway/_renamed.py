"""Old names of options and report keys. They go on working for one release; each warns once a process."""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from .errors import InvalidArgument

# Old name -> new name. Remove a line, here only, one release after it was added.
OPTIONS = {
    "in_flight": "offload_window",  # old name
    "ahead": "prefetch_window",
    "remade": "recompute_cache",  # old name
}
REPORT_KEYS = {
    "bytes_remade": "bytes_recomputed",  # old name
    "proving_peak": "verification_peak",  # old name
    "above": "over_budget_steps",
    "waiting": "unplanned_steps",
    "stayed": "offloads_skipped",
    "held": "part_bytes",
    "restored": "regathered",
    "refused": "mismatched",
}

_warned: set[str] = set()
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def warn_renamed(kind: str, old: str, new: str, stacklevel: int) -> None:
    """One DeprecationWarning a process for each name. `stacklevel` as for warnings.warn, seen from the caller."""
    text = f'{kind} "{old}" is now called "{new}"; the old name works for one more release'
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, DeprecationWarning, stacklevel + 1)


def with_new_names(
    function: str, options: Mapping[str, Any], known: Iterable[str], given: Iterable[str] = (), stacklevel: int = 2
) -> dict[str, Any]:
    """`options` with each old name replaced by the new one.

    known   what `function` takes; TypeError, with the nearest of them, for any other name
    given   what was given by position

    InvalidArgument if an option is given by its old and by its new name.
    """
    known = list(known)
    named: dict[str, Any] = {}
    for name, value in options.items():
        new = OPTIONS.get(name, name)
        if new not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")
        if new != name:
            if new in options or new in given:
                raise InvalidArgument(f"[session] {name} is the old name of {new}; give one of the two")
            warn_renamed("option", name, new, stacklevel + 1)
        named[new] = value
    return named


def accepts_old_options(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorates a constructor so that it takes its options by their old names as well."""
    names = option_names(function)
    called = function.__qualname__.split(".")[0]

    @functools.wraps(function)
    def call(*arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        return function(*arguments, **with_new_names(called, options, names, names[: len(arguments) - 1]))

    return call


def option_names(function: Callable[..., Any]) -> list[str]:
    """The parameters of a constructor, without `self`."""
    return list(inspect.signature(function).parameters)[1:]


class ReportValues(dict[str, Any]):
    """A report's values by key, also by the old name of a key. Iteration and equality know the new names only."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        # The JSON has both names, without a warning.
        super().__init__((key, value) for key, value in values.items() if REPORT_KEYS.get(key) not in values)

    def __missing__(self, key: str) -> Any:
        new = self._new_name(key)
        if new is None:
            raise KeyError(key)
        warn_renamed("report key", key, new, stacklevel=2)
        return self[new]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._new_name(key) is not None

    def get(self, key: str, default: Any = None) -> Any:  # type: ignore[override]
        if super().__contains__(key):
            return self[key]
        new = self._new_name(key)
        if new is None:
            return default
        warn_renamed("report key", key, new, stacklevel=2)
        return self[new]

    def _new_name(self, key: object) -> str | None:
        new = REPORT_KEYS.get(key) if isinstance(key, str) else None
        return new if new is not None and super().__contains__(new) else None
