"""`python -I -S …/namespace_check.py`: try each namespace, and seccomp, in a throw-away process; print, as JSON, why
each failed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ClusterNetworkConfig

STEPS = ("user", "mount", "pid", "network", "outbound", "seccomp")
_ALLOW_ALL = b"\x06\x00\x00\x00\x00\x00\xff\x7f"  # the seccomp program `return SECCOMP_RET_ALLOW`


def main() -> None:
    from torchyard.node.shim import linux

    problems = dict.fromkeys(STEPS, "not tried")
    progress_read, progress_write = os.pipe()
    mapped_read, mapped_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(mapped_write)  # so that the parent's end is the only one: closing it says that there are no maps
        _try_each(progress_write, mapped_read)
    os.close(progress_write)
    try:
        if os.read(progress_read, 1) == b"u":
            linux.write_identity_maps(pid)
            problems["user"] = ""
            os.write(mapped_write, b"x")
    except OSError as error:
        problems["user"] = str(error)
        os.close(mapped_write)
    progress = b""
    while chunk := os.read(progress_read, 16):
        progress += chunk
    os.waitpid(pid, 0)
    for letter, step in zip(b"mpn", STEPS[1:], strict=False):
        problems[step] = "" if letter in progress[:3] else "refused by the kernel"
    outbound = progress[3:].decode()
    problems["outbound"] = outbound.removeprefix("o") if outbound else "pods have no network of their own"
    problems["seccomp"] = _try_seccomp()
    json.dump(problems, sys.stdout)


def _try_seccomp() -> str:
    from torchyard.node.shim import linux

    reason_read, reason_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            linux.forbid_new_privileges()
            linux.install_seccomp_filter(_ALLOW_ALL)
        except OSError as error:
            os.write(reason_write, str(error).encode())
        os._exit(0)
    os.close(reason_write)
    os.waitpid(pid, 0)
    return os.read(reason_read, 4096).decode()


def _try_each(progress: int, mapped: int) -> None:
    """Write a letter for each namespace that works; the first that does not ends the process."""
    from torchyard.node.shim import linux, netlink, outbound_nat

    linux.unshare(linux.NEWUSER)
    os.write(progress, b"u")
    if not os.read(mapped, 1):
        os._exit(0)
    linux.unshare(linux.NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", "/tmp", "tmpfs")  # noqa: S108 - only a mount point, in a namespace of our own
    os.write(progress, b"m")
    child = linux.clone(linux.NEWPID | linux.NEWNS)
    if child == 0:
        linux.mount("proc", "/proc", "proc")
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise OSError("a pid namespace cannot mount its own /proc")
    os.write(progress, b"p")
    linux.unshare(linux.NEWNET)
    netlink.link_up("lo")
    netlink.add_bridge("check0")
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    netlink.add_veth("check1", "check2", peer_namespace=own, bridge="check0")
    os.write(progress, b"n")
    network: ClusterNetworkConfig = {
        "bridge": "check0",
        "gateway": "10.0.0.1",
        "prefix": 24,
        "services": "10.1.0.0",
        "services_prefix": 16,
        "pods": "10.0.0.0/24",
        "relay": 1,
    }
    problem = outbound_nat.redirect_outbound(network, lock="/tmp/xtables.lock")  # noqa: S108
    os.write(progress, problem.encode() or b"o")
    os._exit(0)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    main()
