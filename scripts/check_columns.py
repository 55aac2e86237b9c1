#!/usr/bin/env python3
"""Fails when a line of a C++ source has more than 100 columns, or one of a Markdown text more than 120.

usage: check_columns.py [FILE...]

Looked at are the files of the repository, also new ones, or the given ones. Each finding is one line: file:line: what it
has and what is allowed. clang-format leaves comments alone (see .clang-format), so their length is checked here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from checked_files import check, name_of

COLUMNS = {".cpp": 100, ".hpp": 100, ".md": 120}
# Programs write them, a figure with its details on one line; the table of their commands cannot be broken either.
SKIPPED = re.compile(r"bench/results/.*")


def is_checked(file: Path) -> bool:
    return file.suffix in COLUMNS and not SKIPPED.fullmatch(name_of(file))


def findings_in(file: Path, text: str) -> Iterator[tuple[int, str]]:
    columns = COLUMNS[file.suffix]
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > columns:
            yield number, f"{len(line)} columns, {columns} are allowed: break the line"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    return check("columns", parser.parse_args().files, is_checked, findings_in)


if __name__ == "__main__":
    sys.exit(main())
