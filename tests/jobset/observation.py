"""What can be seen of a JobSet: its status, its children and events, without what differs between two runs."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

Object = dict[str, Any]
_PREFIX = "jobset.sigs.k8s.io/"
_JOB_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
_POD_DEFAULTS = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_DEFAULTS = ("imagePullPolicy", "resources", "terminationMessagePath", "terminationMessagePolicy")
_JOB_DEFAULTS = {"manualSelector": False, "podReplacementPolicy": "TerminatingOrFailed"}
_denied = re.compile(r'^admission webhook "[^"]*" denied the request: ')
# A message shows the replicated jobs as Go writes them or as they were sent.
_jobs_shown = re.compile(r"spec\.replicatedJobs: Invalid value: \[.*?\]: (?=field is|replicatedJob containers)")
_generated = re.compile(r"(y{56})[a-z0-9]{5}")


def observe(namespace: str, objects: dict[str, list[Object]]) -> Object:
    """The state of the case in one namespace. `objects` are its objects by kind."""
    seen: Object = {}
    for jobset in objects["jobsets"]:
        seen["status"] = _status(jobset.get("status") or {})
    for job in objects["jobs"]:
        seen[f"job {job['metadata']['name']}"] = _job(namespace, job)
    for service in objects["services"]:
        seen[f"service {service['metadata']['name']}"] = _service(service)
    for claim in objects["persistentvolumeclaims"]:
        seen[f"claim {claim['metadata']['name']}"] = _claim(claim)
    events = {(event["type"], event["reason"], _message(event, namespace)) for event in objects["events"]}
    seen["events"] = sorted(list(event) for event in events)
    return seen


def refusal(answer: Object) -> str:
    """The message of a Status, as it is without a webhook."""
    text = _denied.sub("", answer.get("message", ""))
    return _generated.sub(r"\1#####", _jobs_shown.sub("spec.replicatedJobs: Invalid value: [...]: ", text))


def _status(status: Object) -> Object:
    result = {key: value for key, value in status.items() if key != "conditions"}
    result["replicatedJobsStatus"] = sorted(
        status.get("replicatedJobsStatus") or [], key=lambda entry: str(entry["name"])
    )
    conditions = status.get("conditions") or []
    result["conditions"] = [
        " / ".join((condition["type"], condition["status"], condition["reason"], condition["message"]))
        for condition in conditions
    ]
    return result


def _job(namespace: str, job: Object) -> Object:
    metadata, spec = job["metadata"], dict(job["spec"])
    template = spec.pop("template")
    pod = {key: value for key, value in template["spec"].items() if _POD_DEFAULTS.get(key, "-") != value}
    for name in ("containers", "initContainers"):
        if name in pod:
            pod[name] = [
                {key: value for key, value in container.items() if key not in _CONTAINER_DEFAULTS}
                for container in pod[name]
            ]
    pod = json.loads(json.dumps(pod).replace(f"{namespace}_", "NS_"))
    if "tolerations" in pod:  # upstream merges them in random order
        pod["tolerations"] = sorted(pod["tolerations"], key=json.dumps)
    spec.pop("selector", None)
    labels = _labels(namespace, metadata["name"], metadata.get("labels"))
    seen: Object = {"labels": labels, "pod": pod, "spec": _without(spec, _JOB_DEFAULTS)}
    others = {
        "annotations": metadata.get("annotations"),
        "podLabels": template["metadata"].get("labels"),
        "podAnnotations": template["metadata"].get("annotations"),
    }
    for name, values in others.items():
        normal = _labels(namespace, metadata["name"], values)
        if normal != labels:  # mostly the same
            seen[name] = {key: value for key, value in normal.items() if labels.get(key) != value}
            absent = sorted(set(labels) - set(normal))
            if absent:
                seen[name]["absent"] = absent
    seen["owners"] = _owners(metadata)
    if metadata.get("deletionTimestamp"):
        seen["deleting"] = True
    if (job.get("status") or {}).get("startTime"):
        seen["started"] = True
    return seen


def _labels(namespace: str, job: str, values: dict[str, str] | None) -> dict[str, str]:
    result = {key: value for key, value in (values or {}).items() if key not in _JOB_LABELS}
    key = hashlib.sha1(f"{namespace}/{job}".encode(), usedforsecurity=False).hexdigest()
    result = {name: value.replace(namespace, "NS") for name, value in result.items()}
    if (values or {}).get(f"{_PREFIX}job-key") == key:
        result[f"{_PREFIX}job-key"] = "KEY"
    if result.get(f"{_PREFIX}job-restart-attempt") == "0":  # upstream sets it on every Job once its gate is on
        del result[f"{_PREFIX}job-restart-attempt"]
    if f"{_PREFIX}jobset-uid" in result:
        result[f"{_PREFIX}jobset-uid"] = "UID"
    return {name.replace(_PREFIX, "~"): value for name, value in result.items()}


def _without(values: Object, defaults: Object) -> Object:
    return {key: value for key, value in values.items() if key not in defaults or defaults[key] != value}


def _service(service: Object) -> Object:
    names = ("clusterIP", "publishNotReadyAddresses", "selector", "ports")
    return {**{name: service["spec"].get(name) for name in names}, "owners": _owners(service["metadata"])}


def _claim(claim: Object) -> Object:
    metadata = claim["metadata"]
    spec = {name: claim["spec"].get(name) for name in ("accessModes", "resources")}
    return {"labels": metadata.get("labels"), "spec": spec, "owners": _owners(metadata)}


def _owners(metadata: Object) -> list[str]:
    return [
        json.dumps({key: value for key, value in owner.items() if key != "uid"}, sort_keys=True)
        for owner in metadata.get("ownerReferences") or ()
    ]


def _message(event: Object, namespace: str) -> str:
    """Several Jobs are created at the same time, so the order of the lines differs."""
    text = str(event.get("message") or event.get("note") or "").replace(namespace, "NS")
    return "\n".join(sorted(text.splitlines()))
