"""System calls by name, for x86-64 and ARM, and constants that Python does not have."""

from __future__ import annotations

import ctypes
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
MACHINE = platform.machine()

# name: (x86-64, ARM); -1: the machine does not have it
NUMBERS = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "cachestat": (451, 451),
    "chroot": (161, 51), "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone": (56, 220),
    "clone3": (435, 435), "delete_module": (176, 106), "fanotify_init": (300, 262), "finit_module": (313, 273),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "get_mempolicy": (239, 236), "init_module": (175, 105), "io_uring_setup": (425, 425), "ioperm": (173, -1),
    "iopl": (172, -1), "ioprio_set": (251, 30), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "landlock_create_ruleset": (444, 444), "listmount": (458, 458),
    "lookup_dcookie": (212, 18), "lsm_list_modules": (461, 461), "mbind": (237, 235), "memfd_secret": (447, 447),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239),
    "mq_open": (240, 180), "msgget": (68, 186), "name_to_handle_at": (303, 264), "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241), "personality": (135, 92),
    "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pivot_root": (155, 41),
    "process_madvise": (440, 440), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142),
    "request_key": (249, 218), "sched_setattr": (314, 274), "semget": (64, 190), "set_mempolicy": (238, 237),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170),
    "shmat": (30, 196), "shmctl": (31, 195), "shmget": (29, 194), "statmount": (457, 457), "swapoff": (168, 225),
    "swapon": (167, 224), "syslog": (103, 116), "tgkill": (234, 131), "umount2": (166, 39), "unshare": (272, 97),
    "uselib": (134, -1), "userfaultfd": (323, 282), "ustat": (136, -1), "vhangup": (153, 58), "vmsplice": (278, 75),
    "getpid": (39, 172), "sysfs": (139, -1), "modify_ldt": (154, -1), "seccomp": (317, 277), "capset": (126, 91),
}  # fmt: skip

NEW = {
    "time": 0x80, "mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
    "pid": 0x20000000, "net": 0x40000000,
}  # fmt: skip
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE, MS_SHARED = 1, 32, 4096, 8192, 16384, 1 << 18, 1 << 20
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
CLONE_TREE = 1


class NotOnThisMachine(OSError):
    """The system call exists on another architecture only."""

    def __init__(self) -> None:
        super().__init__(38, "not on this machine")


def number_of(name: str) -> int:
    number = NUMBERS[name][0 if MACHINE == "x86_64" else 1]
    if number < 0 or MACHINE not in ("x86_64", "aarch64"):
        raise NotOnThisMachine
    return number


def raw(number: int, *arguments: object) -> int:
    """Make a system call; raise OSError if the kernel refuses."""
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    result = int(LIBC.syscall(ctypes.c_long(number), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def call(name: str, *arguments: object) -> int:
    return raw(number_of(name), *arguments)


def mount(
    source: bytes | None, target: bytes, kind: bytes | None = None, flags: int = 0, data: bytes | None = None
) -> None:
    call("mount", source, target, kind, flags, data)


def umount(target: bytes) -> None:
    call("umount2", target, MNT_DETACH)


def unshare(*kinds: str) -> None:
    call("unshare", sum(NEW[kind] for kind in kinds))


def become_root_of_user_namespace(*more: str) -> None:
    """A new user namespace in which this process is root, as any unprivileged program may create one."""
    uid, gid = os.geteuid(), os.getegid()
    unshare("user", *more)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
