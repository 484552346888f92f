"""Small rules for pods: Priority, RuntimeClass and DefaultTolerationSeconds."""

from __future__ import annotations

from torchyard.api import quantity
from torchyard.apiserver.access.admission.attributes import Attributes
from torchyard.apiserver.access.lookup import Object

SCHEDULING = "scheduling.k8s.io"
NODE = "node.k8s.io"
PREEMPT = "PreemptLowerPriority"
TOLERATION_SECONDS = 300
NODE_TROUBLES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def set_priority(attributes: Attributes) -> None:
    """Priority: a pod's class becomes a number."""
    if not attributes.is_for("pods", operations=("CREATE", "UPDATE")):
        return
    spec = attributes.new["spec"]
    if attributes.old is not None:
        for field in ("priority", "preemptionPolicy"):
            if spec.get(field) is None and attributes.old["spec"].get(field) is not None:
                spec[field] = attributes.old["spec"][field]
        return
    name = spec.get("priorityClassName")
    if name:
        found = attributes.lookup.get(SCHEDULING, "priorityclasses", "", name)
        if found is None:
            raise attributes.refusal(f"no PriorityClass with name {name} was found")
    else:
        found = _default_priority(attributes)
        if found["metadata"]["name"]:
            spec["priorityClassName"] = found["metadata"]["name"]
    value, policy = found.get("value") or 0, found.get("preemptionPolicy") or PREEMPT
    _set(attributes, "priority", value, "the integer value of priority")
    _set(attributes, "preemptionPolicy", policy, "the string value of PreemptionPolicy")


def _set(attributes: Attributes, field: str, value: int | str, what: str) -> None:
    spec = attributes.new["spec"]
    said = spec.get(field)
    if said is not None and said != value:
        raise attributes.refusal(
            f"{what} ({said}) must not be provided in pod spec; priority admission controller computed {value}"
            " from the given PriorityClass name"
        )
    spec[field] = value


def _default_priority(attributes: Attributes) -> Object:
    defaults = [one for one in attributes.lookup.list(SCHEDULING, "priorityclasses") if one.get("globalDefault")]
    # There can be several for a moment; the lowest is the safest.
    return min(defaults, key=lambda one: int(one.get("value") or 0), default={"metadata": {"name": ""}})


def check_priority_class(attributes: Attributes) -> None:
    """Priority: at most one class is the default, and the system's own stay."""
    if attributes.is_for("priorityclasses", SCHEDULING, operations=("DELETE",)):
        if attributes.name.startswith("system-"):
            raise attributes.refusal("this is a system priority class and cannot be deleted")
        return
    if not attributes.is_for("priorityclasses", SCHEDULING, operations=("CREATE", "UPDATE")):
        return
    if not attributes.new.get("globalDefault"):
        return
    for other in attributes.lookup.list(SCHEDULING, "priorityclasses"):
        name = other["metadata"]["name"]
        if other.get("globalDefault") and name != attributes.new["metadata"]["name"]:
            raise attributes.refusal(f"PriorityClass {name} is already marked as default. Only one default can exist")


def use_runtime_class(attributes: Attributes) -> None:
    """RuntimeClass: its overhead and its wishes for nodes become the pod's."""
    if not attributes.is_for("pods"):
        return
    spec = attributes.new["spec"]
    name = spec.get("runtimeClassName")
    found = _runtime_class(attributes, name) if name else {}
    overhead = (found.get("overhead") or {}).get("podFixed")
    said = spec.get("overhead")
    if said and not overhead:
        raise attributes.refusal("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    if said and not _same_amounts(said, overhead or {}):
        raise attributes.refusal("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = dict(overhead)
    scheduling = found.get("scheduling") or {}
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = _merged_selector(attributes, scheduling["nodeSelector"], spec.get("nodeSelector") or {})
    for toleration in scheduling.get("tolerations") or ():
        if toleration not in spec.setdefault("tolerations", []):
            spec["tolerations"].append(dict(toleration))


def _runtime_class(attributes: Attributes, name: str) -> Object:
    found = attributes.lookup.get(NODE, "runtimeclasses", "", name)
    if found is None:
        raise attributes.refusal(f'pod rejected: RuntimeClass "{name}" not found')
    return found


def _same_amounts(one: Object, other: Object) -> bool:
    return one.keys() == other.keys() and all(quantity.compare(one[key], other[key]) == 0 for key in one)


def _merged_selector(attributes: Attributes, wanted: dict[str, str], said: dict[str, str]) -> dict[str, str]:
    for key, value in wanted.items():
        if said.get(key, value) != value:
            raise attributes.refusal(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] ="
                f" {said[key]}"
            )
    return {**wanted, **said}


def tolerate_troubles(attributes: Attributes) -> None:
    """DefaultTolerationSeconds: a pod stays for five minutes on a node that is not ready or not reachable."""
    if not attributes.is_for("pods", operations=("CREATE", "UPDATE")):
        return
    spec = attributes.new["spec"]
    tolerations = spec.get("tolerations") or []
    missing = [key for key in NODE_TROUBLES if not any(_tolerates(one, key) for one in tolerations)]
    if missing:
        spec["tolerations"] = [
            *tolerations,
            *(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
                for key in missing
            ),
        ]


def _tolerates(toleration: Object, key: str) -> bool:
    return (toleration.get("key") or key) == key and (toleration.get("effect") or "NoExecute") == "NoExecute"
