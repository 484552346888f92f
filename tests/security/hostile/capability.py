"""Capabilities, users and the rights that programs with set-user-id bits give."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import shutil
import struct
import subprocess
import sys

from tests.security.hostile import kernel, targets
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case, denied

STATUS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_SET_MM, PR_SET_NO_NEW_PRIVS = 24, 28, 47, 35, 38


def status() -> dict[str, str]:
    fields = {}
    with open("/proc/self/status") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name in STATUS:
                fields[name] = value.strip()
    return fields


def _of_the_machine(capabilities: str) -> str:
    """Without those that nobody on this machine has, and a user namespace nevertheless shows."""
    return f"{int(capabilities, 16) & int(targets.text('CAPABILITIES'), 16):016x}"


def _status(name: str) -> Verdict:
    value = status()[name]
    return _of_the_machine(value) if name.startswith("Cap") else value


for _name in STATUS:
    add(f"capability.status:{_name}", _status, _name)


@case
def user() -> Verdict:
    return f"{os.getresuid()} {os.getresgid()}"


@case
def groups() -> Verdict:
    return sorted(os.getgroups())


def _prctl(*arguments: int) -> None:
    words = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:5]]
    if kernel.LIBC.prctl(*words) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@case
def all_capabilities_taken() -> Verdict:
    header = struct.pack("Ii", 0x20080522, 0)
    wanted = int(targets.text("CAPABILITIES"), 16)
    low, high = wanted & 0xFFFFFFFF, wanted >> 32
    everything = struct.pack("IIIIII", low, low, 0, high, high, 0)
    return attempt(kernel.call, "capset", header, everything)


@case
def admin_taken_as_ambient() -> Verdict:
    return attempt(_prctl, PR_CAP_AMBIENT, 2, 21)


@case
def secure_bits() -> Verdict:
    return attempt(_prctl, PR_SET_SECUREBITS, 0)


@case
def bounding_set_dropped() -> Verdict:
    return attempt(_prctl, PR_CAPBSET_DROP, 0)


@case
def executable_of_a_process_exchanged() -> Verdict:
    """prctl(PR_SET_MM, PR_SET_MM_EXE_FILE)."""
    descriptor = os.open(sys.executable, os.O_RDONLY)
    return attempt(_prctl, PR_SET_MM, 13, descriptor)


@case
def root_by_set_uid() -> Verdict:
    return attempt(os.setresuid, 0, 0, 0)


@case
def groups_changed() -> Verdict:
    return attempt(os.setgroups, [0, 6])


@case
def owner_changed() -> Verdict:
    path = f"/tmp/owned-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT))
    return attempt(os.chown, path, 12345, 12345)


@case
def file_capabilities_set() -> Verdict:
    """CAP_SYS_ADMIN on a copy of the interpreter; the capabilities that it then has."""
    path = f"/tmp/capable-{os.getpid()}"
    shutil.copy(os.path.realpath(sys.executable), path)
    os.chmod(path, 0o755)
    value = struct.pack("<IIIII", 0x02000001, 1 << 21, 0, 0, 0)
    verdict = attempt(os.setxattr, path, "security.capability", value)
    if verdict != ALLOWED:
        return verdict
    text = _run_copy(path, "print([line.split()[1] for line in open('/proc/self/status') if line[:6] == 'CapEff'][0])")
    return text if text.startswith(("denied", "failed")) else _of_the_machine(text)


def _run_copy(path: str, program: str) -> str:
    env = {"PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": f"{sys.base_prefix}/lib"}
    try:
        done = subprocess.run([path, "-S", "-c", program], capture_output=True, text=True, env=env, check=False)
    except OSError as error:
        return denied(error)
    return done.stdout.strip() or f"failed: {done.returncode}"


@case
def set_user_id_program() -> Verdict:
    """A program of root's with the set-user-id bit, which an init container left: the user that it runs as."""
    path = "/shared/set-user-id"
    if not os.path.exists(path):
        return ABSENT
    done = subprocess.run([path, "-u"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or f"failed: {done.stderr.strip()[-200:]}"


@case
def set_user_id_bit_set_by_itself() -> Verdict:
    path = f"/tmp/set-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT))
    os.chmod(path, 0o4755)
    return oct(os.stat(path).st_mode & 0o7777)


@case
def hard_link_to_a_file_of_root() -> Verdict:
    """With fs.protected_hardlinks nobody links a file that they may not write."""
    return attempt(os.link, "/etc/hosts", f"/etc/linked-{os.getpid()}")


@case
def immutable_flag() -> Verdict:
    """FS_IOC_SETFLAGS with the immutable flag, which would keep the runtime from removing the pod's files."""
    path = f"/tmp/immutable-{os.getpid()}"
    descriptor = os.open(path, os.O_CREAT | os.O_RDONLY)
    flags = struct.unpack("l", fcntl.ioctl(descriptor, 0x80086601, bytes(8)))[0]
    fcntl.ioctl(descriptor, 0x40086602, struct.pack("l", flags | 0x10))
    fcntl.ioctl(descriptor, 0x40086602, struct.pack("l", flags))
    return ALLOWED


@case
def trusted_attribute() -> Verdict:
    path = f"/tmp/trusted-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT))
    return attempt(os.setxattr, path, "trusted.escape", b"x")


def _raise_limit(number: int) -> Verdict:
    soft, hard = resource.getrlimit(number)
    if hard == resource.RLIM_INFINITY:
        return "unlimited"
    try:
        resource.setrlimit(number, (soft, hard + 1))
    except ValueError:
        return "denied:EPERM"
    return ALLOWED


for _name, _resource in {"files": 7, "processes": 6, "locked memory": 8, "core": 4, "priority": 13}.items():
    add(f"capability.limit_raised:{_name}", _raise_limit, _resource)
