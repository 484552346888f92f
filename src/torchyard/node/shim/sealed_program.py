"""Runs the zygote, and with it every shim, from a copy of the interpreter in memory that nobody can change.

A container can name its runtime's program: `/proc/self/exe` as the command, or as the interpreter of a script, is the
program of the process that becomes the container. It is opened on the machine's own mount, where root of a container
may be its owner: it could change its mode, or its content once nothing runs it. runc protects itself in the same way.
"""

from __future__ import annotations

import fcntl
import os
import sys

_NAME = "torchyard"
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE
_F_ADD_SEALS, _MFD_EXEC = 1033, 0x10
_LIBRARIES = "LD_LIBRARY_PATH"
_CHUNK = 1 << 24


def is_sealed() -> bool:
    """Whether this process runs from a copy in memory."""
    return os.readlink("/proc/self/exe").startswith("/memfd:")


def ensure(arguments: list[str]) -> None:
    """Start this program again from a sealed copy, unless it runs from one already.

    Returns without that where the kernel or the interpreter does not support it; standard error says why.
    """
    if is_sealed():
        os.environ.pop(_LIBRARIES, None)  # it was for the start of the interpreter only
        return
    try:
        program = f"/proc/self/fd/{_copy('/proc/self/exe')}"
        environment = _working_environment(program)
        os.execve(program, [sys.executable, *arguments], environment)  # noqa: S606 - it is this program
    except (OSError, AttributeError) as error:  # a C library without memfd_create has no such function
        os.write(2, f"the runtime's program is not sealed: reason={str(error)!r}\n".encode())


def _copy(path: str) -> int:
    """A descriptor of a copy that can be executed and never changed."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        copy = os.memfd_create(_NAME, flags | _MFD_EXEC)
    except OSError:  # a kernel before 6.3, where every copy can be executed
        copy = os.memfd_create(_NAME, flags)
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while os.sendfile(copy, source, None, _CHUNK):  # None: from the present position
            pass
    finally:
        os.close(source)
    fcntl.fcntl(copy, _F_ADD_SEALS, _SEALS)
    return copy


def _working_environment(program: str) -> dict[str, str]:
    """The environment with which the copy starts: an interpreter may look for libraries beside its own file."""
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(sys.executable))), "lib")
    candidates = [dict(os.environ), {**os.environ, _LIBRARIES: beside}]
    for environment in candidates:
        pid = os.posix_spawn(program, [sys.executable, "-I", "-S", "-c", ""], environment)
        if os.waitpid(pid, 0)[1] == 0:
            return environment
    raise OSError(f"{sys.executable} does not start from a copy of its file")
