"""What Kueue's webhooks do to jobs: a job with a queue starts suspended, and changes its queue only while suspended."""

from __future__ import annotations

from torchyard.api import errors, field_errors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.jobset import names as jobset
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import configuration_messages, job_messages, names
from torchyard.api.trainjob import names as trainjob
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

KINDS = {
    ("batch", "jobs"): "Job",
    (jobset.GROUP, jobset.PLURAL): jobset.KIND,
    (pytorchjob.GROUP, pytorchjob.PLURAL): pytorchjob.KIND,
    (trainjob.GROUP, trainjob.PLURAL): trainjob.KIND,
    ("", "pods"): "Pod",
}
RESOURCES = tuple(resource for _, resource in KINDS)
_LABEL = f"metadata.labels[{names.QUEUE_NAME}]"


def suspend_queued_job(attributes: AdmissionAttributes) -> None:
    """Suspend a new job that has a queue until its workload is admitted."""
    kind = KINDS.get((attributes.group, attributes.resource))
    if kind is None or not attributes.is_for(attributes.resource, attributes.group, operations=("CREATE", "UPDATE")):
        return
    obj = attributes.new
    queue = (obj["metadata"].get("labels") or {}).get(names.QUEUE_NAME)
    if queue is not None:
        _check_name(queue, kind, attributes)
    if attributes.operation != "CREATE" or _is_owned(obj):
        return
    if queue is None and kind != "Pod" and _has_default_queue(attributes):
        queue = names.DEFAULT_QUEUE
        obj["metadata"].setdefault("labels", {})[names.QUEUE_NAME] = queue
    if not queue:
        return
    _check_elastic(obj, kind, attributes)
    _check_manager(obj, kind, attributes)
    if kind == "Pod":
        obj["metadata"].setdefault("labels", {})[names.MANAGED] = "true"
        _add_gate(obj, names.ADMISSION_GATE)
    elif isinstance(spec := obj.get("spec"), dict):  # without a spec, validation rejects it
        _suspend(obj, spec, kind)


def _suspend(obj: Object, spec: Object, kind: str) -> None:
    if kind == "Job":
        spec["suspend"] = True
        is_elastic = (obj["metadata"].get("annotations") or {}).get(names.ELASTIC) == "true"
        if is_elastic and isinstance(spec.get("template"), dict):
            _add_gate(spec["template"], names.ELASTIC)
    elif kind in (jobset.KIND, trainjob.KIND):
        spec["suspend"] = True
        if kind == trainjob.KIND:
            _add_patch(spec)
    elif spec.get("runPolicy") is None:
        spec["runPolicy"] = {"suspend": True}
    elif isinstance(spec["runPolicy"], dict):
        spec["runPolicy"]["suspend"] = True


def _add_patch(spec: Object) -> None:
    """The patch that an admission fills, empty until then. Values of wrong types are left to the schema."""
    patches = spec.setdefault("runtimePatches", [])
    if isinstance(patches, list) and not any(
        isinstance(patch, dict) and patch.get("manager") == names.PATCH_MANAGER for patch in patches
    ):
        patches.append({"manager": names.PATCH_MANAGER})


def check_queue(attributes: AdmissionAttributes) -> None:
    """Reject a change of the queue of a running job."""
    kind = KINDS.get((attributes.group, attributes.resource))
    if kind is None or attributes.old is None or attributes.subresource or attributes.operation != "UPDATE":
        return
    before, after = (
        (obj["metadata"].get("labels") or {}).get(names.QUEUE_NAME) for obj in (attributes.old, attributes.new)
    )
    if before == after or kind == "Pod" or _is_suspended(attributes.old, kind):
        return
    detail = f"{any_names.IMMUTABLE} {job_messages.IMMUTABLE_WHILE_RUNNING}"
    raise _invalid(kind, attributes, field_errors.invalid(_LABEL, after, detail))


def _check_name(queue: str, kind: str, attributes: AdmissionAttributes) -> None:
    """Reject a placeholder that was copied from a manual; validation rejects other invalid names."""
    if "<" in queue or ">" in queue or "$" in queue:
        detail = job_messages.placeholder_queue(queue, names.user_queue(attributes.namespace))
        raise _invalid(kind, attributes, field_errors.invalid(_LABEL, queue, detail))


def _check_elastic(obj: Object, kind: str, attributes: AdmissionAttributes) -> None:
    """Reject the annotation for elastic jobs on jobs that cannot be elastic."""
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get(names.ELASTIC) != "true" or kind == "Pod":
        return
    detail = ""
    if kind != "Job":
        detail = job_messages.ELASTIC_ONLY_BATCH_JOBS
    elif names.MIN_PARALLELISM in annotations:
        detail = job_messages.ELASTIC_EXCLUDES_MIN_PARALLELISM
    if detail:
        field = f"metadata.annotations[{names.ELASTIC}]"
        raise _invalid(kind, attributes, field_errors.invalid(field, "true", detail))


def _check_manager(obj: Object, kind: str, attributes: AdmissionAttributes) -> None:
    """Reject a job that MultiKueue would run on another cluster: here it would wait for ever."""
    spec, field = obj.get("spec"), "spec.managedBy"
    if kind == pytorchjob.KIND and isinstance(spec, dict):
        spec, field = spec.get("runPolicy"), "spec.runPolicy.managedBy"
    if isinstance(spec, dict) and spec.get("managedBy") == names.MULTIKUEUE:
        err = field_errors.forbidden(field, configuration_messages.MULTIKUEUE_JOB_UNSUPPORTED)
        raise _invalid(kind, attributes, err)


def _invalid(kind: str, attributes: AdmissionAttributes, err: FieldError) -> errors.StatusError:
    return errors.invalid(kind, attributes.group, attributes.display_name, [err])


def _is_owned(obj: Object) -> bool:
    """Whether another object controls it: then the queue is set on that one."""
    return any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or ())


def _is_suspended(obj: Object, kind: str) -> bool:
    spec = obj.get("spec") or {}
    policy = (spec.get("runPolicy") or {}) if kind == pytorchjob.KIND else spec
    return bool(policy.get("suspend"))


def _has_default_queue(attributes: AdmissionAttributes) -> bool:
    """Whether a user created a queue `default`, which takes jobs without a queue. The plane's own takes none."""
    queue = attributes.lister.get(names.GROUP, names.LOCAL_QUEUE.plural, attributes.namespace, names.DEFAULT_QUEUE)
    return queue is not None and names.LOCAL not in (queue["metadata"].get("labels") or {})


def _add_gate(pod: Object, name: str) -> None:
    spec = pod.get("spec")
    if spec is None:
        return  # validation rejects it
    gates = spec["schedulingGates"] = spec.get("schedulingGates") or []
    if not any(gate["name"] == name for gate in gates):
        gates.append({"name": name})
