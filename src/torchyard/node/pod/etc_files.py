"""A pod's `/etc/hosts`, `/etc/resolv.conf` and `/etc/hostname`, which its containers see as they change."""

from __future__ import annotations

from pathlib import Path

from torchyard.api.objects import Object
from torchyard.node.context import NodeContext
from torchyard.node.network import names
from torchyard.node.pod.container_config import hostname
from torchyard.node.pod.pod_dir import PodDir

_MACHINES_RESOLVER = Path("/etc/resolv.conf")


def write(context: NodeContext, pod: Object, pod_dir: PodDir, ip: str) -> None:
    """In place: the files are mounted into the containers as they are."""
    spec, namespace, ranges = pod["spec"], pod["metadata"]["namespace"], context.settings.ranges
    own = hostname(pod)
    if spec.get("subdomain"):
        own = f"{own}.{spec['subdomain']}.{namespace}.svc.{ranges.domain}\t{own}"
    hosts = names.hosts_file(
        context.names(), namespace=namespace, domain=ranges.domain, own=(ip, own), aliases=spec.get("hostAliases") or ()
    )
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    if not context.machine.network or (spec.get("hostNetwork") and policy == "ClusterFirst"):
        policy = "Default"
    resolver = names.resolver_file(
        namespace=namespace,
        domain=ranges.domain,
        server=ranges.dns,
        policy=policy,
        extra=spec.get("dnsConfig") or {},
        machine=_MACHINES_RESOLVER.read_text() if _MACHINES_RESOLVER.exists() else "",
    )
    pod_dir.etc.mkdir(parents=True, exist_ok=True)
    for name, text in (("hosts", hosts), ("resolv.conf", resolver), ("hostname", f"{hostname(pod)}\n")):
        path = pod_dir.etc / name
        if not path.exists() or path.read_text() != text:
            with path.open("r+" if path.exists() else "w") as file:
                file.write(text)
                file.truncate()
