"""The few Linux system calls that Python 3.11 does not offer, through ctypes.

Free of policy: every function is one system call, and raises an OSError that names it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Collection

# PyDLL holds the interpreter lock during a call, so that after clone() the child has a usable interpreter.
_libc = ctypes.PyDLL(None, use_errno=True)

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
_CLONE_PARENT, _SIGCHLD = 0x8000, 17

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC = 1024, 2048, 4096, 16384
MS_PRIVATE, MS_SLAVE, MS_RELATIME = 1 << 18, 1 << 19, 1 << 21
MNT_DETACH = 2
AT_FDCWD = -100

_PR_SET_DUMPABLE = 4
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 15, 24, 36, 38

RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 0x02, 0x08, 0x10
_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
_MOUNT_ATTR_IDMAP = 0x100000
_OPEN_TREE_CLONE, _MOVE_FROM_EMPTY_PATH, _MOVE_TO_EMPTY_PATH = 1, 0x04, 0x40
_JOIN_SESSION_KEYRING = 1
_SET_MODE_FILTER, _SPEC_ALLOW = 1, 4
_CAPABILITY_VERSION = 0x20080522
_EINVAL, _ENOSYS = 22, 38

_NUMBERS = {
    "x86_64": {
        "clone": 56,
        "keyctl": 250,
        "pivot_root": 155,
        "capset": 126,
        "seccomp": 317,
        "mount_setattr": 442,
        "openat2": 437,
        "open_tree": 428,
        "move_mount": 429,
        "setresgid": 119,
        "setresuid": 117,
    },
    "aarch64": {
        "clone": 220,
        "keyctl": 219,
        "pivot_root": 41,
        "capset": 91,
        "seccomp": 277,
        "mount_setattr": 442,
        "openat2": 437,
        "open_tree": 428,
        "move_mount": 429,
        "setresgid": 149,
        "setresuid": 147,
    },
}
_SYSCALL = _NUMBERS.get(platform.machine(), {})

# statvfs flags that a bind mount of an ordinary user must keep when it is remounted
_LOCKED = (
    (os.ST_RDONLY, MS_RDONLY),
    (os.ST_NOSUID, MS_NOSUID),
    (os.ST_NODEV, MS_NODEV),
    (os.ST_NOEXEC, MS_NOEXEC),
    (os.ST_NOATIME, MS_NOATIME),
    (os.ST_NODIRATIME, MS_NODIRATIME),
    (os.ST_RELATIME, MS_RELATIME),
)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def _syscall(name: str, *arguments: object) -> int:
    if name not in _SYSCALL:
        raise OSError(38, f"{name}: not known on {platform.machine()}")
    return _check(_libc.syscall(_SYSCALL[name], *arguments), name)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, kind: int) -> None:
    _check(_libc.setns(descriptor, kind), f"setns({kind:#x})")


def clone(flags: int, *, to_parent: bool = False) -> int:
    """fork() into new namespaces; with `to_parent` the child belongs to the caller's parent, which must reap it."""
    return _syscall("clone", flags | (_CLONE_PARENT if to_parent else 0) | _SIGCHLD, 0, 0, 0, 0)


def mount(source: str, target: str, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source) or None,
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        os.fsencode(data) or None,
    )
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(directory: int, path: str, *, flags: int, resolve: int) -> int:
    """Open a path below an open directory; `resolve` limits where its links may lead."""
    if "\0" in path:
        raise ValueError("embedded null byte")  # as os.open: the kernel would see the part before it
    how = _OpenHow(flags, 0, resolve)
    return _syscall("openat2", directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))


def unmount(target: str) -> None:
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def make_read_only(target: str) -> None:
    """Make a mount and all mounts below it read-only."""
    restrict(target, read_only=True, no_devices=False)


def restrict(target: str, *, read_only: bool, no_devices: bool) -> None:
    """Make a mount and all mounts below it read-only, or keep their device files from being opened, or both."""
    attributes = (_MOUNT_ATTR_RDONLY if read_only else 0) | (_MOUNT_ATTR_NODEV if no_devices else 0)
    data = struct.pack("=QQQQ", attributes, 0, 0, 0)
    try:
        _syscall("mount_setattr", AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, data, ctypes.c_size_t(32))
    except OSError as error:
        if error.errno != _ENOSYS:
            raise
        flags = (MS_RDONLY if read_only else 0) | (MS_NODEV if no_devices else 0)
        for mount_point in mounts_below(target):  # a kernel before 5.12
            remount(mount_point, flags)


def clone_mount(descriptor: int, *, recursive: bool = True) -> int:
    """A copy of an open file's mount, and of those below it, that is not mounted anywhere yet."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    return _syscall("open_tree", descriptor, b"", flags)


def configure_mount(
    descriptor: int,
    *,
    user_namespace: int | None = None,
    read_only: bool = False,
    no_devices: bool = False,
    no_exec: bool = False,
) -> None:
    """Make a mount that is not mounted yet, and those below it, private and restrict them.

    With a user namespace their files get its ids.
    """
    attributes = (_MOUNT_ATTR_RDONLY if read_only else 0) | (_MOUNT_ATTR_NODEV if no_devices else 0)
    if no_exec:
        attributes |= _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOEXEC
    if user_namespace is not None:
        attributes |= _MOUNT_ATTR_IDMAP
    data = struct.pack("=QQQQ", attributes, 0, MS_PRIVATE, user_namespace or 0)
    _syscall("mount_setattr", descriptor, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, data, ctypes.c_size_t(32))


def attach_mount(descriptor: int, target: int) -> None:
    """Mount what `clone_mount` returned on an open file."""
    flags = _MOVE_FROM_EMPTY_PATH | _MOVE_TO_EMPTY_PATH
    _syscall("move_mount", descriptor, b"", target, b"", flags)


def mounts_below(target: str) -> list[str]:
    """The mount points at a path and below it, each once."""
    path = os.path.realpath(target)
    with open("/proc/self/mountinfo", "rb") as lines:
        points = {line.split(b" ")[4].decode("unicode_escape").encode("latin-1") for line in lines}
    below = os.fsencode(path).rstrip(b"/") + b"/"
    return sorted(os.fsdecode(point) for point in points if point == os.fsencode(path) or point.startswith(below))


def remount_read_only(target: str) -> None:
    """Remount one mount read-only."""
    remount(target, MS_RDONLY)


def remount(target: str, flags: int) -> None:
    """Add flags to one mount, and leave it those that it has: a user namespace cannot remove them."""
    present = os.statvfs(target).f_flag
    flags |= MS_BIND | MS_REMOUNT
    for flag, mount_flag in _LOCKED:
        if present & flag:
            flags |= mount_flag
    mount("none", target, flags=flags)


def pivot_root(new_root: str, put_old: str) -> None:
    """Make `new_root` the root; the old one is mounted on `put_old`, a directory below it."""
    _syscall("pivot_root", new_root.encode(), put_old.encode())
    os.chdir("/")


def set_hostname(name: str) -> None:
    encoded = name.encode()
    _check(_libc.sethostname(encoded, len(encoded)), "sethostname")


def set_thread_ids(uid: int, gid: int) -> None:
    """Change the user and the group of this thread alone. `os.setresuid` changes those of the whole process."""
    _syscall("setresgid", gid, gid, gid)
    _syscall("setresuid", uid, uid, uid)


def set_process_name(name: str) -> None:
    """The name that `ps` and `top` show; at most fifteen letters."""
    _check(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0), "prctl(NAME)")


def die_with_parent(signal: int = 9) -> None:
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl(PDEATHSIG)")


def set_dumpable(value: bool) -> None:
    """Whether processes with the same user and capabilities may trace this one and open what it has open.

    Nobody can while it is False, not even with CAP_SYS_PTRACE in the same user namespace. An exec sets it to True.
    """
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(value), 0, 0, 0), "prctl(DUMPABLE)")


def join_session_keyring() -> None:
    """A new session keyring for this process and its children, in place of that of the user's login."""
    _syscall("keyctl", _JOIN_SESSION_KEYRING, None)


def become_subreaper() -> None:
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(SUBREAPER)")


def forbid_new_privileges() -> None:
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")


def bound_capabilities(keep: Collection[int]) -> None:
    """Drop every capability but `keep` from the bounding set of this process and its children."""
    for capability in range(64):
        # EINVAL ends the list of capabilities this kernel has
        if capability not in keep and _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            if ctypes.get_errno() == 22:
                return
            _check(-1, "prctl(CAPBSET_DROP)")


def set_capabilities(keep: Collection[int]) -> None:
    """Leave this process exactly these capabilities, permitted and effective, and none for its programs to inherit."""
    mask = sum(1 << number for number in keep)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _syscall("capset", header, struct.pack("=6I", low, low, 0, high, high, 0))


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install_seccomp_filter(instructions: bytes) -> None:
    """Filter the system calls of this process and its children from now on: an array of struct sock_filter."""
    program = ctypes.byref(_FilterProgram(len(instructions) // 8, instructions))
    try:
        # A filtered process is as fast as another: without the flag older kernels slow its speculation down.
        _syscall("seccomp", _SET_MODE_FILTER, _SPEC_ALLOW, program)
    except OSError as error:
        if error.errno != _EINVAL:
            raise
        _syscall("seccomp", _SET_MODE_FILTER, 0, program)  # a kernel before 4.17


def write_identity_maps(pid: int) -> None:
    """Fill the id maps of a new user namespace: all ids for root; for an ordinary user the own id, as root."""
    if os.geteuid() == 0 and _owns_every_id():
        _write_maps(pid, {"uid_map": "0 0 4294967295", "gid_map": "0 0 4294967295"})
    else:
        _write_maps(pid, {"setgroups": "deny", "uid_map": f"0 {os.geteuid()} 1", "gid_map": f"0 {os.getegid()} 1"})


def map_range(pid: int, first: int, count: int) -> None:
    """Fill the id maps of a new user namespace: from 0 on, a range that begins with `first`."""
    _write_maps(pid, {"uid_map": f"0 {first} {count}", "gid_map": f"0 {first} {count}"})


def map_identity(uid: int, gid: int) -> None:
    """Map this process to another uid and gid, in a user namespace of its own. It gains no rights."""
    own_uid, own_gid = os.geteuid(), os.getegid()
    unshare(NEWUSER)
    set_dumpable(True)  # a process that is not has no maps of its own to write
    _write_maps(os.getpid(), {"setgroups": "deny", "uid_map": f"{uid} {own_uid} 1", "gid_map": f"{gid} {own_gid} 1"})
    set_dumpable(False)


def _write_maps(pid: int, maps: dict[str, str]) -> None:
    for name, text in maps.items():
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _owns_every_id() -> bool:
    return _uid_map() == ["0", "0", "4294967295"]


def has_single_id() -> bool:
    """Whether this user namespace maps one user only, as one that an ordinary user created does."""
    return _uid_map()[2:] == ["1"]


def _uid_map() -> list[str]:
    with open("/proc/self/uid_map") as lines:
        return lines.read().split()
