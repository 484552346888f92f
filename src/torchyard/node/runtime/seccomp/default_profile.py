"""RuntimeDefault: the profile that containerd gives a container that asks for no other, in the OCI format.

Everything that is not listed fails with EPERM. What a capability protects is allowed to containers that have it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

_ALLOW, _ERRNO, _ENOSYS, _EPERM = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", 38, 1
_AF_VSOCK = 40
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET
_NEW_NAMESPACES = 0x7E020000
# Linux, 32-bit addresses (UNAME26 and its combination), and "only tell me"
_PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)

_ALWAYS = """
accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown chown32 clock_adjtime
clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64
close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old
epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2
fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64
fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync
ftruncate ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list
get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups
getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid
getresuid32 getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule landlock_create_ruleset
landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listxattr listxattrat llistxattr _llseek
lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mkdir
mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock
munlockall munmap name_to_handle_at nanosleep newfstatat _newselect open openat openat2 pause pidfd_open
pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2
prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev pwritev2
read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr
removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler
sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg
sendto set_robust_list set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups
setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid
setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl shmdt shmget shutdown
sigaltstack signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice stat stat64 statfs statfs64 statx
symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64
timerfd_settime timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink unlinkat utime utimensat
utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev
"""
_OF_MACHINE = {
    "x86_64": "arch_prctl modify_ldt",
    "aarch64": "arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls sync_file_range2",
}
# The number of a capability → what it allows.
_OF_CAPABILITY = {
    2: "open_by_handle_at",  # DAC_READ_SEARCH
    16: "delete_module finit_module init_module",  # SYS_MODULE
    17: "ioperm iopl",  # SYS_RAWIO
    18: "chroot",  # SYS_CHROOT
    19: "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace",  # SYS_PTRACE
    20: "acct",  # SYS_PACCT
    21: "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount "
    "open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare",
    22: "reboot",  # SYS_BOOT
    23: "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",  # SYS_NICE
    25: "clock_settime clock_settime64 settimeofday stime",  # SYS_TIME
    26: "vhangup",  # SYS_TTY_CONFIG
    34: "syslog",  # SYSLOG
    38: "perf_event_open",  # PERFMON
    39: "bpf",  # BPF
}
_SYS_ADMIN = 21


def runtime_default(machine: str, architectures: Collection[str], capabilities: Collection[int]) -> dict[str, Any]:
    """The profile for containers with these capabilities in their bounding set."""
    names = _ALWAYS.split() + _OF_MACHINE[machine].split()
    for number, more in _OF_CAPABILITY.items():
        if number in capabilities:
            names += more.split()
    rules: list[dict[str, Any]] = [
        {"names": names, "action": _ALLOW},
        # The kernel reads 32 bits of the address family, so that a comparison of 64 alone could be passed by.
        _rule("socket", _ERRNO, op="SCMP_CMP_MASKED_EQ", value=0xFFFFFFFF, value_two=_AF_VSOCK),
        _rule("socket", _ALLOW, op="SCMP_CMP_NE", value=_AF_VSOCK),
        *(_rule("personality", _ALLOW, op="SCMP_CMP_EQ", value=value) for value in _PERSONALITIES),
    ]
    if _SYS_ADMIN not in capabilities:
        rules += [
            _rule("clone", _ALLOW, op="SCMP_CMP_MASKED_EQ", value=_NEW_NAMESPACES),
            # Its flags lie in memory, where no filter can read them. After ENOSYS the C library calls clone.
            {"names": ["clone3"], "action": _ERRNO, "errnoRet": _ENOSYS},
        ]
    return {
        "defaultAction": _ERRNO,
        "defaultErrnoRet": _EPERM,
        "architectures": list(architectures),
        "syscalls": rules,
    }


def _rule(name: str, action: str, *, op: str, value: int, value_two: int = 0) -> dict[str, Any]:
    """A rule on the first argument."""
    return {"names": [name], "action": action, "args": [{"index": 0, "value": value, "valueTwo": value_two, "op": op}]}
