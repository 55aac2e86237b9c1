#!/usr/bin/env python3
"""Fails when a part of Spillway includes or links what it must not: dependencies point down only.

usage: check_layers.py [ROOT]

Checked are the #include lines of include/spillway/<part>/ and src/<part>/, those of framework/include/spillway/<part>/
and framework/<part>/, and the dependencies that each part's CMakeLists.txt gives to spillway_add_part(). Within parts
that are sorted into rooms (sub-folders), rooms include lower rooms only. Each finding is one line: file:line: reason.
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
ENGINE: dict[str, Part] = {
    "core": Part(""),
    "util": Part("core"),
    "memory": Part("core"),
    "transfer": Part("memory"),
    "engine": Part("core"),
    "plan": Part("util engine", "highs"),
    "trace": Part("plan"),
    # Above this line nothing knows torch or CUDA.
    "cuda": Part("core", "cuda"),
    "devices": Part("transfer util cuda"),
    "torch": Part("transfer plan trace cuda", "torch cuda"),
}
# What stands on the engine, in framework/. The engine is built without it, so it must never use it.
FRAMEWORK: dict[str, Part] = {
    "schedule": Part("plan"),
    "groups": Part("torch", "torch"),
    "comm": Part("groups", "torch cuda nccl mpi"),
    "tensor": Part("comm", "torch"),
    "pipeline": Part("schedule tensor", "torch"),
    "models": Part("pipeline", "torch"),
    "train": Part("models devices", "torch cuda"),
}
ALLOWED: dict[str, Part] = ENGINE | FRAMEWORK

# The rooms of a part, from the bottom to the top, each with those that it may use; what those may use, it may use too.
# "." is the part's folder itself; a part without it has no sources outside of rooms.
ROOMS: dict[str, dict[str, str]] = {
    # text has what only programs, benchmarks and the trainer use.
    "util": {".": "", "text": "."},
    "plan": {
        "profile": "",
        "policy": "profile",
        "recompute": "policy",
        # Its compute_times and later_passes correct profiles, by what the simulator says a step costs.
        "simulate": "recompute",
        "highs": "",
        # Its make_plan plans by rules alone: for programs it is the other planner, and it uses recompute.
        "solve": "simulate highs",
        # What a session does next, and under which plan.
        "control": "solve",
        "frontends": "policy",
        "report": "solve",
    },
    "torch": {
        "device": "",
        "hooks": "device",
        "graph": "hooks",
        # Its pass, sharded_buffer and session_mutex are what traces and watches read, and what execute changes.
        "record": "graph",
        "replay": "graph",
        # What several ranks agree on, by words alone.
        "ranks": "replay",
        "execute": "record ranks",
        "control": "execute",
    },
    "comm": {".": "", "mpi": ".", "nccl": "."},
    "train": {
        "config": "",
        "data": "config",
        "model": "config",
        "checkpoint": "data model",
        "run": "checkpoint",
    },
}
# A public header belongs to the room of the source of the same name, except for these.
ROOM_OF_HEADER: dict[str, str] = {
    # What rules are; frontends/ reads and writes them, and the settings of other frameworks.
    "spillway/plan/rules.hpp": "policy",
    "spillway/plan/frameworks.hpp": "policy",
    "spillway/plan/shard.hpp": "recompute",
    "spillway/plan/curve.hpp": "solve",
    # Options and reports of a session are what its lower rooms obey and fill; control/ has the session itself.
    "spillway/torch/session.hpp": "execute",
    "spillway/torch/session_report.hpp": "device",
    "spillway/torch/shard_group.hpp": "device",
    "spillway/torch/unmanaged.hpp": "hooks",
    "spillway/comm/expert_slice.hpp": ".",
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


def top_of(root: Path, part: str) -> Path:
    """Where the part's folder is."""
    return root / "framework" if part in FRAMEWORK else root / "src"


def public_folder(root: Path, part: str) -> Path:
    return (root / "framework" if part in FRAMEWORK else root) / "include" / "spillway" / part


def folders_of(root: Path, part: str) -> tuple[Path, Path]:
    """Where the part's headers and sources are."""
    return public_folder(root, part), top_of(root, part) / part


def file_of_include(root: Path, file: Path, name: str) -> Path | None:
    """The header of ours that `file` includes as `name`, or None if there is none."""
    tops = (file.parent, root / "src", root / "framework", root / "include", root / "framework" / "include")
    for path in ((top / name).resolve() for top in tops):
        if path.is_file() and path.is_relative_to(root.resolve()):
            return path
    return None


def part_of_include(root: Path, file: Path, name: str) -> str | None:
    """The part that the header included as `name` by `file` belongs to, or None if it is not ours."""
    if name.startswith("spillway/"):
        return name.split("/")[1]
    path = file_of_include(root, file, name)
    if path is None:
        return None
    for top in ("include/spillway", "framework/include/spillway", "src", "framework"):
        if path.is_relative_to((root / top).resolve()):
            return path.relative_to((root / top).resolve()).parts[0]
    return None


def reachable_rooms(part: str, room: str) -> set[str]:
    """The rooms that `room` may use, itself included."""
    found = {room}
    for lower in ROOMS[part][room].split():
        found |= reachable_rooms(part, lower)
    return found


def room_of(root: Path, part: str, file: Path) -> str | None:
    """The room that a file of the part belongs to; None for a public header that any room may use."""
    public, internal = (folder.resolve() for folder in folders_of(root, part))
    file = file.resolve()
    if file.is_relative_to(internal):
        folders = file.relative_to(internal).parts[:-1]
        return folders[0] if folders else "."
    name = f"spillway/{part}/{file.relative_to(public).as_posix()}"
    if name in ROOM_OF_HEADER:
        return ROOM_OF_HEADER[name]
    for source in sorted(internal.rglob(file.stem + ".cpp")):
        return room_of(root, part, source)
    return None


def check_rooms(root: Path, part: str) -> Iterator[str]:
    """Files outside of rooms, and includes of rooms that are not below."""
    if part not in ROOMS:
        return
    for file in source_files(root, part):
        room = room_of(root, part, file)
        where = file.relative_to(root)
        if room is None:
            yield f"{where}: belongs to no room; add it to ROOM_OF_HEADER in scripts/check_layers.py"
            continue
        if room not in ROOMS[part]:
            yield f"{where}: there is no room {room} of {part} in the table of scripts/check_layers.py"
            continue
        for number, name in includes_of(file):
            used_file = file_of_include(root, file, name)
            if used_file is None or part_of_include(root, file, name) != part:
                continue
            used = room_of(root, part, used_file)
            if used in ROOMS[part] and used not in reachable_rooms(part, room):
                allowed = ", ".join(sorted(reachable_rooms(part, room)))
                reason = f"{part}/{room} must not use {part}/{used} (allowed: {allowed})"
                yield f"{where}:{number}: includes {name}: {reason}"


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


def source_files(root: Path, part: str) -> Iterator[Path]:
    for folder in folders_of(root, part):
        for file in sorted(folder.rglob("*")):
            if file.suffix in {".hpp", ".h", ".cpp", ".cc", ".cu", ".cuh", ".inl"}:
                yield file


def includes_of(file: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each #include."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if match := INCLUDE.match(line):
            yield number, match[1] or match[2]


def check_includes(root: Path, part: str) -> Iterator[str]:
    for file in source_files(root, part):
        for number, name in includes_of(file):
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
    file = top_of(root, part) / part / "CMakeLists.txt"
    if not file.is_file():
        yield f"{file.parent.relative_to(root)}: has no CMakeLists.txt"
        return
    text = file.read_text(encoding="utf-8")
    # The trainer is no part that is installed, only libraries of ours.
    if not re.search(rf"spillway_add_part\(\s*{part}\b|add_library\(\s*spillway_{part}\b", text):
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
    for file in source_files(root, part):
        for _, name in includes_of(file):
            used = part_of_include(root, file, name)
            if used in ALLOWED:
                found.add(used)
    return found


def check_tree(root: Path) -> list[str]:
    findings: list[str] = []
    tables = ((("include/spillway", "src"), ENGINE), (("framework/include/spillway", "framework"), FRAMEWORK))
    for tops, table in tables:
        folders = [folder for top in tops for folder in (root / top).glob("*/") if any(folder.iterdir())]
        for part in sorted({folder.name for folder in folders} - {"include"}):
            if part not in table:
                findings.append(f"{part}: is a folder of {' or '.join(tops)}, but not in the table of check_layers.py")
                continue
            findings += check_includes(root, part)
            findings += check_rooms(root, part)
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
