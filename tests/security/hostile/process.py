"""Other processes: signals, tracing, their memory and descriptors, priorities."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import time
from collections.abc import Callable

from tests.security.hostile import kernel, targets
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case

PTRACE_SEIZE = 0x4206


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _machine_process() -> int:
    """The pid of the tests' process on the machine, if the pod sees it (hostPID)."""
    mark = targets.text("HOST_MARK").encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if mark in file.read():
                        return int(name)
            except OSError:
                continue
    return 0


def _child() -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    return pid


def _on_child(action: str) -> Verdict:
    pid = _child()
    try:
        return _act(action, pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def _act(action: str, pid: int) -> Verdict:
    return attempt(ACTIONS[action], pid)


def _read_memory(pid: int) -> None:
    buffer = ctypes.create_string_buffer(8)
    local, remote = Vector(ctypes.addressof(buffer), 8), Vector(_address(pid), 8)
    kernel.call("process_vm_readv", pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)


def _enter(pid: int, kind: str) -> None:
    kernel.call("setns", os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)


def _address(pid: int) -> int:
    """An address that is mapped in the process, or any if its maps are closed."""
    try:
        with open(f"/proc/{pid}/maps") as lines:
            return int(lines.readline().split("-")[0], 16)
    except (OSError, ValueError):
        return 0x400000


# Things that can be done to another process; each ends at once and harms nothing.
ACTIONS: dict[str, Callable[[int], object]] = {
    "signal": lambda pid: os.kill(pid, 0),
    "pidfd": lambda pid: os.close(os.pidfd_open(pid)),
    "pidfd signal": lambda pid: signal.pidfd_send_signal(os.pidfd_open(pid), 0),
    "descriptor": lambda pid: kernel.call("pidfd_getfd", os.pidfd_open(pid), 0, 0),
    "trace": lambda pid: kernel.call("ptrace", PTRACE_SEIZE, pid, 0, 0),
    "memory": _read_memory,
    "memory file": lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)),
    "compare": lambda pid: kernel.call("kcmp", os.getpid(), pid, 1, 0, 0),
    "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)),
    "limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE),
    "affinity": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    "environment": lambda pid: os.close(os.open(f"/proc/{pid}/environ", os.O_RDONLY)),
    "root": lambda pid: os.listdir(f"/proc/{pid}/root/"),
    "namespace": lambda pid: _enter(pid, "mnt"),
    "user namespace": lambda pid: _enter(pid, "user"),
}


def _on_machine(action: str) -> Verdict:
    pid = _machine_process()
    return _act(action, pid) if pid else ABSENT


for _action in ACTIONS:
    add(f"process.child:{_action}", _on_child, _action)
    add(f"process.of_the_machine:{_action}", _on_machine, _action)
    if _action != "trace":  # a traced pid 1 would stop the container
        add(f"process.first:{_action}", _act, _action, 1)


@case
def signal_by_number_of_the_machine() -> Verdict:
    """The pid that the tests' process has on the machine: here it is another process, or none."""
    pid = targets.number("HOST_PID")
    if _machine_process() == pid:
        return ALLOWED
    try:
        with open(f"/proc/{pid}/cmdline", "rb"):
            return ABSENT  # a process of the container that has the number by chance
    except OSError:
        return attempt(os.kill, pid, 0)


@case
def better_priority() -> Verdict:
    return attempt(os.setpriority, os.PRIO_PROCESS, 0, -5)


@case
def real_time_scheduling() -> Verdict:
    return attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))


@case
def deadline_scheduling() -> Verdict:
    attributes = struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 1_000_000, 10_000_000, 10_000_000)
    return attempt(kernel.call, "sched_setattr", 0, attributes, 0)


@case
def real_time_io() -> Verdict:
    return attempt(kernel.call, "ioprio_set", 1, 0, (1 << 13) | 4)


@case
def memory_locked() -> Verdict:
    return attempt(lambda: _check(kernel.LIBC.mlockall(1)))


@case
def core_dump_pattern_is_not_a_program_of_the_pod() -> Verdict:
    with open("/proc/sys/kernel/core_pattern") as file:
        return "tmp" in file.read()


def _check(result: int) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@case
def address_randomization_switched_off() -> Verdict:
    return attempt(kernel.call, "personality", 0x0040000)


@case
def personality_of_another_architecture() -> Verdict:
    return attempt(kernel.call, "personality", 0x0008)


@case
def parent_outside() -> Verdict:
    """The parent of pid 1 is not visible."""
    with open("/proc/1/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])
