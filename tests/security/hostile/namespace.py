"""Namespaces: new ones, and those of the machine."""

from __future__ import annotations

import fcntl
import os

from tests.security.hostile import kernel, targets
from tests.security.hostile.registry import ABSENT, ALLOWED, Verdict, add, attempt, case, denied

KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
NS_GET_USERNS, NS_GET_PARENT = 0xB701, 0xB702


def _clone(kind: str) -> Verdict:
    """clone with the flag: a filter has to look at its argument."""
    pid = kernel.call("clone", kernel.NEW[kind] | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return ALLOWED


for _kind in KINDS:
    add(f"namespace.unshare:{_kind}", attempt, kernel.unshare, _kind)
    add(f"namespace.unshare_with_user:{_kind}", attempt, kernel.unshare, *{"user", _kind})
    if _kind != "time":
        add(f"namespace.clone:{_kind}", _clone, _kind)


@case
def clone3_with_a_user_namespace() -> Verdict:
    """A filter cannot look into clone3's structure, so container runtimes answer ENOSYS."""
    arguments = kernel.NEW["user"].to_bytes(8, "little") + bytes(24) + (17).to_bytes(8, "little") + bytes(24)
    pid = kernel.call("clone3", arguments, len(arguments))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return ALLOWED


def _enter(path: str, kind: str) -> Verdict:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        return denied(error)
    return attempt(kernel.call, "setns", descriptor, kernel.NEW[kind])


for _kind in KINDS:
    add(f"namespace.enter_own:{_kind}", _enter, f"/proc/self/ns/{_kind}", _kind)


@case
def parents_of_the_user_namespace() -> Verdict:
    """The user namespaces above this one, which a descriptor of a namespace can lead to."""
    verdicts = set()
    for kind in ("net", "uts", "ipc", "mnt", "pid", "user"):
        descriptor = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
        for request in (NS_GET_USERNS, NS_GET_PARENT):
            try:
                parent = fcntl.ioctl(descriptor, request)
                kernel.call("setns", parent, 0)
                verdicts.add(f"{ALLOWED}: {kind}")
            except OSError as error:
                verdicts.add(denied(error))
    return ALLOWED if any(verdict.startswith(ALLOWED) for verdict in verdicts) else "denied"


def _is_shared(kind: str) -> Verdict:
    """Whether the pod is in the machine's own namespace; the tests give its number."""
    try:
        own = os.readlink(f"/proc/self/ns/{kind}")
    except FileNotFoundError:
        return ABSENT
    return "the machine's" if own == targets.text(f"HOST_NS_{kind.upper()}") else "its own"


for _kind in KINDS:
    add(f"namespace.of:{_kind}", _is_shared, _kind)


@case
def host_name_changed() -> Verdict:
    name = os.uname().nodename.encode()
    return attempt(kernel.call, "sethostname", name, len(name))


@case
def domain_name_changed() -> Verdict:
    return attempt(kernel.call, "setdomainname", b"(none)", 6)


@case
def whole_id_range_mapped() -> Verdict:
    """A new user namespace may map its creator's id only, not those of others."""
    kernel.unshare("user")
    with open("/proc/self/uid_map", "w") as file:
        file.write("0 0 65536")
    return ALLOWED


@case
def capabilities_in_a_user_namespace_reach_the_network() -> Verdict:
    """Root of a new user namespace must not configure the pod's network."""
    kernel.become_root_of_user_namespace()
    from tests.security.hostile.network import set_link_down

    return attempt(set_link_down, "lo")
