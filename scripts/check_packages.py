#!/usr/bin/env python3
"""Fails when a program that the build uses comes from no package in scripts/debian-packages*.txt.

A developer's machine has more installed than a bare one, so a forgotten package shows only elsewhere. Looked at are
the first words of commands in the Makefile and the shell scripts, and the programs that CMake and tests start.
Programs of packages that every Debian has (essential or required: coreutils, sed, awk, ...) are fine.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHELL_FILES = ["Makefile", ".ci/run", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("scripts/*.sh"))]

# Started by CMake, Ninja, another program or a test rather than by a shell script.
STARTED_ELSEWHERE = "g++ cmake ctest ninja ccache mold clang-format clang-tidy run-clang-tidy mpirun setarch git python3".split()

# Used only where it is there; the script says what to do when it is not.
OPTIONAL = {"sudo"}

# Only what Debian installs counts, not /usr/local or a user's own Python.
FOLDERS = [Path("/usr/bin"), Path("/bin"), Path("/usr/sbin"), Path("/sbin")]

# A command begins at the start of a line, after a separator, or after a word such as `then`.
COMMAND = re.compile(
    r"(?:^|[;|&(!]|\$\(|\b(?:if|then|else|elif|do|while|exec|command -v|time|xargs|env)\s)\s*@?([A-Za-z][\w.+-]*)"
)


def pinned_packages() -> set[str]:
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("scripts/debian-packages*.txt")]
    lines = [line for text in texts for line in text.splitlines()]
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def used_programs() -> dict[str, str]:
    """Words that may be commands, and where the first of them stands; words that are no program fall out later."""
    found = {program: "CMake or a test" for program in STARTED_ELSEWHERE}
    for name in SHELL_FILES:
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1):
            if line.lstrip().startswith("#") or (name == "Makefile" and not line.startswith("\t")):
                continue
            for word in COMMAND.findall(line.strip()):
                found.setdefault(word, f"{name}:{number}")
    return found


def owner(program: str) -> str | None:
    """The package that owns a program in Debian's folders; "" if there is such a program but no owner."""
    first = next((folder / program for folder in FOLDERS if (folder / program).exists()), None)
    if first is None:
        return None
    # Alternatives (mpirun) are links that no package owns; what they lead to is owned. dpkg may know a path with or
    # without /usr.
    paths = [first]
    while paths[-1].is_symlink():
        paths.append(paths[-1].parent / paths[-1].readlink())
    for path in paths:
        text = "/" + str(path.resolve().parent / path.name).lstrip("/")
        for known in (text, text.removeprefix("/usr")):
            answer = subprocess.run(["dpkg", "-S", known], capture_output=True, text=True, check=False)
            if answer.returncode == 0:
                return answer.stdout.splitlines()[0].split(":")[0]
    return ""


def on_every_debian(package: str) -> bool:
    answer = subprocess.run(
        ["dpkg-query", "-W", "-f=${Essential} ${Priority}", package], capture_output=True, text=True, check=False
    )
    return answer.stdout.startswith("yes") or answer.stdout.endswith("required")


def brought_by(packages: set[str]) -> set[str]:
    """The packages and what they depend on directly: clang-format's program is in clang-format-14."""
    found = set(packages)
    for package in packages:
        answer = subprocess.run(
            ["dpkg-query", "-W", "-f=${Pre-Depends}, ${Depends}", package], capture_output=True, text=True, check=False
        )
        found |= {text.split()[0].split(":")[0] for text in re.split(r"[,|]", answer.stdout) if text.strip()}
    return found


def main() -> int:
    if not Path("/usr/bin/dpkg").exists():
        print("packages: skipped: no dpkg here")
        return 77
    brought = brought_by(pinned_packages())
    findings = 0
    checked = 0
    for program, location in sorted(used_programs().items()):
        package = owner(program)
        if program in OPTIONAL or (package is None and program not in STARTED_ELSEWHERE):
            continue
        checked += 1
        if package is None:
            print(f"{location}: {program} is not installed; scripts/setup.sh should have installed it")
        elif package not in brought and not on_every_debian(package):
            print(f"{location}: {program} is from the package '{package}', which scripts/debian-packages*.txt do not bring")
        else:
            continue
        findings += 1
    print(f"packages: {checked} programs checked, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
