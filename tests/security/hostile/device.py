"""Devices: those of the machine that must not be there, and device files that a container makes itself."""

from __future__ import annotations

import fcntl
import os
import stat
import struct

from tests.security.hostile import targets
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case, denied

# kind, major, minor
NODES = {
    "null": ("c", 1, 3), "mem": ("c", 1, 1), "port": ("c", 1, 4), "kmsg": ("c", 1, 11), "tty0": ("c", 4, 0),
    "console": ("c", 5, 1), "fuse": ("c", 10, 229), "kvm": ("c", 10, 232), "loop-control": ("c", 10, 237),
    "tun": ("c", 10, 200), "btrfs-control": ("c", 10, 234), "autofs": ("c", 10, 235), "uinput": ("c", 10, 223),
    "hwrng": ("c", 10, 183), "userfaultfd": ("c", 10, 257), "loop0": ("b", 7, 0), "vda": ("b", 254, 0),
    "sda": ("b", 8, 0),
}  # fmt: skip
PATHS = (
    "mem", "port", "kmsg", "kvm", "fuse", "net/tun", "loop-control", "loop0", "vda", "sda", "tty0", "console", "hwrng",
    "userfaultfd", "vsock", "cpu_dma_latency", "autofs", "btrfs-control", "zram0", "ttyS0", "vcs", "uinput",
    "vhost-net", "snapshot", "mapper/control", "cpu/0/msr", "dri", "infiniband", "disk", "input", "bus",
)  # fmt: skip


def _open(path: str) -> Verdict:
    if os.path.isdir(path):
        return ALLOWED
    return attempt(lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)))


for _name in PATHS:
    add(f"device.open:{_name}", _open, f"/dev/{_name}")


def _mknod(kind: str, major: int, minor: int) -> Verdict:
    """Create a device file in /dev and in the root, and open what was created."""
    bits = stat.S_IFCHR if kind == "c" else stat.S_IFBLK
    verdicts = []
    for directory in ("/tmp", "/dev"):
        path = f"{directory}/escape-{os.getpid()}"
        try:
            os.mknod(path, bits | 0o600, os.makedev(major, minor))
        except OSError as error:
            verdicts.append(denied(error))
            continue
        try:
            verdict = _open(path)
            verdicts.append(ALLOWED if verdict == ABSENT else verdict)  # the driver is missing, not the right
        finally:
            os.unlink(path)
    return ALLOWED if ALLOWED in verdicts else min(verdicts)


for _name, _node in NODES.items():
    add(f"device.mknod:{_name}", _mknod, *_node)


@case
def root_disk_by_number() -> Verdict:
    """The disk of the machine's root, by the number that the tests read there."""
    major, minor = (int(part) for part in targets.text("HOST_DISK").split(":"))
    return _mknod("b", major, minor)


@case
def entries() -> Verdict:
    return sorted(os.listdir("/dev"))


@case
def shared_memory_of_the_machine() -> Verdict:
    return ALLOWED if os.path.exists(f"/dev/shm/{targets.text('HOST_MARK')}") else ABSENT


@case
def devices_are_character_devices_only() -> Verdict:
    return sorted(name for name in os.listdir("/dev") if stat.S_ISBLK(os.lstat(f"/dev/{name}").st_mode))


@case
def input_pushed_into_a_terminal() -> Verdict:
    """TIOCSTI on a terminal of its own, and on /dev/tty, which the container has none of."""
    controller, terminal = os.openpty()
    os.setsid() if os.getsid(0) != os.getpid() else None
    try:
        fcntl.ioctl(terminal, 0x5412, b"x")
    except OSError as error:
        return denied(error)
    finally:
        os.close(controller)
    return ALLOWED


@case
def controlling_terminal() -> Verdict:
    return attempt(lambda: os.close(os.open("/dev/tty", os.O_RDWR)))


@case
def terminals_of_the_machine() -> Verdict:
    """/dev/pts is the container's own: it has no terminal of others."""
    return sorted(os.listdir("/dev/pts"))


@case
def selection_of_the_console() -> Verdict:
    """TIOCLINUX, which can paste into the console."""
    descriptor = os.open("/dev/tty", os.O_RDWR)
    fcntl.ioctl(descriptor, 0x541C, struct.pack("B", 6))
    return ALLOWED
