"""Whether a node accepts a pod at all (the kubelet's admit handlers): a rejected pod has failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.core.pod.view import every_container
from torchyard.core.scheduling.node_info import host_ports_conflict

_IPC_SYSCTL = "kernel.shm_rmid_forced"
# Sysctls that have an effect in the pod's own namespaces only.
SAFE_SYSCTLS = frozenset(
    (
        _IPC_SYSCTL,
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    )
)


def rejection(pod: Object, others: Iterable[Object] = ()) -> tuple[str, str] | None:
    """Reason and message of a rejection; None if the node accepts the pod. `others` are those that it has accepted."""
    return next(_rejections(pod, others), None)


def _rejections(pod: Object, others: Iterable[Object]) -> Iterator[tuple[str, str]]:
    spec = pod["spec"]
    if any(host_ports_conflict(pod, other) for other in others):
        yield messages.REASON_NODE_PORTS, messages.NODE_PORTS_TAKEN
    for name in sysctls(pod):
        if name not in SAFE_SYSCTLS:
            yield messages.REASON_SYSCTL_FORBIDDEN, messages.sysctl_not_allowed(name)
        elif spec.get("hostIPC" if name == _IPC_SYSCTL else "hostNetwork"):
            namespace = "ipc" if name == _IPC_SYSCTL else "net"
            yield messages.REASON_SYSCTL_FORBIDDEN, messages.sysctl_of_host(name, namespace)
    if (spec.get("os") or {}).get("name") not in (None, "", "linux"):
        yield messages.REASON_OS_NOT_SUPPORTED, messages.OS_NOT_SUPPORTED
    if any(_needs_app_armor(pod, container) for container in every_container(pod)):
        yield messages.REASON_APP_ARMOR, messages.NO_APP_ARMOR


def sysctls(pod: Object) -> dict[str, str]:
    """The sysctls of a pod; slashes in their names become dots, and dots slashes, where a slash comes first."""
    settings = (pod["spec"].get("securityContext") or {}).get("sysctls") or ()
    return {dotted_sysctl(setting["name"]): setting["value"] for setting in settings}


def dotted_sysctl(name: str) -> str:
    """`net/ipv4/conf/eth0.100/x` is `net.ipv4.conf.eth0/100.x`."""
    first = next((letter for letter in name if letter in "./"), ".")
    return name if first == "." else name.translate({ord("/"): ".", ord("."): "/"})


def _needs_app_armor(pod: Object, container: Object) -> bool:
    own = (container.get("securityContext") or {}).get("appArmorProfile")
    profile = own or (pod["spec"].get("securityContext") or {}).get("appArmorProfile") or {}
    return profile.get("type") in ("RuntimeDefault", "Localhost")
