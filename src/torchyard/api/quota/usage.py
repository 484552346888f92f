"""The usage that an object adds to a ResourceQuota. Follows upstream's quota evaluators."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from torchyard.api import quantity
from torchyard.api.errors import qualified_resource
from torchyard.api.objects import Object
from torchyard.api.pod.totals import Amounts, add, pod_total
from torchyard.api.quantity import Quantity
from torchyard.api.quota.scopes import counts
from torchyard.api.times import shift
from torchyard.api.volume.admission import CLASS_ANNOTATION

ONE = Quantity.of(1)
# Kinds that have a resource name of their own in addition to count/<resource>.
_PLAIN = {"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets"}
_PLAIN |= {"services"}
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
# Resources that every container must specify if a quota limits them.
_REQUIRED_RESOURCES = {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}


def usage_of(group: str, resource: str, obj: Object, now: datetime) -> Amounts:
    """Return the usage of one object."""
    used: Amounts = {f"count/{qualified_resource(resource, group)}": ONE}
    if group:
        return used
    if resource == "pods":
        if _holds_resources(obj, now):
            used |= _pod_usage(obj.get("spec") or {})
        return used
    if resource in _PLAIN:
        used[resource] = ONE
    if resource == "services":
        used |= _service_usage(obj.get("spec") or {})
    elif resource == "persistentvolumeclaims":
        used |= _claim_usage(obj)
    return used


def total_usage(quota_spec: Object, group: str, resource: str, objects: Iterable[Object], *, now: datetime) -> Amounts:
    """Return the total usage of those objects of one resource that a quota counts."""
    total: Amounts = {}
    for obj in objects:
        if counts(quota_spec, resource, obj):
            add(total, usage_of(group, resource, obj, now))
    return total


def _holds_resources(pod: Object, now: datetime) -> bool:
    """Whether the pod uses resources. Finished pods, and pods past their grace period, do not."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    metadata = pod["metadata"]
    ends, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if ends is None or grace is None:
        return True
    return now <= shift(datetime.fromisoformat(ends), grace)


def _pod_usage(spec: Object) -> Amounts:
    return {"pods": ONE, **_compute_usage(pod_total(spec, "requests"), pod_total(spec, "limits"))}


def _compute_usage(requests: Amounts, limits: Amounts) -> Amounts:
    used: Amounts = {}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            used[name] = amount
        used[f"requests.{name}"] = amount
    for name in _COMPUTE:
        if name in limits:
            used[f"limits.{name}"] = limits[name]
    return used


def _service_usage(spec: Object) -> Amounts:
    ports = spec.get("ports") or ()
    match spec.get("type"):
        case "NodePort":
            return {"services.nodeports": Quantity.of(len(ports))}
        case "LoadBalancer":
            allocated = ports if spec.get("allocateLoadBalancerNodePorts") is not False else ()
            with_node_port = [port for port in ports if port.get("nodePort")]
            return {
                "services.nodeports": Quantity.of(len(allocated) or len(with_node_port)),
                "services.loadbalancers": ONE,
            }
    return {}


def _claim_usage(claim: Object) -> Amounts:
    spec = claim.get("spec") or {}
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    # A claim that got more than it requested counts with what it got.
    allocated = (((claim.get("status") or {}).get("allocatedResources")) or {}).get("storage")
    amounts = [quantity.parse(text) for text in (size, allocated) if text is not None]
    name = (claim["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION) or spec.get("storageClassName")
    by_class = f"{name}.storageclass.storage.k8s.io/" if name else ""
    used: Amounts = {}
    if amounts:
        used["requests.storage"] = max(amounts)
    if by_class:
        used[f"{by_class}persistentvolumeclaims"] = ONE
        if amounts:
            used[f"{by_class}requests.storage"] = max(amounts)
    return used


def missing_resources(spec: Object, limited: set[str]) -> str:
    """Return the limited resources that containers do not specify: `cpu for: a,b; memory for: a`."""
    demanded = limited & _REQUIRED_RESOURCES
    missing: dict[str, set[str]] = {}
    if spec.get("resources"):
        specified = _compute_usage(pod_total(spec, "requests"), pod_total(spec, "limits"))
        demanded -= specified.keys()
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        alone = {"containers": [container]}
        specified = _compute_usage(pod_total(alone, "requests"), pod_total(alone, "limits"))
        for name in demanded - specified.keys():
            missing.setdefault(name, set()).add(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))
