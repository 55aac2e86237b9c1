"""`python -m spillway`: what is installed here, and what it was built for. For bug reports."""

from __future__ import annotations

import platform

import torch

from . import _build_info


def lines() -> list[str]:
    def build(cuda: str | None) -> str:
        return f"CUDA {cuda}" if cuda else "CPU only"

    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [
        f"spillway  {_build_info.VERSION}",
        f"built for torch {_build_info.TORCH_VERSION}, {build(_build_info.CUDA_VERSION)}, by {_build_info.COMPILER}",
        f"torch     {torch.__version__}, {build(torch.version.cuda)}",
        f"devices   {', '.join(devices) or 'no CUDA device'}",
        f"python    {platform.python_version()} on {platform.platform()}",
    ]


if __name__ == "__main__":
    print("\n".join(lines()))
