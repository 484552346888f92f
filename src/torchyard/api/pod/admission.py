"""Changes to a pod between defaulting and validation, as pure functions.

The API server passes in what it has looked up (the service account, the priority classes, the limit ranges of the
namespace, a random name). Refusals are 403 errors with the messages of upstream's admission plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torchyard.api import errors, quantity
from torchyard.api.objects import Object
from torchyard.api.pod.token import token_projection
from torchyard.api.pod.validation import MIRROR, all_containers

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path, not a password
TOLERATION_SECONDS = 300
_NOT_READY, _UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def add_default_tolerations(pod: Object) -> None:
    """Keep the pod five minutes on a node that is not ready or unreachable, unless its tolerations say otherwise."""
    spec = pod["spec"]
    tolerations = spec.get("tolerations") or []
    missing = [
        key
        for key in (_NOT_READY, _UNREACHABLE)
        if not (tolerations and any(_tolerates(toleration, key) for toleration in tolerations))
    ]
    if missing:
        added = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
            for key in missing
        ]
        spec["tolerations"] = [*tolerations, *added]


def _tolerates(toleration: Mapping[str, Any], key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def needs_service_account(pod: Object) -> str:
    """Return the service account that `mount_service_account` needs; empty for static pods."""
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return ""
    return pod["spec"].get("serviceAccountName") or "default"


def mount_service_account(pod: Object, account: Object, *, volume_name: str) -> None:
    """Set the service account, copy its image pull secrets, and mount its token into every container.

    `volume_name` is `kube-api-access-` with five random characters. A container that already mounts something at the
    token's path keeps its mount. A pod or an account that disables automounting gets no token.
    """
    spec = pod["spec"]
    name = account["metadata"]["name"]
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [dict(secret) for secret in account["imagePullSecrets"]]
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = account.get("automountServiceAccountToken")
    if automount is False:
        return
    volumes = spec.get("volumes") or []
    known = next((volume["name"] for volume in volumes if str(volume.get("name")).startswith("kube-api-access-")), "")
    mounted = False
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            mounts = container.get("volumeMounts") or []
            if any(mount.get("mountPath") == TOKEN_PATH for mount in mounts):
                continue
            mount = {"name": known or volume_name, "readOnly": True, "mountPath": TOKEN_PATH}
            container["volumeMounts"] = [*mounts, mount]
            mounted = True
    if mounted and not known:
        spec["volumes"] = [*volumes, {"name": volume_name, "projected": token_projection()}]


def check_secret_references(pod: Object, account: Object) -> None:
    """Raise 403 if the account enforces mountable secrets and the pod uses a secret that it does not list."""
    annotations = account["metadata"].get("annotations") or {}
    if annotations.get("kubernetes.io/enforce-mountable-secrets") != "true":
        return
    listed = {secret.get("name") for secret in account.get("secrets") or ()}
    used = {(volume.get("secret") or {}).get("secretName") for volume in pod["spec"].get("volumes") or ()}
    for _, _, container in all_containers(pod["spec"]):
        used |= {
            ((variable.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name")
            for variable in container.get("env") or ()
        }
    for secret in sorted(name for name in used if name and name not in listed):
        why = (
            f'volume with secret.secretName="{secret}" is not allowed because service account '
            f"{account['metadata']['name']} does not reference that secret"
        )
        raise _forbidden(pod, why)


def resolve_priority(pod: Object, classes: Iterable[Object]) -> None:
    """Set priority and preemption policy from the named class, or from the default class, or to zero.

    `classes` are the PriorityClass objects of the cluster. Raises 403 if the class does not exist or if the pod sets a
    priority that differs from that of the class.
    """
    spec = pod["spec"]
    class_name = spec.get("priorityClassName") or ""
    value, policy = 0, "PreemptLowerPriority"
    chosen = None
    if class_name:
        chosen = next(
            (priority_class for priority_class in classes if priority_class["metadata"]["name"] == class_name), None
        )
        if chosen is None:
            raise _forbidden(pod, f"no PriorityClass with name {class_name} was found")
    else:
        defaults = [priority_class for priority_class in classes if priority_class.get("globalDefault")]
        # several defaults can only come from a race; the lowest does the least harm
        chosen = min(defaults, key=lambda priority_class: priority_class.get("value") or 0, default=None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    if chosen is not None:
        value, policy = chosen.get("value") or 0, chosen.get("preemptionPolicy") or policy
    priority = spec.get("priority")
    if priority is not None and priority != value:
        why = (
            f"the integer value of priority ({priority}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise _forbidden(pod, why)
    spec["priority"] = value
    own = spec.get("preemptionPolicy")
    if own and own != policy:
        why = (
            f"the string value of PreemptionPolicy ({own}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise _forbidden(pod, why)
    spec["preemptionPolicy"] = policy


def apply_runtime_class(pod: Object, runtime_class: Object | None) -> None:
    """Apply overhead, node selector and tolerations of the pod's RuntimeClass. Raises 403 if it does not exist."""
    spec = pod["spec"]
    class_name, own_overhead = spec.get("runtimeClassName"), spec.get("overhead")
    if class_name is None and not own_overhead:
        return
    if class_name is not None and runtime_class is None:
        raise _forbidden(pod, f'pod rejected: RuntimeClass "{class_name}" not found')
    runtime_class = runtime_class or {}
    overhead = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    if own_overhead and not overhead:
        raise _forbidden(pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if own_overhead and not _same_amounts(own_overhead, overhead):
        raise _forbidden(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = dict(overhead)
    scheduling = runtime_class.get("scheduling") or {}
    selector = scheduling.get("nodeSelector") or {}
    own = spec.get("nodeSelector") or {}
    if clash := sorted(key for key in selector if key in own and own[key] != selector[key]):
        why = f"conflict: runtimeClass.scheduling.nodeSelector[{clash[0]}] = {selector[clash[0]]}; "
        raise _forbidden(pod, f"{why}pod.spec.nodeSelector[{clash[0]}] = {own[clash[0]]}")
    if selector:
        spec["nodeSelector"] = {**own, **selector}
    added = [
        toleration
        for toleration in scheduling.get("tolerations") or ()
        if toleration not in (spec.get("tolerations") or ())
    ]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def _same_amounts(amounts: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return amounts.keys() == other.keys() and all(quantity.compare(amounts[key], other[key]) == 0 for key in amounts)


def _forbidden(pod: Object, why: str) -> errors.StatusError:
    """Return a 403. If the pod's name is not generated yet, the message has its prefix."""
    metadata = pod["metadata"]
    return errors.forbidden("pods", "", metadata.get("name") or metadata.get("generateName") or "Unknown", why)
