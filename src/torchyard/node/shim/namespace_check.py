"""`python -I -S …/trial.py`: try each namespace in a throw-away process and print, as JSON, what was refused."""

from __future__ import annotations

import json
import os
import sys

STEPS = ("user", "mount", "pid", "network", "outbound")


def main() -> None:
    from torchyard.node.shim import linux, netlink, outbound_nat

    said = dict.fromkeys(STEPS, "not tried")
    told_read, told_write = os.pipe()
    mapped_read, mapped_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        linux.unshare(linux.NEWUSER)
        os.write(told_write, b"u")
        os.read(mapped_read, 1)
        linux.unshare(linux.NEWNS)
        linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
        linux.mount("tmpfs", "/tmp", "tmpfs")  # noqa: S108 - only a mount point, in a namespace of our own
        os.write(told_write, b"m")
        child = linux.clone(linux.NEWPID | linux.NEWNS)
        if child == 0:
            linux.mount("proc", "/proc", "proc")
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            raise OSError("a pid namespace cannot mount its own /proc")
        os.write(told_write, b"p")
        linux.unshare(linux.NEWNET)
        netlink.link_up("lo")
        netlink.add_bridge("trial0")
        own = os.open("/proc/self/ns/net", os.O_RDONLY)
        netlink.add_veth("trial1", "trial2", peer_namespace=own, bridge="trial0")
        os.write(told_write, b"n")
        ranges = {"pods": "10.0.0.0/24", "services": "10.1.0.0", "services_prefix": 16, "bridge": "trial0", "relay": 1}
        os.write(told_write, outbound_nat.lead_out(ranges, lock="/tmp/xtables.lock").encode() or b"o")  # noqa: S108
        os._exit(0)
    os.close(told_write)
    try:
        if os.read(told_read, 1) == b"u":
            linux.write_identity_maps(pid)
            said["user"] = ""
            os.write(mapped_write, b"x")
    except OSError as failed:
        said["user"] = str(failed)
        os.close(mapped_write)
    passed = b""
    while chunk := os.read(told_read, 16):
        passed += chunk
    os.waitpid(pid, 0)
    for letter, step in zip(b"mpn", STEPS[1:], strict=False):
        said[step] = "" if letter in passed[:3] else "refused by the kernel"
    said["outbound"] = passed[3:].decode().removeprefix("o") if passed[3:] else "pods have no network of their own"
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    main()
