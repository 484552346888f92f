"""The BPF programs of containers on disk: compiled once per profile and set of capabilities, read by the shims."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Collection
from pathlib import Path

from torchyard.node.runtime.seccomp import profile as oci_profile
from torchyard.node.runtime.seccomp.compiler import compile_profile
from torchyard.node.runtime.seccomp.default_profile import runtime_default
from torchyard.node.runtime.seccomp.profile import SeccompProfile, SeccompProfileError
from torchyard.node.runtime.seccomp.syscall_table import ARCHITECTURES

RUNTIME_DEFAULT, UNCONFINED, LOCALHOST = "RuntimeDefault", "Unconfined", "localhost/"
PROFILES, _PROGRAMS = "seccomp", "seccomp-filters"  # directories of the node


def is_supported() -> bool:
    """Whether the kernel has filters, and the system call numbers of this machine are known."""
    return platform.machine() in ARCHITECTURES and Path("/proc/sys/kernel/seccomp").is_dir()


def filter_file(root: Path, profile: str, capabilities: Collection[int]) -> str:
    """The path of the program for a profile: `RuntimeDefault`, or `localhost/` and a file below `seccomp` in `root`.

    Empty for `Unconfined`.
    """
    if profile == UNCONFINED:
        return ""
    if profile == RUNTIME_DEFAULT:
        path = _runtime_default(root, frozenset(capabilities))
        if not path.exists():  # removed since
            _runtime_default.cache_clear()
            path = _runtime_default(root, frozenset(capabilities))
        return str(path)
    if not profile.startswith(LOCALHOST):
        raise SeccompProfileError(f"{profile!r} is not a seccomp profile")
    path = Path(profile.removeprefix(LOCALHOST))
    if path.is_absolute() or ".." in path.parts:
        raise SeccompProfileError(f'cannot load seccomp profile "{path}": the path must stay below {root / PROFILES}')
    return str(_write(root, oci_profile.load(root / PROFILES / path)))


@functools.cache
def _runtime_default(root: Path, capabilities: frozenset[int]) -> Path:
    machine = platform.machine()
    document = runtime_default(machine, ARCHITECTURES[machine], capabilities)
    return _write(root, oci_profile.parse(document))


def _write(root: Path, profile: SeccompProfile) -> Path:
    program = compile_profile(profile, platform.machine())
    directory = root / _PROGRAMS
    directory.mkdir(exist_ok=True, mode=0o700)
    path = directory / f"{hashlib.sha256(program).hexdigest()[:32]}.bpf"
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(program)
        draft.replace(path)
    return path
