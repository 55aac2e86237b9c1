"""What the checkers of texts share: the files of the repository that people write, and how findings are printed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = 77  # What ctest takes for "skipped".


def name_of(file: Path) -> str:
    """In the repository; of other files the whole path."""
    file = file.resolve()
    return file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.as_posix()


def files_here() -> list[Path]:
    """All that git tracks, and new ones that it does not ignore."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in answer.stdout.splitlines()]


def check(
    kind: str,
    given: list[Path],
    is_checked: Callable[[Path], bool],
    findings_in: Callable[[Path, str], Iterable[tuple[int, str]]],
) -> int:
    """Prints the findings (line, text) in the given files, or else in all; the exit code. findings_in() gets the file
    and its text."""
    if not given and not (ROOT / ".git").exists():
        print(f"{kind}: skipped: no git checkout")
        return SKIPPED
    files = [file for file in given or files_here() if file.is_file() and is_checked(file)]
    count = 0
    for file in files:
        for line, text in findings_in(file, file.read_text(encoding="utf-8")):
            print(f"{name_of(file)}:{line}: {text}")
            count += 1
    print(f"{kind}: {len(files)} files, {count} findings")
    return 1 if count else 0
