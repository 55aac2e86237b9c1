#!/usr/bin/env python3
"""Fails when a part of Spillway includes or links what it must not: dependencies point down only.

usage: check_layers.py [ROOT]

Checked are the #include lines of include/spillway/<part>/ and src/<part>/, and the dependencies that
src/<part>/CMakeLists.txt gives to spillway_add_part(). Each finding is one line: file:line: reason.
Programs, benchmarks, tests and the Python binding may use every part and are not checked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Part(NamedTuple):
    parts: str  # the parts it may use directly; what those may use, it may use too
    libraries: str = ""  # libraries that are closed to all parts that are not named here


# The architecture, from the bottom to the top.
ALLOWED: dict[str, Part] = {
    "core": Part(""),
    "util": Part("core"),
    "memory": Part("core"),
    "transfer": Part("memory"),
    "plan": Part("util", "highs"),
    "pipeline": Part("plan"),
    "trace": Part("plan"),
    # Above this line nothing knows torch or CUDA.
    "cuda": Part("core", "cuda"),
    "devices": Part("transfer util cuda"),
    "torch": Part("transfer plan trace cuda", "torch cuda"),
    "parallel": Part("torch pipeline", "torch cuda nccl mpi"),
    "models": Part("parallel", "torch"),
}

# Libraries that only the parts above may use, by the headers and the CMake targets that belong to them.
HEADERS: dict[str, str] = {
    "torch": r"(torch|ATen|c10|caffe2)/.*",
    "cuda": r"(cuda|cuda_\w+|driver_types|nvml|cublas\w*|cudnn\w*|nvtx\w*)(\.h|/.*)",
    "nccl": r"nccl(\.h|/.*)",
    "mpi": r"mpi\.h",
    "highs": r"(Highs|highs).*|interfaces/highs_c_api\.h",
}
TARGETS: dict[str, str] = {
    "spillway::libtorch": "torch",
    "spillway::cudart": "cuda",
    "spillway::nccl": "nccl",
    "MPI::MPI_CXX": "mpi",
    "spillway::highs": "highs",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')


def reachable(part: str) -> set[str]:
    """The parts that `part` may use, itself included."""
    found = {part}
    for lower in ALLOWED[part].parts.split():
        found |= reachable(lower)
    return found


def part_of_include(root: Path, file: Path, name: str) -> str | None:
    """The part that the header included as `name` by `file` belongs to, or None if it is not ours."""
    if name.startswith("spillway/"):
        return name.split("/")[1]
    beside = (file.parent / name).resolve()
    internal = (root / "src" / name).resolve()
    for path in (beside, internal):
        if path.is_file():
            for top in (root / "include" / "spillway", root / "src"):
                if path.is_relative_to(top.resolve()):
                    return path.relative_to(top.resolve()).parts[0]
    return None


def check_use(part: str, used: str | None, libraries: set[str], what: str) -> str | None:
    """Why `part` must not use the part `used` or the closed `libraries`, or None if it may."""
    if used is not None and used not in ALLOWED:
        return f"{what}: there is no part {used} in the table of scripts/check_layers.py"
    if used is not None and used not in reachable(part):
        return f"{what}: {part} must not use {used} (allowed: {', '.join(sorted(reachable(part)))})"
    for library in sorted(libraries - set(ALLOWED[part].libraries.split())):
        users = ", ".join(name for name, rule in ALLOWED.items() if library in rule.libraries.split())
        return f"{what}: {part} must not use {library} (only {users} may)"
    return None


def check_includes(root: Path, part: str) -> Iterator[str]:
    for folder in (root / "include" / "spillway" / part, root / "src" / part):
        for file in sorted(folder.rglob("*")):
            if file.suffix not in {".hpp", ".h", ".cpp", ".cc", ".cu", ".cuh", ".inl"}:
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
                if not (match := INCLUDE.match(line)):
                    continue
                name = match[1] or match[2]
                used = part_of_include(root, file, name)
                libraries = set()
                if used is None:
                    libraries = {key for key, regex in HEADERS.items() if re.fullmatch(regex, name)}
                if reason := check_use(part, used, libraries, f"includes {name}"):
                    yield f"{file.relative_to(root)}:{number}: {reason}"


def linked_targets(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of each target in a CMake file, comments left out."""
    for number, line in enumerate(text.splitlines(), start=1):
        for target in re.findall(r"\b\w+::\w+", line.split("#")[0]):
            yield number, target


def check_links(root: Path, part: str) -> Iterator[str]:
    file = root / "src" / part / "CMakeLists.txt"
    if not file.is_file():
        yield f"src/{part}: has no CMakeLists.txt"
        return
    text = file.read_text(encoding="utf-8")
    if not re.search(rf"spillway_add_part\(\s*{part}\b", text):
        yield f"{file.relative_to(root)}:1: does not call spillway_add_part({part} ...)"
    linked = set()
    for number, target in linked_targets(text):
        library = TARGETS.get(target)
        used = None
        if library is None and target.startswith("spillway::"):
            used = target.removeprefix("spillway::")
            linked.add(used)
        if reason := check_use(part, used, {library} if library else set(), f"links {target}"):
            yield f"{file.relative_to(root)}:{number}: {reason}"
    # Who includes a part must also link it, itself or through another part.
    linked_through = set().union({part}, *(reachable(name) for name in linked if name in ALLOWED))
    for used in sorted(included_parts(root, part) - linked_through):
        yield f"{file.relative_to(root)}:1: {part} includes headers of {used} but does not link spillway::{used}"


def included_parts(root: Path, part: str) -> set[str]:
    found: set[str] = set()
    for folder in (root / "include" / "spillway" / part, root / "src" / part):
        for file in folder.rglob("*.[ch]pp"):
            for line in file.read_text(encoding="utf-8").splitlines():
                if match := INCLUDE.match(line):
                    used = part_of_include(root, file, match[1] or match[2])
                    if used in ALLOWED:
                        found.add(used)
    return found


def check_tree(root: Path) -> list[str]:
    findings: list[str] = []
    folders = [*(root / "include" / "spillway").glob("*/"), *(root / "src").glob("*/")]
    for part in sorted({folder.name for folder in folders if any(folder.iterdir())}):
        if part not in ALLOWED:
            findings.append(f"{part}: is a folder of include/spillway or src, but not in the table of check_layers.py")
            continue
        findings += check_includes(root, part)
        findings += check_links(root, part)
    return findings


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    findings = check_tree(root)
    for finding in findings:
        print(finding)
    print(f"layers: {len(findings)} findings in {root}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
