"""The errors of Spillway: one class for each kind of the C++ library, with the same text.

Every text reads "[operation] what was wanted, what was found; what to do".
"""

from __future__ import annotations


class Error(RuntimeError):
    """Everything that Spillway raises."""


class InvalidArgument(Error, ValueError):
    """The caller asked for something that has no meaning; asking again the same way fails again."""


class OutOfMemory(Error, MemoryError):
    """Memory of some kind (device, pinned host memory, address space) could not be allocated."""


class DeviceError(Error):
    """A device operation failed; on CUDA the device may be unusable afterwards."""


class IoError(Error):
    """A file or a part of the operating system could not be read or written."""


class PlanInfeasible(Error):
    """No plan fits the budget; the text names the smallest one that would."""


class VerificationError(Error):
    """Verification found that a step's gradients are wrong; the text names the tensors. Discard them, repeat the step."""


class ConfigError(Error, ValueError):
    """A configuration file is wrong; the text names file, line and key."""
