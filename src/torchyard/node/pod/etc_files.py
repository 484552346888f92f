"""A pod's `/etc/hosts`, `/etc/resolv.conf` and `/etc/hostname`. Running containers see their changes."""

from __future__ import annotations

import os
from pathlib import Path

from torchyard.api.objects import Object
from torchyard.node.context import NodeContext
from torchyard.node.network import names
from torchyard.node.pod.hostname import domain_name, hostname, sandbox_hostname
from torchyard.node.pod.pod_dir import PodDir

_MACHINE_RESOLV_CONF, _MACHINE_HOSTS = Path("/etc/resolv.conf"), Path("/etc/hosts")


def write(context: NodeContext, pod: Object, pod_dir: PodDir, ip: str) -> None:
    """In place: the files themselves are mounted into the containers."""
    spec, namespace, network = pod["spec"], pod["metadata"]["namespace"], context.settings.network
    own_name, full_name = hostname(pod), domain_name(pod, network.domain)
    if full_name:
        own_name = f"{full_name}\t{own_name}"
    hosts = names.hosts_file(
        context.names(namespace),
        namespace=namespace,
        domain=network.domain,
        own=(ip, own_name),
        aliases=spec.get("hostAliases") or (),
        machine=_read(_MACHINE_HOSTS) if spec.get("hostNetwork") else None,
    )
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    if not context.machine.network or (spec.get("hostNetwork") and policy == "ClusterFirst"):
        policy = "Default"
    resolv_conf = names.resolv_conf(
        namespace=namespace,
        domain=network.domain,
        server=network.dns,
        policy=policy,
        extra=spec.get("dnsConfig") or {},
        machine=_read(_MACHINE_RESOLV_CONF),
    )
    pod_dir.etc.mkdir(parents=True, exist_ok=True)
    own_file = f"{sandbox_hostname(pod, network.domain)}\n"
    for name, text in (("hosts", hosts), ("resolv.conf", resolv_conf), ("hostname", own_file)):
        _write_in_place(pod_dir.etc / name, text.encode())


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _write_in_place(path: Path, content: bytes) -> None:
    """A container may have written anything into the file, of any size."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        if os.fstat(descriptor).st_size == len(content) and os.pread(descriptor, len(content), 0) == content:
            return
        os.fchmod(descriptor, 0o644)
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
