"""The small plugins for pods: Priority, RuntimeClass and DefaultTolerationSeconds."""

from __future__ import annotations

from torchyard.api.pod.admission import add_default_tolerations, apply_runtime_class, resolve_priority
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

SCHEDULING = "scheduling.k8s.io"
NODE = "node.k8s.io"


def set_priority(attributes: AdmissionAttributes) -> None:
    """Priority: resolve a new pod's class to a number, which an update cannot drop."""
    if not attributes.is_for("pods", operations=("CREATE", "UPDATE")):
        return
    if attributes.old is None:
        resolve_priority(attributes.new, attributes.lister.list(SCHEDULING, "priorityclasses"))
        return
    spec, before = attributes.new["spec"], attributes.old["spec"]
    for field in ("priority", "preemptionPolicy"):
        if spec.get(field) is None and before.get(field) is not None:
            spec[field] = before[field]


def check_priority_class(attributes: AdmissionAttributes) -> None:
    """Priority: at most one class is the global default, and system classes cannot be deleted."""
    if attributes.is_for("priorityclasses", SCHEDULING, operations=("DELETE",)):
        if attributes.name.startswith("system-"):
            raise attributes.forbidden_error("this is a system priority class and cannot be deleted")
        return
    if not attributes.is_for("priorityclasses", SCHEDULING, operations=("CREATE", "UPDATE")):
        return
    if not attributes.new.get("globalDefault"):
        return
    for other in attributes.lister.list(SCHEDULING, "priorityclasses"):
        name = other["metadata"]["name"]
        if other.get("globalDefault") and name != attributes.new["metadata"]["name"]:
            raise attributes.forbidden_error(
                f"PriorityClass {name} is already marked as default. Only one default can exist"
            )


def set_runtime_class(attributes: AdmissionAttributes) -> None:
    """RuntimeClass: copy the class's overhead and scheduling constraints to the pod."""
    if not attributes.is_for("pods"):
        return
    name = attributes.new["spec"].get("runtimeClassName")
    runtime_class = attributes.lister.get(NODE, "runtimeclasses", "", name) if name else None
    apply_runtime_class(attributes.new, runtime_class)


def add_tolerations(attributes: AdmissionAttributes) -> None:
    """DefaultTolerationSeconds: a pod stays for five minutes on a node that is not ready or not reachable."""
    if attributes.is_for("pods", operations=("CREATE", "UPDATE")):
        add_default_tolerations(attributes.new)
