"""What Kueue's webhooks do to jobs: a job with a queue starts suspended, and its labels and annotations are checked.

The pods of a Deployment with a queue are queued one by one.
"""

from __future__ import annotations

from torchyard.api import errors, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.jobset import names as jobset
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import configuration_messages, job_messages, names
from torchyard.api.queue.job_validation import label, validate_job
from torchyard.api.trainjob import names as trainjob
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

KINDS = {
    ("batch", "jobs"): "Job",
    (jobset.GROUP, jobset.PLURAL): jobset.KIND,
    (pytorchjob.GROUP, pytorchjob.PLURAL): pytorchjob.KIND,
    (trainjob.GROUP, trainjob.PLURAL): trainjob.KIND,
    ("", "pods"): "Pod",
}
_DEPLOYMENTS, _STATEFULSETS = ("apps", "deployments"), ("apps", "statefulsets")
RESOURCES = (*(resource for _, resource in KINDS), "deployments", "statefulsets")
# Kueue ignores the queue of these, too; that of their pods and jobs counts.
_WITHOUT_EFFECT = {
    ("apps", "daemonsets"): "DaemonSet",
    ("apps", "replicasets"): "ReplicaSet",
    ("batch", "cronjobs"): "CronJob",
}


def suspend_queued_job(attributes: AdmissionAttributes) -> None:
    """Suspend a new job that has a queue until its workload is admitted."""
    resource = attributes.group, attributes.resource
    if not attributes.is_for(attributes.resource, attributes.group, operations=("CREATE", "UPDATE")):
        return
    obj = attributes.new
    if resource == _DEPLOYMENTS:
        _queue_pods(obj)
    kind = KINDS.get(resource)
    if kind is None:
        return
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


def _queue_pods(deployment: Object) -> None:
    """Give the pods the queue and the class of their Deployment. A template that is no object is left to validation."""
    labels, spec = deployment["metadata"].get("labels") or {}, deployment.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if not labels.get(names.QUEUE_NAME) or not isinstance(template, dict):
        return
    metadata = template.get("metadata")
    if metadata is None:
        metadata = template["metadata"] = {}
    if not isinstance(metadata, dict) or not isinstance(metadata.get("labels") or {}, dict):
        return
    inherited = {name: labels[name] for name in (names.QUEUE_NAME, names.PRIORITY) if name in labels}
    metadata["labels"] = {**(metadata.get("labels") or {}), **inherited}


def check_queue(attributes: AdmissionAttributes) -> None:
    """Reject labels and annotations that Kueue rejects, and changes of those that cannot change while a job runs."""
    resource = attributes.group, attributes.resource
    if not attributes.is_for(attributes.resource, attributes.group, operations=("CREATE", "UPDATE")):
        return
    if resource == _STATEFULSETS:
        _check_stateful_set(attributes)
    kind = "Deployment" if resource == _DEPLOYMENTS else KINDS.get(resource)
    if kind is None or (kind == "Pod" and _is_owned(attributes.new)):
        return
    old = attributes.old
    errs = list(validate_job(kind, attributes.new, old, is_running=old is not None and _is_running(old, kind)))
    if errs:
        raise errors.invalid(kind, attributes.group, attributes.display_name, errs)


def warnings(attributes: AdmissionAttributes) -> list[str]:
    kind = _WITHOUT_EFFECT.get((attributes.group, attributes.resource))
    if kind is None or attributes.obj is None or attributes.subresource:
        return []
    labels, old = (((obj or {}).get("metadata") or {}).get("labels") or {} for obj in (attributes.obj, attributes.old))
    is_new = names.QUEUE_NAME in labels and names.QUEUE_NAME not in old
    return [job_messages.label_without_effect(kind)] if is_new else []


def _check_stateful_set(attributes: AdmissionAttributes) -> None:
    old_labels, labels = (
        (obj or {}).get("metadata", {}).get("labels") or {} for obj in (attributes.old, attributes.new)
    )
    if labels.get(names.QUEUE_NAME, "") != old_labels.get(names.QUEUE_NAME, "") and names.QUEUE_NAME in labels:
        err = field_errors.forbidden(label(names.QUEUE_NAME), configuration_messages.STATEFULSETS_UNSUPPORTED)
        raise _invalid("StatefulSet", attributes, err)


def _check_name(queue: str, kind: str, attributes: AdmissionAttributes) -> None:
    """Reject a placeholder that was copied from a manual; validation rejects other invalid names."""
    if "<" in queue or ">" in queue or "$" in queue:
        detail = job_messages.placeholder_queue(queue, names.user_queue(attributes.namespace))
        raise _invalid(kind, attributes, field_errors.invalid(label(names.QUEUE_NAME), queue, detail))


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
    """Whether it belongs to a job that is queued as a whole. The pods of a ReplicaSet and the jobs of a CronJob are not
    among those."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and _is_job(owner) for owner in owners)


def _is_job(owner: Object) -> bool:
    group = str(owner.get("apiVersion")).rpartition("/")[0]
    return any(owner.get("kind") == kind and group == job_group for (job_group, _), kind in KINDS.items())


def _is_running(obj: Object, kind: str) -> bool:
    if kind == "Deployment":
        return bool((obj.get("status") or {}).get("readyReplicas"))
    spec = obj.get("spec") or {}
    if kind == "Pod":
        return not any(gate["name"] == names.ADMISSION_GATE for gate in spec.get("schedulingGates") or ())
    policy = (spec.get("runPolicy") or {}) if kind == pytorchjob.KIND else spec
    return not policy.get("suspend")


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
