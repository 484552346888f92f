"""What a process inherits from the runtime that started it: descriptors, environment, the runtime's program."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from typing import Any

from tests.security.hostile import targets
from tests.security.hostile.capability import status
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, attempt, case, open_for_writing

_KINDS = {
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "file",
    stat.S_IFCHR: "device",
}


def descriptors() -> dict[str, str]:
    """The open files that this process did not open itself."""
    listing = os.open("/proc/self/fd", os.O_RDONLY)
    names = [name for name in os.listdir(listing) if int(name) != listing]
    os.close(listing)
    kinds = {}
    for name in names:
        try:
            kinds[name] = _KINDS.get(stat.S_IFMT(os.fstat(int(name)).st_mode), "other")
        except OSError:
            continue  # the descriptor of the listing
    return kinds


DESCRIPTORS: dict[str, str] = descriptors()  # when the program starts, before it opens any


def confinement() -> dict[str, Any]:
    """All that confines a process: to compare those that a container starts with, and those that join it."""
    limits = {}
    with open("/proc/self/limits") as lines:
        for line in list(lines)[1:]:
            limits[line[:26].strip()] = line[26:].split()[:2]
    with open("/proc/self/cgroup") as lines:
        groups = sorted(line.strip() for line in lines)
    with open("/proc/self/oom_score_adj") as file:
        oom = int(file.read())
    ignored = [number.name for number in signal.Signals if signal.getsignal(number) == signal.SIG_IGN]
    mask = os.umask(0o22)
    return {
        **status(),
        "user": [*os.getresuid(), *os.getresgid()],
        "groups": sorted(os.getgroups()),
        "descriptors": sorted(DESCRIPTORS),
        "limits": limits,
        "cgroups": groups,
        "oom score": oom,
        "ignored signals": sorted(set(ignored) - {"SIGPIPE", "SIGXFSZ"}),  # which Python ignores
        "blocked signals": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "umask": oct(mask),
        "namespaces": {
            name: os.readlink(f"/proc/self/ns/{name}") for name in ("user", "net", "ipc", "uts", "mnt", "pid", "cgroup")
        },
    }


@case
def open_files() -> Verdict:
    return sorted(DESCRIPTORS)


@case
def open_directories_and_sockets() -> Verdict:
    return sorted(name for name, kind in DESCRIPTORS.items() if kind in ("directory", "socket"))


@case
def environment() -> Verdict:
    """The names of variables, but those of the tests, of services, of devices and of the image."""
    own = ("ESCAPE_", "KUBERNETES_", "PYTHON", "LC_", "CUDA_", "NVIDIA_")
    return sorted(name for name in os.environ if not name.startswith(own))


@case
def canary_in_the_environment() -> Verdict:
    return ALLOWED if "ESCAPE_CANARY" in os.environ else ABSENT


@case
def program_of_the_runtime() -> Verdict:
    """/proc/self/exe when the container's command is /proc/self/exe: it must not be the runtime's file, writable."""
    executable = os.stat("/proc/self/exe")
    if f"{executable.st_dev}:{executable.st_ino}" != targets.text("RUNTIME_PROGRAM"):
        return ABSENT
    descriptor = os.open("/proc/self/exe", os.O_RDONLY)
    verdicts = {
        "mode": attempt(os.fchmod, descriptor, executable.st_mode & 0o7777),
        "times": attempt(os.utime, descriptor, (executable.st_atime, executable.st_mtime)),
        "write": open_for_writing("/proc/self/exe"),
    }
    return ALLOWED if ALLOWED in verdicts.values() else ABSENT


def main() -> None:
    """Print the confinement of this process, for exec, probes and hooks."""
    text = json.dumps(confinement())
    if len(sys.argv) > 1:
        with open(f"{sys.argv[1]}.new", "w") as file:
            file.write(text)
        os.rename(f"{sys.argv[1]}.new", sys.argv[1])
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
