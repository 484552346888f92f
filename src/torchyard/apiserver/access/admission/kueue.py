"""Queues: what Kueue's webhooks do to jobs. One with a queue starts suspended, and changes it only while it is."""

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
    """A new job with a queue waits until it is admitted."""
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
    """A job that runs stays in its queue."""
    kind = KINDS.get((attributes.group, attributes.resource))
    if kind is None or attributes.old is None or attributes.subresource or attributes.operation != "UPDATE":
        return
    before, after = (
        (one["metadata"].get("labels") or {}).get(names.QUEUE_NAME) for one in (attributes.old, attributes.new)
    )
    if before == after or kind == "Pod" or _is_suspended(attributes.old, kind):
        return
    said = f"{any_names.IMMUTABLE} while the job is not suspended"
    raise errors.invalid(kind, attributes.group, attributes.display_name, [field_errors.invalid(_LABEL, after, said)])


def _check_name(queue: str, kind: str, attributes: AdmissionAttributes) -> None:
    """A placeholder copied from a manual is told as such; other names that cannot be are told by the server."""
    if "<" in queue or ">" in queue or "$" in queue:
        said = messages.placeholder(queue, names.user_queue(attributes.namespace))
        raise errors.invalid(
            kind, attributes.group, attributes.display_name, [field_errors.invalid(_LABEL, queue, said)]
        )


def _check_elastic(obj: Object, kind: str, attributes: AdmissionAttributes) -> None:
    """Which jobs may change their size while they run."""
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get(names.ELASTIC) != "true" or kind == "Pod":
        return
    said = ""
    if kind != "Job":
        said = "is for batch Jobs; a PyTorchJob starts with what fits from its elasticPolicy.minReplicas on"
    elif names.MIN_PARALLELISM in annotations:
        said = f"excludes {names.MIN_PARALLELISM}: leave one of the two out"
    if said:
        field = f"metadata.annotations[{names.ELASTIC}]"
        raise errors.invalid(
            kind, attributes.group, attributes.display_name, [field_errors.invalid(field, "true", said)]
        )


def _is_owned(obj: Object) -> bool:
    """Whether the queue is the business of whoever made this."""
    return any(one.get("controller") for one in obj["metadata"].get("ownerReferences") or ())


def _is_suspended(obj: Object, kind: str) -> bool:
    spec = obj.get("spec") or {}
    return bool(spec.get("suspend") if kind == "Job" else (spec.get("runPolicy") or {}).get("suspend"))


def _default_queue(attributes: AdmissionAttributes) -> bool:
    """Jobs without a queue go to `default` where somebody made one; the plane's own takes only those that ask."""
    found = attributes.lister.get(names.GROUP, names.LOCAL_QUEUE.plural, attributes.namespace, names.DEFAULT_QUEUE)
    return found is not None and names.LOCAL not in (found["metadata"].get("labels") or {})


def _gate(pod: Object, name: str) -> None:
    gates = pod["spec"].setdefault("schedulingGates", [])
    if not any(one["name"] == name for one in gates):
        gates.append({"name": name})
