"""System call numbers by name, for each architecture whose calls a process of this machine may make."""

from __future__ import annotations

import functools
from importlib import resources

# machine → its OCI architectures, the native one first
ARCHITECTURES = {
    "x86_64": ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"),
    "aarch64": ("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"),
}
X32_BIT = 0x40000000
_COLUMNS = ("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM")


@functools.cache
def numbers(architecture: str) -> dict[str, int]:
    """name → number. The numbers of x32 have the bit that tells them from those of x86-64."""
    column = _COLUMNS.index(architecture) + 1
    bit = X32_BIT if architecture == "SCMP_ARCH_X32" else 0
    text = resources.files(__package__).joinpath("syscalls.txt").read_text()
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {row[0]: int(row[column]) | bit for row in rows if row[column] != "-"}
