"""/proc: machine-wide settings, kernel memory and logs, other processes."""

from __future__ import annotations

import contextlib
import os
import stat

from tests.security.hostile import targets
from tests.security.hostile.registry import (
    ABSENT,
    ALLOWED,
    MASKED,
    Verdict,
    add,
    attempt,
    case,
    open_for_writing,
    read,
    write_back,
)

SYSCTLS = (
    "kernel/core_pattern", "kernel/core_uses_pid", "kernel/pid_max", "kernel/threads-max", "kernel/hostname",
    "kernel/domainname", "kernel/modprobe", "kernel/poweroff_cmd", "kernel/randomize_va_space", "kernel/sysrq",
    "kernel/shmmax", "kernel/msgmax", "kernel/sem", "kernel/yama/ptrace_scope", "kernel/kptr_restrict",
    "kernel/dmesg_restrict", "kernel/perf_event_paranoid", "kernel/unprivileged_bpf_disabled", "kernel/ns_last_pid",
    "kernel/panic", "kernel/printk", "kernel/keys/maxkeys", "kernel/sched_rt_runtime_us", "vm/overcommit_memory",
    "vm/swappiness", "vm/mmap_min_addr", "vm/nr_hugepages", "vm/max_map_count", "vm/panic_on_oom",
    "fs/file-max", "fs/suid_dumpable", "fs/protected_symlinks", "fs/protected_hardlinks", "fs/mqueue/msg_max",
    "fs/inotify/max_user_watches", "fs/pipe-max-size", "net/ipv4/ip_forward", "net/ipv4/ip_unprivileged_port_start",
    "net/ipv4/conf/all/route_localnet", "net/core/somaxconn", "user/max_user_namespaces",
)  # fmt: skip
for _name in SYSCTLS:
    add(f"proc.sysctl:{_name}", write_back, f"/proc/sys/{_name}")

# Files whose mere opening for writing shows that the container may use them.
TRIGGERS = (
    "sysrq-trigger", "sys/vm/drop_caches", "sys/vm/compact_memory", "sys/fs/binfmt_misc/register", "mtrr",
    "sys/net/ipv4/route/flush", "irq/default_smp_affinity", "latency_stats", "timer_list", "kcore", "kmsg",
)  # fmt: skip
for _name in TRIGGERS:
    add(f"proc.trigger:{_name}", open_for_writing, f"/proc/{_name}")

SECRETS = (
    "acpi", "asound", "bus", "config.gz", "fs", "interrupts", "irq", "kcore", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "sched_debug", "scsi", "slabinfo", "sysrq-trigger", "timer_list",
    "timer_stats", "vmallocinfo", "allocinfo", "1/root/etc", "1/mem", "self/stack", "self/syscall", "self/pagemap",
)  # fmt: skip
for _name in SECRETS:
    add(f"proc.read:{_name}", read, f"/proc/{_name}")


@case
def no_sysctl_can_be_opened_for_writing() -> Verdict:
    """But /proc/sys/user, which holds the limits of the user namespace itself."""
    return sorted(path for path in _writable("/proc/sys") if not path.startswith("/proc/sys/user/"))


def _writable(top: str) -> list[str]:
    paths: list[str] = []
    for directory, _, names in os.walk(top):
        paths += _writable_files([f"{directory}/{name}" for name in names])
    return paths


def _writable_files(paths: list[str]) -> list[str]:
    writable = []
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and open_for_writing(path) == ALLOWED:
            writable.append(path)
    return writable


@case
def kernel_addresses() -> Verdict:
    try:
        with open("/proc/kallsyms") as lines:
            return ALLOWED if any(int(line.split()[0], 16) for line in lines) else MASKED
    except OSError:
        return ABSENT


@case
def foreign_processes() -> Verdict:
    """The processes of the container are pid 1 and its descendants."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    foreign = [pid for pid in parents if pid not in (1, os.getpid()) and parents[pid] not in (0, *parents)]
    return {"foreign": foreign, "processes": "few" if len(parents) < 10 else "many"}


@case
def processes_of_the_machine() -> Verdict:
    """A process that the tests started on the machine, by its command line."""
    mark = targets.text("HOST_MARK").encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if mark in file.read():
                        return ALLOWED
            except OSError:
                continue
    return ABSENT


@case
def environment_of_the_machine() -> Verdict:
    """A variable that the runtime's own environment has must not be in that of any process seen here."""
    mark = targets.text("HOST_MARK").encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if b"ESCAPE_CANARY=" + mark in file.read():
                        return ALLOWED
            except OSError:
                continue
    return ABSENT


@case
def root_of_the_machine_through_a_process() -> Verdict:
    """/proc/<pid>/root, cwd and fd of every visible process, and a file of the machine below them."""
    path = targets.text("HOST_FILE")
    for name in os.listdir("/proc"):
        if name.isdigit():
            ways = [f"/proc/{name}/root", f"/proc/{name}/cwd"]
            with contextlib.suppress(OSError):
                ways += [f"/proc/{name}/fd/{number}" for number in os.listdir(f"/proc/{name}/fd")]
            for way in ways:
                for up in ("", "/..", "/../../../../../../.."):
                    if os.path.exists(f"{way}{up}{path}"):
                        return ALLOWED
    return ABSENT


@case
def oom_score_lowered() -> Verdict:
    def lower() -> None:
        with open("/proc/self/oom_score_adj", "r+") as file:
            present = int(file.read())
            file.seek(0)
            file.write(str(max(-1000, present - 500)))

    return attempt(lower)


@case
def login_uid_changed() -> Verdict:
    def change() -> None:
        with open("/proc/self/loginuid", "w") as file:
            file.write("0")

    return attempt(change)
