"""/sys: settings of devices, modules, power, memory management."""

from __future__ import annotations

import os

from tests.security.hostile.registry import ALLOWED, Verdict, add, case, open_for_writing, read, write_back

WRITES = (
    "kernel/mm/transparent_hugepage/enabled", "kernel/mm/ksm/run", "kernel/uevent_helper", "kernel/profiling",
    "kernel/rcu_expedited", "kernel/kexec_crash_size", "power/state", "power/wake_lock",
    "module/kernel/parameters/panic",
    "module/printk/parameters/time", "devices/system/cpu/cpu1/online", "class/net/lo/mtu", "fs/cgroup/cgroup.procs",
)  # fmt: skip
for _name in WRITES:
    add(f"sysfs.write:{_name}", open_for_writing, f"/sys/{_name}")

READS = (
    "firmware", "kernel/debug", "kernel/tracing", "kernel/security", "fs/bpf", "fs/pstore", "fs/selinux",
    "devices/virtual/powercap", "kernel/vmcoreinfo", "kernel/notes", "hypervisor",
)  # fmt: skip
for _name in READS:
    add(f"sysfs.read:{_name}", read, f"/sys/{_name}")


@case
def transparent_hugepages_written_back() -> Verdict:
    """The file shows all values, the present one in brackets; written back as it is, it is refused anyway."""
    return write_back("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag")


@case
def no_file_can_be_opened_for_writing() -> Verdict:
    """Every file of /sys that has a write bit. Cgroups are a topic of their own."""
    writable = []
    for directory, names, files in os.walk("/sys"):
        if directory == "/sys/fs":
            names[:] = [name for name in names if name != "cgroup"]
        for name in files:
            path = f"{directory}/{name}"
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                continue
            if mode & 0o222 and open_for_writing(path) == ALLOWED:
                writable.append(path)
                if len(writable) > 20:
                    return writable
    return writable


@case
def read_only() -> Verdict:
    """Whether /sys is mounted read-only, with everything below it."""
    writable = []
    with open("/proc/self/mountinfo") as lines:
        for line in lines:
            fields = line.split()
            if (fields[4] + "/").startswith("/sys/") and "ro" not in fields[5].split(","):
                writable.append(fields[4])
    return writable
