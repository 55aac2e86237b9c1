#!/usr/bin/env python3
"""Runs a program that writes JSON and checks the values it wrote: the judge of benchmarks and examples in ctest.

A check is `PATH OPERATOR VALUE`, in one argument. It fails if no value is at the path, or if one of them does not hold.

  PATH      keys, separated by "/". `*` stands for any text, alone for every key or element. `key=text` selects the
            elements of a list whose `key` is `text`. `{a,b}` stands for both: each must be there. `?` after a key
            passes over objects that do not have it.
  OPERATOR  == != < <= > >= ; `is` asks for a type: number, text, bool, list, object
  VALUE     JSON, or the path of one other value: `../limit` beside the value, `/limit` from the top of the file

Examples:
  check_json.py run.json 'figures/id=layers.{keep,all}/beside/gradients that differ/median == 0'
  check_json.py run.json 'figures/*/beside/gradients that differ?/median == 0' 'figures/*/median is number'
  check_json.py run.json 'figures/id=*_peak/median <= ../wanted/limit' -- bench_budget --small --out run.json

Exit codes: 0 all checks hold, 1 one does not or the program failed, 2 the command line cannot be understood.
"""

from __future__ import annotations

import argparse
import json
import operator
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
TYPES = {"number": (int, float), "text": str, "bool": bool, "list": list, "object": dict}


class UsageError(Exception):
    """A check that cannot be understood."""


class JsonError(Exception):
    """A file that is no JSON."""


@dataclass(frozen=True)
class Found:
    """A value, and the way that led to it."""

    value: Any
    key: str = ""
    parent: Found | None = None

    def text(self) -> str:
        if self.parent is None:
            return "the file"
        return self.key if self.parent.parent is None else f"{self.parent.text()}/{self.key}"


def type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return next(name for name, types in TYPES.items() if isinstance(value, types))


def alternatives(text: str) -> list[str]:
    """`a.{b,c}` as `a.b` and `a.c`."""
    found = re.search(r"\{([^{}]*)\}", text)
    if found is None:
        return [text]
    before, after = text[: found.start()], text[found.end() :]
    return [whole for part in found[1].split(",") for whole in alternatives(before + part + after)]


def matches(pattern: str, text: Any) -> bool:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    return isinstance(text, str) and re.fullmatch(expression, text, re.DOTALL) is not None


def children(found: Found, part: str) -> Iterator[Found]:
    """The values that `part` of a path leads to from `found`."""
    value = found.value
    if isinstance(value, dict):
        for key, each in value.items():
            if matches(part, key):
                yield Found(each, key, found)
    elif isinstance(value, list):
        key, equals, pattern = part.partition("=")
        for i, each in enumerate(value):
            selected = isinstance(each, dict) and matches(pattern, each.get(key)) if equals else matches(part, str(i))
            if selected:
                yield Found(each, f"{key}={each[key]}" if equals else str(i), found)


def select(found: Found, parts: list[str], problems: list[str]) -> Iterator[Found]:
    """All values at the path; where something is missing, `problems` says so."""
    if not parts:
        yield found
        return
    part = parts[0]
    optional = part.endswith("?")
    for each in alternatives(part.removesuffix("?")):
        there = list(children(found, each))
        if not there and not optional:
            problems.append(f"{found.text()} has no {each}")
        for child in there:
            yield from select(child, parts[1:], problems)


def parts_of(path: str) -> list[str]:
    """`/` within braces separates nothing."""
    parts = [part for part in re.split(r"/(?![^{}]*\})", path) if part]
    if not parts:
        raise UsageError(f'"{path}" is no path')
    return parts


def value_at(start: Found, path: str) -> Any:
    problems: list[str] = []
    found = list(select(start, parts_of(path), problems))
    if problems:
        raise LookupError(problems[0])
    if len(found) != 1:
        raise LookupError(f"{path} is {len(found)} values, one is wanted")
    return found[0].value


class Check:
    """One check of the command line."""

    def __init__(self, text: str) -> None:
        found = re.fullmatch(r"(.+?) (==|!=|<=|>=|<|>|is) (.+)", text, re.DOTALL)
        if found is None:
            raise UsageError(f'"{text}" is no check: PATH OPERATOR VALUE wanted, such as "figures/*/median > 0"')
        path, self.comparison, self.wanted = found.groups()
        self.text = text
        self.parts = parts_of(path)
        self.is_path = self.wanted.startswith(("../", "/"))
        if self.comparison == "is":
            if self.wanted not in TYPES:
                raise UsageError(f'"{text}": "{self.wanted}" is no type; there are {", ".join(TYPES)}')
        elif not self.is_path:
            try:
                self.literal = parse(self.wanted)
            except JsonError as error:
                raise UsageError(f'"{text}": "{self.wanted}" is no JSON; quote texts, as in \'state == "ok"\'') from error

    def problems(self, document: Any) -> list[str]:
        """What does not hold; empty if the check does."""
        problems: list[str] = []
        found = list(select(Found(document), self.parts, problems))
        if not found and not problems:
            problems.append("there is no such value")
        for each in found:
            problem = self.problem_of(document, each)
            if problem is not None:
                problems.append(f"{each.text()} is {shortened(each.value)}{problem}")
        return [f"{self.text}: {problem}" for problem in problems]

    def problem_of(self, document: Any, found: Found) -> str | None:
        """Why the check does not hold for `found`, to follow its value in a sentence; None if it does."""
        if self.comparison == "is":
            return None if type_of(found.value) == self.wanted else f", no {self.wanted}"
        try:
            wanted = self.other(document, found) if self.is_path else self.literal
        except LookupError as error:
            return f", but {error.args[0]}"
        same_type = type_of(found.value) == type_of(wanted)
        if self.comparison == "==":
            holds = same_type and found.value == wanted  # 1 is not true here.
        elif self.comparison == "!=":
            holds = not same_type or found.value != wanted
        elif same_type and type_of(wanted) == "number":
            holds = COMPARISONS[self.comparison](found.value, wanted)
        else:
            return f", which cannot be compared with {shortened(wanted)}: two numbers wanted"
        if holds:
            return None
        return f", and {self.wanted} is {shortened(wanted)}" if self.is_path else ""

    def other(self, document: Any, found: Found) -> Any:
        """The value that `found` is compared with."""
        start, path = Found(document), self.wanted
        if path.startswith("../"):
            start = found
        while path.startswith("../"):
            if start.parent is None:
                raise UsageError(f'"{self.text}": {self.wanted} leads out of the file')
            start, path = start.parent, path.removeprefix("../")
        return value_at(start, path)


def shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."


def parse(text: str) -> Any:
    """JSON has no NaN and no infinity."""

    def refuse(constant: str) -> None:
        raise JsonError(f"{constant} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise JsonError(str(error)) from error


def check(text: str, checks: list[Check]) -> list[str]:
    """What does not hold in the JSON `text`."""
    document = parse(text)
    return [problem for each in checks for problem in each.problems(document)]


def written_by(command: list[str], file: Path) -> str:
    """What `command` wrote into `file`, or printed if that is "-"."""
    printed = str(file) == "-"
    if not printed:
        file.unlink(missing_ok=True)  # What an earlier run wrote would pass.
        file.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, stdout=subprocess.PIPE if printed else None, encoding="utf-8", check=False)
    if printed:
        print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        raise OSError(f"{command[0]} ended with {done.returncode}")
    return done.stdout if printed else file.read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    command: list[str] = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, command = arguments[:split], arguments[split + 1 :]
    parser = argparse.ArgumentParser(
        usage="%(prog)s FILE CHECK... [-- PROGRAM [ARGUMENT...]]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help='what the program writes; "-": its standard output')
    parser.add_argument("checks", nargs="+", metavar="check")
    options = parser.parse_args(arguments)
    if str(options.file) == "-" and not command:
        parser.error('"-" wants a program: what it prints is read')
    try:
        checks = [Check(text) for text in options.checks]
    except UsageError as error:
        parser.error(str(error))
    try:
        text = written_by(command, options.file) if command else options.file.read_text(encoding="utf-8")
        problems = check(text, checks)
    except UsageError as error:
        parser.error(str(error))
    except JsonError as error:
        problems = [f"{options.file} is no JSON: {error}"]
    except OSError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if not problems:
        print(f"{len(checks)} checks hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
