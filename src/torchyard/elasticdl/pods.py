"""The pods of a job, with the names and labels of ElasticDL. Pure."""

from __future__ import annotations

import argparse
import base64
import json
import math
import shlex
from typing import Any

from torchyard.api.metadata import controller_reference
from torchyard.api.objects import Object
from torchyard.elasticdl import flag_values
from torchyard.elasticdl.flag_values import BadFlag

JOB, TYPE, INDEX, STATUS = "elasticdl-job-name", "elasticdl-replica-type", "elasticdl-replica-index", "status"
MASTER, WORKER = "edl-master", "worker"
WORKERS_ANNOTATION = "elasticdl.torchyard.dev/workers"
"""The annotation of the master pod with the target number of workers. `elasticdl scale` sets it."""
STATE = "/var/lib/torchyard"
GRACE = 30
"""Seconds that a worker has to leave the world: one second, as in ElasticDL, is not enough to finish a step."""


def master_name(job: str) -> str:
    return f"elasticdl-{job}-master"


def worker_prefix(job: str) -> str:
    return f"{job}-edljob-worker"


def labels(job: str, kind: str, index: int) -> dict[str, str]:
    return {"app": "elasticdl", JOB: job, TYPE: kind, INDEX: str(index)}


def selector(job: str) -> str:
    return f"app=elasticdl,{JOB}={job}"


def master(args: argparse.Namespace, command: str) -> Object:
    """Return the master pod. A killed master is restarted inside its container; a failed job is a failed pod."""
    name = master_name(args.job_name)
    volume_mounts = flag_values.volumes(args.volume, name)
    container = {
        "name": name,
        "image": args.image_name,
        "command": ["/bin/bash"],
        "args": ["-c", command],
        "imagePullPolicy": args.image_pull_policy,
        "resources": flag_values.container_resources(
            args.master_resource_request, args.master_resource_limit, flag="--master_resource"
        ),
        "env": [*_variables(flag_values.environment(args.envs)), _pod_ip_variable()],
        "volumeMounts": [*volume_mounts.mounts, {"name": "state", "mountPath": STATE}],
    }
    spec = {
        "containers": [container],
        "restartPolicy": args.restart_policy,
        "volumes": [*volume_mounts.volumes, {"name": "state", "emptyDir": {}}],
    }
    if args.master_pod_priority:
        spec["priorityClassName"] = args.master_pod_priority
    metadata = {"name": name, "namespace": args.namespace, "labels": labels(args.job_name, MASTER, 0)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return apply_cluster_spec(pod, "master", args.cluster_spec_json)


def service(args: argparse.Namespace, owner: Object) -> Object:
    """Return the service by which workers find the master: the address changes with its pod."""
    name = master_name(args.job_name)
    metadata = {"name": name, "namespace": args.namespace, "labels": labels(args.job_name, MASTER, 0)}
    selector_labels = {JOB: args.job_name, TYPE: owner["metadata"]["labels"][TYPE]}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector_labels}
    spec["ports"] = [{"name": "control", "port": args.port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata | {"ownerReferences": [controller_reference(owner, "v1", "Pod")]},
        "spec": spec,
    }


def worker(args: argparse.Namespace, index: int, *, owner: Object, variables: dict[str, str], start: str) -> Object:
    """Return a worker pod. `start` is a program that fetches the runtime from the master and runs the job's command."""
    name = f"{worker_prefix(args.job_name)}-{index}"
    volume_mounts = flag_values.volumes(args.volume, name)
    variables_by_name = flag_values.environment(args.envs) | variables
    command = args.job_command
    if args.log_file_path:
        command = f"({command}) 2>&1 | tee {shlex.quote(args.log_file_path)}"
    container = {
        "name": name,
        "image": args.worker_image or args.image_name,
        "command": ["python3", "-c", start],
        "args": ["/bin/bash", "-c", f"set -o pipefail; {command}"],
        "imagePullPolicy": args.image_pull_policy,
        "resources": flag_values.container_resources(
            args.worker_resource_request, args.worker_resource_limit, flag="--worker_resource"
        ),
        "env": [*_variables(variables_by_name), _pod_ip_variable()],
        "volumeMounts": volume_mounts.mounts,
    }
    spec: Object = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "volumes": volume_mounts.volumes,
    }
    priority = worker_priority(args.worker_pod_priority, index, args.num_workers)
    if priority:
        spec["priorityClassName"] = priority
    metadata = {"name": name, "namespace": args.namespace, "labels": labels(args.job_name, WORKER, index)}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"ownerReferences": [controller_reference(owner, "v1", "Pod")]},
        "spec": spec,
    }
    return apply_cluster_spec(pod, "worker", args.cluster_spec_json)


def is_controlled_by(obj: Object, owner: Object) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(ref.get("controller") and ref["uid"] == owner["metadata"]["uid"] for ref in references)


def index_of(pod: Object) -> int:
    """Return the index of a worker pod; -1 if its label was changed to something else."""
    text = (pod["metadata"].get("labels") or {}).get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _variables(args: dict[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in args.items()]


def _pod_ip_variable() -> Object:
    return {"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def worker_priority(text: str, index: int, workers: int) -> str:
    """Return `high` or `low`; a fraction of the workers is high, counted from both ends, as in ElasticDL."""
    if text in ("", "high", "low"):
        return text
    try:
        fraction = float(text)
    except ValueError:
        return text  # a priority class by name
    if not 0 <= fraction <= 1:
        raise BadFlag(
            f"--worker_pod_priority={text} is not between 0 and 1", hint="use high, low, a priority class, or 0 to 1"
        )
    high = math.ceil(workers * fraction)
    position = index % workers
    from_front, from_back = math.ceil(high / 2), high // 2
    return "high" if position < from_front or position >= workers - from_back else "low"


def apply_cluster_spec(pod: Object, kind: str, text: str) -> Object:
    """Add the cluster's settings for all pods (`pod_spec`) and for this kind (`master_pod_spec`, `worker_pod_spec`)."""
    if not text:
        return pod
    try:
        spec = json.loads(text)
    except ValueError:
        try:
            spec = json.loads(base64.b64decode(text, validate=True))
        except ValueError as error:
            raise BadFlag(f"--cluster_spec_json is neither valid JSON nor base64 of it: {error}") from error
    _check_cluster_spec(spec)
    for part in (spec.get("pod_spec") or {}, spec.get(f"{kind}_pod_spec") or {}):
        for key in ("labels", "annotations"):
            pod["metadata"].setdefault(key, {}).update(part.get(key) or {})
        if "affinity" in part:
            pod["spec"]["affinity"] = part["affinity"]
        pod["spec"].setdefault("tolerations", []).extend(part.get("tolerations") or ())
        for container in pod["spec"]["containers"]:
            container["env"] += part.get("env") or []
    return pod


_CLUSTER_SPEC_TYPES: dict[str, type[Any]] = {"labels": dict, "annotations": dict, "affinity": dict}
_CLUSTER_SPEC_TYPES |= {"tolerations": list, "env": list}


def _check_cluster_spec(spec: Any) -> None:
    if not isinstance(spec, dict):
        raise BadFlag(f"--cluster_spec_json is a JSON {type(spec).__name__}, not an object")
    for name in ("pod_spec", "master_pod_spec", "worker_pod_spec"):
        part = spec.get(name) or {}
        if not isinstance(part, dict):
            raise BadFlag(f"--cluster_spec_json: {name} is not an object")
        for key, kind in _CLUSTER_SPEC_TYPES.items():
            if part.get(key) is not None and not isinstance(part[key], kind):
                raise BadFlag(f"--cluster_spec_json: {name}.{key} is not {'an object' if kind is dict else 'a list'}")
