"""What the compiled module shares with the rest of the process: as little as it can, for torch's libraries and HiGHS were
built by other compilers and hold parts of their C++ libraries."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from spillway import _native, _trainer

# A destructor that the module has in it.
OWN_SYMBOL = "_ZN8spillway7SessionD1Ev"

PLAN = """
import torch
import spillway

def highs_is_loaded():
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return any("libhighs" in line for line in lines)

model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(4)])
session = spillway.Session(model, budget=0.6, device="cpu", plan_in_background=False, small=0)
assert not highs_is_loaded(), "HiGHS is loaded before it is needed"
with session.step():
    model(torch.ones(256, 64)).sum().backward()
assert highs_is_loaded(), "a plan was made without HiGHS"
assert not hasattr(ctypes.CDLL(spillway._native.__file__), "Highs_create"), "HiGHS is linked with the module"
"""


@pytest.mark.parametrize("module", [_native, _trainer])
def test_a_module_offers_nothing_but_its_init_function(module) -> None:
    library = ctypes.CDLL(module.__file__)
    assert hasattr(library, "PyInit_" + module.__name__.rpartition(".")[2])
    assert not hasattr(library, OWN_SYMBOL)


def test_highs_is_loaded_by_itself_when_a_plan_is_made() -> None:
    subprocess.run([sys.executable, "-c", "import ctypes\n" + PLAN], check=True, timeout=120)
