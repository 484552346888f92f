"""The pods that run the hostile program: one per security context, each with the cases that it may change."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.objects import Object

# Topics whose verdicts depend on capabilities, users and the seccomp filter.
PRIVILEGES = (
    "capability", "cgroup", "device", "mount", "namespace", "process", "syscalls", "ipc.key", "ipc.session", "ipc.user",
    "proc.sysctl", "proc.trigger", "proc.no_", "proc.oom", "sysfs.no_", "network.interface", "network.address_added",
    "network.route_added", "network.low_port", "network.promiscuous", "network.filter", "network.forced",
)  # fmt: skip
# Changes of mounts and of what the whole container sees are tried on a copy of its mounts.
OWN_MOUNTS: Object = {"ESCAPE_OWN_MOUNTS": "1"}
RUNTIME_DEFAULT: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
NON_ROOT: Object = {"runAsUser": 1000, "runAsGroup": 1000}


@dataclass(frozen=True)
class SecurityCase:
    """`pod` and `container` are merged into their specs; without `cases` (prefixes), all are run."""

    security: Object = field(default_factory=dict)  # of the container
    pod_security: Object = field(default_factory=lambda: dict(RUNTIME_DEFAULT))
    pod: Object = field(default_factory=dict)
    container: Object = field(default_factory=dict)
    cases: tuple[str, ...] = ()
    env: Object = field(default_factory=dict)
    set_user_id: bool = False  # an init container leaves a program with the set-user-id bit


CONTEXTS: dict[str, SecurityCase] = {
    "default": SecurityCase(),
    "non-root": SecurityCase(NON_ROOT, set_user_id=True),
    "no-escalation": SecurityCase({**NON_ROOT, "allowPrivilegeEscalation": False}, cases=PRIVILEGES, set_user_id=True),
    "drop-all": SecurityCase({"capabilities": {"drop": ["ALL"]}}, cases=(*PRIVILEGES, "sweep")),
    "restricted": SecurityCase(
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        {**RUNTIME_DEFAULT, **NON_ROOT, "runAsNonRoot": True},
        cases=PRIVILEGES,
    ),
    "unconfined": SecurityCase(pod_security={"seccompProfile": {"type": "Unconfined"}}),
    "limited": SecurityCase(
        container={"resources": {"limits": {"memory": "512Mi", "cpu": "1"}}}, cases=("cgroup", "sysfs")
    ),
    "read-only": SecurityCase({"readOnlyRootFilesystem": True}, cases=("mount", "device", "proc.no_", "cgroup")),
    "net-admin": SecurityCase({"capabilities": {"add": ["NET_ADMIN"]}}, cases=PRIVILEGES),
    "sys-ptrace": SecurityCase({"capabilities": {"add": ["SYS_PTRACE"]}}, cases=PRIVILEGES),
    "sys-admin": SecurityCase({"capabilities": {"add": ["SYS_ADMIN"]}}, cases=(*PRIVILEGES, "sweep"), env=OWN_MOUNTS),
    "all-capabilities": SecurityCase({"capabilities": {"add": ["ALL"]}}, cases=(*PRIVILEGES, "sweep"), env=OWN_MOUNTS),
    "privileged": SecurityCase({"privileged": True}, cases=PRIVILEGES, env=OWN_MOUNTS),
    "host-network": SecurityCase(pod={"hostNetwork": True}),
    "host-pid": SecurityCase(pod={"hostPID": True}, cases=("proc", "process", "namespace", "inheritance", "cgroup")),
    "host-ipc": SecurityCase(pod={"hostIPC": True}, cases=("ipc", "namespace", "device", "proc.sysctl", "proc.no_")),
    "shared-processes": SecurityCase(
        pod={"shareProcessNamespace": True}, cases=("proc", "process", "namespace", "inheritance")
    ),
}
