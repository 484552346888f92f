"""The host name of a pod, and its name in the cluster's domain."""

from __future__ import annotations

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages

_MAX_LABEL, _MAX_KERNEL_NAME = 63, 64


def hostname(pod: Object) -> str:
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:_MAX_LABEL].rstrip("-.")


def domain_name(pod: Object, domain: str) -> str:
    """The pod's fully qualified name; empty without a subdomain."""
    subdomain = pod["spec"].get("subdomain")
    return f"{hostname(pod)}.{subdomain}.{pod['metadata']['namespace']}.svc.{domain}" if subdomain else ""


def sandbox_hostname(pod: Object, domain: str) -> str:
    """What `hostname` prints in the pod: with setHostnameAsFQDN the fully qualified name."""
    name = domain_name(pod, domain) if pod["spec"].get("setHostnameAsFQDN") else ""
    if len(name) > _MAX_KERNEL_NAME:
        raise YardError(messages.name_too_long(name, _MAX_KERNEL_NAME), code=messages.REASON_FAILED_SANDBOX)
    return name or hostname(pod)
