"""Control groups: a container must not lift its own limits, nor use the release agent of version 1."""

from __future__ import annotations

import os

from tests.security.hostile import kernel, targets
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case, open_for_writing

ROOT = "/sys/fs/cgroup"


def _files(*names: str) -> list[str]:
    """All files of these names below the cgroup mount, in whatever version and hierarchy they are."""
    paths = []
    for directory, _, files in os.walk(ROOT):
        paths += [f"{directory}/{name}" for name in names if name in files]
    return paths


def _writable(*names: str) -> Verdict:
    paths = _files(*names)
    if not paths:
        return ABSENT
    verdicts = {open_for_writing(path) for path in paths}
    return ALLOWED if ALLOWED in verdicts else min(verdicts)


for _name, _files_of in {
    "memory_limit": ("memory.limit_in_bytes", "memory.max", "memory.high"),
    "cpu_limit": ("cpu.cfs_quota_us", "cpu.max"),
    "pids_limit": ("pids.max",),
    "devices": ("devices.allow", "devices.deny"),
    "release_agent": ("release_agent",),
    "notify_on_release": ("notify_on_release",),
    "processes": ("cgroup.procs", "tasks"),
    "subtree": ("cgroup.subtree_control",),
    "freezer": ("freezer.state", "cgroup.freeze", "cgroup.kill"),
    "oom": ("memory.oom_control", "memory.oom.group"),
}.items():
    add(f"cgroup.write:{_name}", _writable, *_files_of)


@case
def new_group() -> Verdict:
    """A directory in each hierarchy."""
    if not os.path.isdir(ROOT):
        return ABSENT
    verdicts = []
    for directory, _, files in os.walk(ROOT):
        if "cgroup.procs" in files:
            path = f"{directory}/escape-{os.getpid()}"
            verdicts.append(attempt(os.mkdir, path))
            if verdicts[-1] == ALLOWED:
                os.rmdir(path)
    if not verdicts:
        return ABSENT
    return ALLOWED if ALLOWED in verdicts else min(verdicts)


def _mount(kind: bytes, data: bytes | None) -> Verdict:
    os.makedirs("/tmp/cgroup", exist_ok=True)
    return attempt(kernel.mount, b"cgroup", b"/tmp/cgroup", kind, 0, data)


for _name, _kind, _data in (
    ("memory", b"cgroup", b"memory"),
    ("devices", b"cgroup", b"devices"),
    ("rdma", b"cgroup", b"rdma"),
    ("named", b"cgroup", b"none,name=escape"),
    ("version2", b"cgroup2", None),
):
    add(f"cgroup.mount:{_name}", _mount, _kind, _data)


@case
def mounted_from_a_user_namespace() -> Verdict:
    kernel.become_root_of_user_namespace("mnt", "cgroup")
    return _mount(b"cgroup", b"memory")


@case
def other_groups_are_visible() -> Verdict:
    """A group that the tests created on the machine, outside of the container's own."""
    name = targets.text("HOST_MARK")
    return ALLOWED if any(name in names for _, names, _ in os.walk(ROOT)) else ABSENT
