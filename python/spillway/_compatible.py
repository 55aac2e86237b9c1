"""Refuses a torch that the compiled half was not built for, before loading it fails in a way nobody can read."""

from __future__ import annotations


def check_torch(found_version: str, found_cuda: str | None, built_version: str, built_cuda: str) -> None:
    """Raises ImportError unless the torch found is the one built against.

    C++ classes of torch change their layout between versions, so the versions must be equal; what follows a plus sign
    ("2.11.0+cu130") names the build, of which only the CUDA version matters.
    """
    wanted = f"{built_version}, {_build(built_cuda)}"
    found = f"{found_version.split('+')[0]}, {_build(found_cuda)}"
    if wanted != found:
        raise ImportError(
            f"[import] this spillway was built for torch {wanted}, but the torch here is {found}; build it again with "
            "`pip install --no-build-isolation --force-reinstall --no-deps .` in Spillway's folder, or install "
            "that torch"
        )


def _build(cuda: str | None) -> str:
    return f"a build for CUDA {cuda}" if cuda else "a CPU-only build"
