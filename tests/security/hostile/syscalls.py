"""System calls that a seccomp filter of container runtimes refuses, by name and one by one."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import socket
import struct

from tests.security.hostile import kernel
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case, denied

# Arguments with which the call changes nothing even if it is allowed.
HARMLESS: dict[str, tuple[object, ...]] = {
    "acct": (b"/nonexistent/acct",),
    "adjtimex": (ctypes.create_string_buffer(struct.pack("I", 0x0100) + bytes(252)),),
    "bpf": (0, ctypes.create_string_buffer(struct.pack("IIIII", 2, 4, 4, 1, 0) + bytes(100)), 72),
    "cachestat": (0, None, None, 0),
    "clock_adjtime": (0, ctypes.create_string_buffer(struct.pack("I", 0x0100) + bytes(252))),
    "clock_settime": (1, ctypes.create_string_buffer(16)),
    "delete_module": (b"escape-nonexistent", os.O_NONBLOCK),
    "fanotify_init": (0, 0),
    "finit_module": (-1, b"", 0),
    "get_mempolicy": (None, None, 0, None, 0),
    "init_module": (None, 0, b""),
    "io_uring_setup": (1, ctypes.create_string_buffer(120)),
    "ioperm": (0x80, 1, 1),
    "iopl": (3,),
    "kcmp": (os.getpid(), os.getpid(), 1, 0, 0),
    "kexec_file_load": (-1, -1, 0, b"", 0),
    "kexec_load": (0, 0, None, 0xFFFF0000),
    "landlock_create_ruleset": (None, 0, 1),
    "lookup_dcookie": (0, None, 0),
    "lsm_list_modules": (None, None, 0),
    "mbind": (None, 0, 0, None, 0, 0),
    "memfd_secret": (0,),
    "modify_ldt": (0, None, 0),
    "move_pages": (0, 0, None, None, None, 0),
    "nfsservctl": (0, None, None),
    "perf_event_open": (ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 0) + bytes(96)), 0, -1, -1, 0),
    "process_madvise": (-1, None, 0, 0, 0),
    "quotactl_fd": (-1, 0, 0, None),
    "reboot": (0xFEE1DEAD, 672274793, 0x89ABCDEF, None),
    "set_mempolicy": (0, None, 0),
    "settimeofday": (None, ctypes.create_string_buffer(8)),
    "statmount": (None, None, 0, 0),
    "listmount": (None, None, 0, 0),
    "swapoff": (b"/nonexistent/swap",),
    "swapon": (b"/nonexistent/swap", 0),
    "syslog": (3, ctypes.create_string_buffer(4096), 4096),
    "sysfs": (3,),
    "uselib": (b"/nonexistent/library",),
    "userfaultfd": (0,),
    "ustat": (0, ctypes.create_string_buffer(64)),
    "vhangup": (),
    "vmsplice": (-1, None, 0, 0),
}


def _try(name: str) -> Verdict:
    """Allowed means: the call reached the kernel's own checks of its arguments."""
    try:
        kernel.call(name, *HARMLESS[name])
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            return denied(error)
    return ALLOWED


for _name in HARMLESS:
    add(f"syscalls.{_name}", _try, _name)


@case
def user_faults_in_user_mode() -> Verdict:
    return attempt(kernel.call, "userfaultfd", 1)


@case
def real_time_clock_set_to_itself() -> Verdict:
    import time

    now = time.clock_gettime_ns(time.CLOCK_REALTIME)
    value = struct.pack("qq", now // 10**9, now % 10**9)
    # The clock of CPU time of a process can never be set, so nothing changes even if the call is allowed.
    return attempt(kernel.call, "clock_settime", 2, value)


def _without_effect(number: int) -> str:
    """Make the call with arguments that no call accepts; how it ends shows what a filter does with its number."""
    near, far = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(1)
            words = [ctypes.c_long(-1)] * 6
            ctypes.set_errno(0)
            result = kernel.LIBC.syscall(ctypes.c_long(number), *words)
            code = ctypes.get_errno() if result == -1 else 0
            os.write(far, errno.errorcode.get(code, str(code)).encode() if code else b"ok")
        finally:
            os._exit(0)
    os.close(far)
    try:
        text = os.read(near, 64)
    finally:
        os.close(near)
        os.waitpid(pid, 0)
    return text.decode() or "ended"


# They end or block the caller, signal or change everything in reach; the filter is tried with the others.
DANGEROUS = {
    "x86_64": {15, 34, 57, 58, 60, 62, 129, 153, 162, 200, 231, 234},
    "aarch64": {58, 81, 93, 94, 129, 130, 131, 138, 139},
}
LAST_NUMBER = 470


def _every_number() -> Verdict:
    """The numbers that are refused (EPERM) or do not exist (ENOSYS) whatever their arguments are."""
    refused: dict[str, list[int]] = {"EPERM": [], "ENOSYS": []}
    for number in range(LAST_NUMBER):
        if number not in DANGEROUS.get(kernel.MACHINE, set()):
            verdict = _without_effect(number)
            if verdict in refused:
                refused[verdict].append(number)
    return refused


add("sweep.every_number", _every_number)  # a topic of its own: it takes a second


@case
def numbers_of_the_x32_interface() -> Verdict:
    """The same calls with the x32 bit: mount, ptrace, add_key. A filter has to refuse them too."""
    if kernel.MACHINE != "x86_64":
        return ABSENT
    verdicts = {_without_effect(0x40000000 + number) for number in (165, 521, 248, 272)}
    return "denied" if verdicts <= {"EPERM", "ENOSYS", "ended"} else sorted(verdicts)


def _by_interrupt(number: int, first: int = 0) -> int:
    """A system call of the 32-bit interface, by machine code: mov eax, number; mov ebx, first; int 0x80; ret."""
    code = b"\x53\xb8" + struct.pack("<I", number) + b"\xbb" + struct.pack("<I", first)
    code += b"\x31\xc9\x31\xd2\x31\xf6\x31\xff\xcd\x80\x5b\xc3"
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


def _interrupt(number: int, first: int) -> Verdict:
    if kernel.MACHINE != "x86_64":
        return ABSENT
    result = _by_interrupt(number, first)
    return denied(OSError(-result, "")) if result in (-errno.EPERM, -errno.ENOSYS) else ALLOWED


# Of the 32-bit interface: keyctl, unshare with a user namespace, bpf, mount.
for _name, _number, _first in (("keyctl", 288, 0), ("unshare", 310, 0x10000000), ("bpf", 357, 0), ("mount", 21, 0)):
    add(f"syscalls.by_interrupt:{_name}", _interrupt, _number, _first)


FAMILIES = {
    "inet": (socket.AF_INET, socket.SOCK_STREAM, 0), "icmp": (socket.AF_INET, socket.SOCK_DGRAM, 1),
    "raw": (socket.AF_INET, socket.SOCK_RAW, 1), "packet": (17, socket.SOCK_RAW, 0x0300),
    "key": (15, socket.SOCK_RAW, 2), "alg": (38, socket.SOCK_SEQPACKET, 0), "vsock": (40, socket.SOCK_STREAM, 0),
    "bluetooth": (31, socket.SOCK_RAW, 1),
    "can": (29, socket.SOCK_RAW, 1), "tipc": (30, socket.SOCK_SEQPACKET, 0), "rds": (21, socket.SOCK_SEQPACKET, 0),
    "netlink route": (16, socket.SOCK_RAW, 0), "netlink audit": (16, socket.SOCK_RAW, 9),
    "netlink netfilter": (16, socket.SOCK_RAW, 12), "netlink uevent": (16, socket.SOCK_RAW, 15),
    "netlink generic": (16, socket.SOCK_RAW, 16), "xdp": (44, socket.SOCK_RAW, 0), "smc": (43, socket.SOCK_STREAM, 0),
}  # fmt: skip


def _socket(family: int, kind: int, protocol: int) -> Verdict:
    return attempt(lambda: socket.socket(family, kind, protocol).close())


for _name, _family in FAMILIES.items():
    add(f"syscalls.socket:{_name}", _socket, *_family)
