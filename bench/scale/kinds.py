"""Objects by the thousand, each of a kind that accumulates in a plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

_CONTAINER = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
_LARGE = {**_CONTAINER, "resources": {"requests": {"cpu": "10000"}}}


@dataclass(frozen=True)
class Kind:
    """`path`: where objects of it are created. `status`: written after the creation, into the subresource.

    `prepare`: kinds of which so many objects exist before.
    """

    path: str
    make: Callable[[int], Object]
    status: Object | None = None
    prepare: dict[str, int] = field(default_factory=dict)


def number_text(number: int) -> str:
    """A number as it is in names: of one length, and found nowhere else in an object."""
    return f"n{number:06d}z"


def _label(number: int) -> Object:
    return {"app": f"app-{number % 100}"}


def _pod(number: int, container: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number_text(number)}", "labels": _label(number)},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }


def _job(number: int) -> Object:
    template = {"spec": {"containers": [_LARGE], "restartPolicy": "Never"}}
    metadata = {"name": f"job-{number_text(number)}"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": template},
    }


def _pytorchjob(number: int) -> Object:
    container = {"name": "pytorch", "image": "registry.k8s.io/pause:3.10"}
    master = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": f"train-{number_text(number)}"},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": master}},
    }


def _workload(number: int) -> Object:
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [_LARGE], "restartPolicy": "Never"}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": f"workload-{number_text(number)}"},
        "spec": {"queueName": "default", "podSets": [pod_set]},
    }


def _claim(number: int) -> Object:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "missing",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"claim-{number_text(number)}"},
        "spec": spec,
    }


def _service(number: int) -> Object:
    spec = {"selector": _label(number), "ports": [{"port": 80}], "clusterIP": "None"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"service-{number_text(number)}"}, "spec": spec}


def _config_map(number: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"config-{number_text(number)}"},
        "data": {"key": "value"},
    }


def _event(number: int) -> Object:
    involved = {"kind": "Pod", "apiVersion": "v1", "name": f"pod-{number_text(number)}", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"event-{number_text(number)}"},
        "involvedObject": involved,
        "reason": "Happened",
        "message": "something happened",
        "type": "Normal",
        "source": {"component": "bench"},
    }


def _namespace(number: int) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"namespace-{number_text(number)}"}}


def _backend(number: int) -> Object:
    return {
        **_pod(number, _CONTAINER, schedulerName="another"),
        "metadata": {"name": f"backend-{number}", "labels": _label(number)},
    }


_DEFAULT = "namespaces/default"
_ENDED = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:00Z"}}
_SUCCEEDED = {
    "phase": "Succeeded",
    "containerStatuses": [
        {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": _ENDED}
    ],
}
_READY = {
    "phase": "Running",
    "podIP": "10.1.2.3",
    "podIPs": [{"ip": "10.1.2.3"}],
    "conditions": [{"type": "Ready", "status": "True"}],
}
_TIME = "2026-01-01T00:00:00Z"
_COMPLETE = {
    "startTime": _TIME,
    "completionTime": _TIME,
    "succeeded": 1,
    "ready": 0,
    "terminating": 0,
    "uncountedTerminatedPods": {},
    "conditions": [
        {
            "type": kind,
            "status": "True",
            "reason": "CompletionsReached",
            "lastProbeTime": _TIME,
            "lastTransitionTime": _TIME,
        }
        for kind in ("SuccessCriteriaMet", "Complete")
    ],
}
_TRAINED = {
    "startTime": _TIME,
    "completionTime": _TIME,
    "replicaStatuses": {"Master": {"succeeded": 1}},
    "conditions": [
        {
            "type": "Succeeded",
            "status": "True",
            "reason": "PyTorchJobSucceeded",
            "message": "the job has succeeded",
            "lastUpdateTime": _TIME,
            "lastTransitionTime": _TIME,
        }
    ],
}
_BACKENDS = "backends"

KINDS: dict[str, Kind] = {
    "pods-waiting": Kind(f"/api/v1/{_DEFAULT}/pods", lambda number: _pod(number, _LARGE)),
    "pods-of-another-scheduler": Kind(
        f"/api/v1/{_DEFAULT}/pods", lambda number: _pod(number, _CONTAINER, schedulerName="another")
    ),
    "pods-finished": Kind(
        f"/api/v1/{_DEFAULT}/pods", lambda number: _pod(number, _CONTAINER, schedulerName="another"), _SUCCEEDED
    ),
    "jobs-suspended": Kind(f"/apis/batch/v1/{_DEFAULT}/jobs", _job),
    "jobs-finished": Kind(f"/apis/batch/v1/{_DEFAULT}/jobs", _job, _COMPLETE),
    "pytorchjobs-suspended": Kind(f"/apis/kubeflow.org/v1/{_DEFAULT}/pytorchjobs", _pytorchjob),
    "pytorchjobs-finished": Kind(f"/apis/kubeflow.org/v1/{_DEFAULT}/pytorchjobs", _pytorchjob, _TRAINED),
    "workloads": Kind(f"/apis/kueue.x-k8s.io/v1beta2/{_DEFAULT}/workloads", _workload),
    "claims-pending": Kind(f"/api/v1/{_DEFAULT}/persistentvolumeclaims", _claim),
    "services": Kind(f"/api/v1/{_DEFAULT}/services", _service, prepare={_BACKENDS: 100}),
    "configmaps": Kind(f"/api/v1/{_DEFAULT}/configmaps", _config_map),
    "events": Kind(f"/api/v1/{_DEFAULT}/events", _event),
    "namespaces": Kind("/api/v1/namespaces", _namespace),
}
# Not measured.
PREPARED: dict[str, Kind] = {_BACKENDS: Kind(f"/api/v1/{_DEFAULT}/pods", _backend, _READY)}
