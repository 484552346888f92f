"""Fields of Kueue that the queues here do not have: topologies, MultiKueue, ProvisioningRequests and previews.

They are refused rather than ignored, so that nothing waits for a controller that does not exist, and no pod starts
elsewhere than its author requires.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.queue import configuration_messages, names

# Names of labels of pods. Kueue sets them without a topology, too.
_LABEL_FIELDS = frozenset({"podIndexLabel", "subGroupIndexLabel", "subGroupCount"})
TOPOLOGY_ANNOTATIONS = tuple(
    f"kueue.x-k8s.io/podset-{kind}"
    for kind in (
        "required-topology",
        "preferred-topology",
        "unconstrained-topology",
        "slice-required-topology",
        "slice-required-topology-constraints",
        "slice-size",
        "group-name",
    )
)
_CHECK_CONTROLLERS = {
    names.MULTIKUEUE: configuration_messages.MULTIKUEUE_UNSUPPORTED,
    "kueue.x-k8s.io/provisioning-request": configuration_messages.PROVISIONING_REQUESTS_UNSUPPORTED,
}


def unsupported_in_flavor(spec: Object) -> Iterator[FieldError]:
    if spec.get("topologyName"):
        yield field_errors.forbidden("spec.topologyName", configuration_messages.TOPOLOGIES_UNSUPPORTED)


def unsupported_in_cluster_queue(spec: Object) -> Iterator[FieldError]:
    if spec.get("concurrentAdmissionPolicy") is not None:
        yield field_errors.forbidden(
            "spec.concurrentAdmissionPolicy", configuration_messages.CONCURRENT_ADMISSION_UNSUPPORTED
        )


def unsupported_in_check(spec: Object) -> Iterator[FieldError]:
    why = _CHECK_CONTROLLERS.get(spec.get("controllerName") or "")
    if why is not None:
        yield field_errors.forbidden("spec.controllerName", why)


def unsupported_in_workload(obj: Object) -> Iterator[FieldError]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if spec.get("preemptionGates"):
        yield field_errors.forbidden("spec.preemptionGates", configuration_messages.MULTIKUEUE_UNSUPPORTED)
    for index, pod_set in enumerate(spec.get("podSets") or ()):
        path = f"spec.podSets[{index}]"
        for field in sorted((pod_set.get("topologyRequest") or {}).keys() - _LABEL_FIELDS):
            yield field_errors.forbidden(
                f"{path}.topologyRequest.{field}", configuration_messages.TOPOLOGIES_UNSUPPORTED
            )
        annotations = ((pod_set.get("template") or {}).get("metadata") or {}).get("annotations") or {}
        for name in TOPOLOGY_ANNOTATIONS:
            if name in annotations:
                field = f"{path}.template.metadata.annotations[{name}]"
                yield field_errors.forbidden(field, configuration_messages.TOPOLOGIES_UNSUPPORTED)
    for index, assignment in enumerate((status.get("admission") or {}).get("podSetAssignments") or ()):
        for field in ("topologyAssignment", "delayedTopologyRequest"):
            if assignment.get(field) is not None:
                path = f"status.admission.podSetAssignments[{index}].{field}"
                yield field_errors.forbidden(path, configuration_messages.TOPOLOGIES_UNSUPPORTED)
