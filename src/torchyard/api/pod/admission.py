"""What a server does to a pod between its defaults and its validation, as pure functions.

The server brings what only it can look up (the service account, the priority classes, the limit ranges of the
namespace, a random name); these functions decide. Refusals are 403s with the real admission plugins' words.
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
    """A pod stays five minutes on a node that stopped answering, unless it says for how long."""
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
    """The name of the service account to look up before `mount_service_account`; empty for static pods."""
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return ""
    return pod["spec"].get("serviceAccountName") or "default"


def mount_service_account(pod: Object, account: Object, *, volume_name: str) -> None:
    """Name the account, take over its image pull secrets, and mount its token into every container.

    `volume_name` is `kube-api-access-` and five random letters. A container that mounts something at the token's path
    keeps it; a pod or an account that switches the token off gets none.
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
    """An account marked so lets its pods use only the secrets it lists. Raises 403."""
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
        raise _refused(pod, why)


def resolve_priority(pod: Object, classes: Iterable[Object]) -> None:
    """Set priority and preemption policy from the named class, else from the default class, else to zero.

    `classes` are the PriorityClass objects of the cluster. Raises 403 for a class that does not exist and for a
    priority that is not the class's.
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
            raise _refused(pod, f"no PriorityClass with name {class_name} was found")
    else:
        defaults = [priority_class for priority_class in classes if priority_class.get("globalDefault")]
        # several defaults can only come from a race; the lowest is the harmless one
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
        raise _refused(pod, why)
    spec["priority"] = value
    own = spec.get("preemptionPolicy")
    if own and own != policy:
        why = (
            f"the string value of PreemptionPolicy ({own}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise _refused(pod, why)
    spec["preemptionPolicy"] = policy


def apply_runtime_class(pod: Object, runtime_class: Object | None) -> None:
    """Take over overhead, node selector and tolerations of the pod's runtime class. Raises 403 where it is missing."""
    spec = pod["spec"]
    class_name, own_overhead = spec.get("runtimeClassName"), spec.get("overhead")
    if class_name is None and not own_overhead:
        return
    if class_name is not None and runtime_class is None:
        raise _refused(pod, f'pod rejected: RuntimeClass "{class_name}" not found')
    runtime_class = runtime_class or {}
    overhead = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    if own_overhead and not overhead:
        raise _refused(pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if own_overhead and not _same_amounts(own_overhead, overhead):
        raise _refused(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = dict(overhead)
    scheduling = runtime_class.get("scheduling") or {}
    selector = scheduling.get("nodeSelector") or {}
    own = spec.get("nodeSelector") or {}
    if clash := sorted(key for key in selector if key in own and own[key] != selector[key]):
        why = f"conflict: runtimeClass.scheduling.nodeSelector[{clash[0]}] = {selector[clash[0]]}; "
        raise _refused(pod, f"{why}pod.spec.nodeSelector[{clash[0]}] = {own[clash[0]]}")
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


def _refused(pod: Object, why: str) -> errors.StatusError:
    """A refusal before the pod has its name tells the beginning of it."""
    metadata = pod["metadata"]
    return errors.forbidden("pods", "", metadata.get("name") or metadata.get("generateName") or "Unknown", why)
