"""The pods of a job, as ElasticDL names and labels them. Pure."""

from __future__ import annotations

import argparse
import base64
import json
import math

from torchyard.api.objects import Object
from torchyard.elasticdl import flag_values
from torchyard.elasticdl.flag_values import BadFlag

JOB, TYPE, INDEX, STATUS = "elasticdl-job-name", "elasticdl-replica-type", "elasticdl-replica-index", "status"
MASTER, WORKER = "edl-master", "worker"
WANTED = "elasticdl.torchyard.dev/workers"
"""An annotation of the master pod: how many workers it should keep. `elasticdl scale` writes it."""
STATE = "/var/lib/torchyard"
GRACE = 30
"""Seconds a worker has to hand over its place: a second, as ElasticDL gives, is not enough to finish a step."""


def master_name(job: str) -> str:
    return f"elasticdl-{job}-master"


def worker_prefix(job: str) -> str:
    return f"{job}-edljob-worker"


def labels(job: str, kind: str, index: int) -> dict[str, str]:
    return {"app": "elasticdl", JOB: job, TYPE: kind, INDEX: str(index)}


def selector(job: str) -> str:
    return f"app=elasticdl,{JOB}={job}"


def master(given: argparse.Namespace, command: str) -> Object:
    """The master pod. A killed master is started again inside its container; a failed job is a failed pod."""
    name = master_name(given.job_name)
    mounted = flag_values.volumes(given.volume, name)
    container = {
        "name": name,
        "image": given.image_name,
        "command": ["/bin/bash"],
        "args": ["-c", command],
        "imagePullPolicy": given.image_pull_policy,
        "resources": flag_values.both(
            given.master_resource_request, given.master_resource_limit, flag="--master_resource"
        ),
        "env": [*_variables(flag_values.environment(given.envs)), _own_address()],
        "volumeMounts": [*mounted.mounts, {"name": "state", "mountPath": STATE}],
    }
    spec = {
        "containers": [container],
        "restartPolicy": given.restart_policy,
        "volumes": [*mounted.volumes, {"name": "state", "emptyDir": {}}],
    }
    if given.master_pod_priority:
        spec["priorityClassName"] = given.master_pod_priority
    metadata = {"name": name, "namespace": given.namespace, "labels": labels(given.job_name, MASTER, 0)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return customised(pod, "master", given.cluster_spec_json)


def service(given: argparse.Namespace, owner: Object) -> Object:
    """Workers find the master by name: its address changes when its pod is made again."""
    name = master_name(given.job_name)
    metadata = {"name": name, "namespace": given.namespace, "labels": labels(given.job_name, MASTER, 0)}
    chosen = {JOB: given.job_name, TYPE: owner["metadata"]["labels"][TYPE]}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": chosen}
    spec["ports"] = [{"name": "control", "port": given.port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata | {"ownerReferences": [owned(owner)]},
        "spec": spec,
    }


def worker(given: argparse.Namespace, index: int, *, owner: Object, variables: dict[str, str], start: str) -> Object:
    """A worker pod. `start` fetches the runtime from the master and then runs the job's command under it."""
    name = f"{worker_prefix(given.job_name)}-{index}"
    mounted = flag_values.volumes(given.volume, name)
    environment = flag_values.environment(given.envs) | variables
    command = given.job_command
    if given.log_file_path:
        command = f"({command}) 2>&1 | tee {given.log_file_path}"
    container = {
        "name": name,
        "image": given.worker_image or given.image_name,
        "command": ["python3", "-c", start],
        "args": ["/bin/bash", "-c", f"set -o pipefail; {command}"],
        "imagePullPolicy": given.image_pull_policy,
        "resources": flag_values.both(
            given.worker_resource_request, given.worker_resource_limit, flag="--worker_resource"
        ),
        "env": [*_variables(environment), _own_address()],
        "volumeMounts": mounted.mounts,
    }
    spec: Object = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "volumes": mounted.volumes,
    }
    priority = priority_of(given.worker_pod_priority, index, given.num_workers)
    if priority:
        spec["priorityClassName"] = priority
    metadata = {"name": name, "namespace": given.namespace, "labels": labels(given.job_name, WORKER, index)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"ownerReferences": [owned(owner)]}, "spec": spec}
    return customised(pod, "worker", given.cluster_spec_json)


def owned(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "blockOwnerDeletion": True,
        "controller": True,
    }


def _variables(given: dict[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in given.items()]


def _own_address() -> Object:
    return {"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def priority_of(text: str, index: int, workers: int) -> str:
    """`high`, `low`, or the share of workers that are high: spread from both ends, as ElasticDL does."""
    if text in ("", "high", "low"):
        return text
    try:
        share = float(text)
    except ValueError:
        return text  # a priority class by name
    if not 0 <= share <= 1:
        raise BadFlag(f"--worker_pod_priority={text} is no share", hint="give high, low, a class, or 0 to 1")
    high = math.ceil(workers * share)
    place = index % workers
    from_front, from_back = math.ceil(high / 2), high // 2
    return "high" if place < from_front or place >= workers - from_back else "low"


def customised(pod: Object, kind: str, text: str) -> Object:
    """What a cluster asks of every pod (`pod_spec`) and of this kind (`master_pod_spec`, `worker_pod_spec`)."""
    if not text:
        return pod
    try:
        spec = json.loads(text)
    except ValueError:
        try:
            spec = json.loads(base64.b64decode(text, validate=True))
        except ValueError as error:
            raise BadFlag(f"--cluster_spec_json is neither JSON nor base64 of it: {error}") from error
    for part in (spec.get("pod_spec") or {}, spec.get(f"{kind}_pod_spec") or {}):
        for key in ("labels", "annotations"):
            pod["metadata"].setdefault(key, {}).update(part.get(key) or {})
        if "affinity" in part:
            pod["spec"]["affinity"] = part["affinity"]
        pod["spec"].setdefault("tolerations", []).extend(part.get("tolerations") or ())
        for container in pod["spec"]["containers"]:
            container["env"] += part.get("env") or []
    return pod
