"""What Kueue's webhooks do: a job with a queue starts suspended, and can change its queue only while suspended."""

from __future__ import annotations

from torchyard.api import errors, field_errors
from torchyard.api import names as any_names
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import messages, names
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

KINDS = {("batch", "jobs"): "Job", (pytorchjob.GROUP, pytorchjob.PLURAL): pytorchjob.KIND, ("", "pods"): "Pod"}
RESOURCES = tuple(resource for _, resource in KINDS)
_LABEL = f"metadata.labels[{names.QUEUE_NAME}]"


def suspend_queued_job(attributes: AdmissionAttributes) -> None:
    """Suspend a new job that has a queue; Kueue's admission starts it."""
    kind = KINDS.get((attributes.group, attributes.resource))
    if kind is None or not attributes.is_for(attributes.resource, attributes.group, operations=("CREATE", "UPDATE")):
        return
    obj = attributes.new
    queue = (obj["metadata"].get("labels") or {}).get(names.QUEUE_NAME)
    if queue is not None:
        _check_name(queue, kind, attributes)
    if attributes.operation != "CREATE" or _is_owned(obj):
        return
    if queue is None and kind != "Pod" and _default_queue(attributes):
        queue = names.DEFAULT_QUEUE
        obj["metadata"].setdefault("labels", {})[names.QUEUE_NAME] = queue
    if not queue:
        return
    _check_elastic(obj, kind, attributes)
    if kind == "Pod":
        obj["metadata"].setdefault("labels", {})[names.MANAGED] = "true"
        _gate(obj, names.ADMISSION_GATE)
    elif kind == "Job":
        obj["spec"]["suspend"] = True
        if (obj["metadata"].get("annotations") or {}).get(names.ELASTIC) == "true":
            _gate(obj["spec"]["template"], names.ELASTIC)
    else:
        obj["spec"].setdefault("runPolicy", {})["suspend"] = True


def check_queue(attributes: AdmissionAttributes) -> None:
    """A job that is not suspended cannot change its queue."""
    kind = KINDS.get((attributes.group, attributes.resource))
    if kind is None or attributes.old is None or attributes.subresource or attributes.operation != "UPDATE":
        return
    before, after = (
        (obj["metadata"].get("labels") or {}).get(names.QUEUE_NAME) for obj in (attributes.old, attributes.new)
    )
    if before == after or kind == "Pod" or _is_suspended(attributes.old, kind):
        return
    reason = f"{any_names.IMMUTABLE} while the job is not suspended"
    raise errors.invalid(kind, attributes.group, attributes.display_name, [field_errors.invalid(_LABEL, after, reason)])


def _check_name(queue: str, kind: str, attributes: AdmissionAttributes) -> None:
    """Reject a placeholder copied from documentation; the server validates every other queue name."""
    if "<" in queue or ">" in queue or "$" in queue:
        reason = messages.placeholder(queue, names.user_queue(attributes.namespace))
        raise errors.invalid(
            kind, attributes.group, attributes.display_name, [field_errors.invalid(_LABEL, queue, reason)]
        )


def _check_elastic(obj: Object, kind: str, attributes: AdmissionAttributes) -> None:
    """Only batch Jobs without a minimum parallelism can be resized while they run."""
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get(names.ELASTIC) != "true" or kind == "Pod":
        return
    reason = ""
    if kind != "Job":
        reason = "is for batch Jobs; a PyTorchJob starts with what fits from its elasticPolicy.minReplicas on"
    elif names.MIN_PARALLELISM in annotations:
        reason = f"excludes {names.MIN_PARALLELISM}: leave one of the two out"
    if reason:
        field = f"metadata.annotations[{names.ELASTIC}]"
        raise errors.invalid(
            kind, attributes.group, attributes.display_name, [field_errors.invalid(field, "true", reason)]
        )


def _is_owned(obj: Object) -> bool:
    """Whether a controller owns this object; then the owner handles the queue."""
    return any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or ())


def _is_suspended(obj: Object, kind: str) -> bool:
    spec = obj.get("spec") or {}
    return bool(spec.get("suspend") if kind == "Job" else (spec.get("runPolicy") or {}).get("suspend"))


def _default_queue(attributes: AdmissionAttributes) -> bool:
    """Whether jobs without a queue go to `default`: it exists, and the plane did not create it by itself."""
    queue = attributes.lister.get(names.GROUP, names.LOCAL_QUEUE.plural, attributes.namespace, names.DEFAULT_QUEUE)
    return queue is not None and names.LOCAL not in (queue["metadata"].get("labels") or {})


def _gate(pod: Object, name: str) -> None:
    gates = pod["spec"].setdefault("schedulingGates", [])
    if not any(gate["name"] == name for gate in gates):
        gates.append({"name": name})
