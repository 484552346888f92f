"""The PyTorchJob that runs a script: its manifest, made from the options of `yard run`."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.queue.names import PRIORITY, QUEUE_NAME

DEFAULT_IMAGE = "pytorch/pytorch:latest"
WORKSPACE_DIGEST = "torchyard.dev/workspace"
ARCHIVE = "workspace.tar.gz"
WORKSPACE = "/workspace"
# What the API server accepts in a ConfigMap.
ARCHIVE_LIMIT = 1 << 20
_MOUNT = "/run/torchyard/workspace"
_UNPACK = f'tar -xzf {_MOUNT}/{ARCHIVE} -C {WORKSPACE} && cd {WORKSPACE} && exec "$@"'
_MAX_NAME = 40


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """A script of the workspace and how to run it: on `nodes` pods with `processes` processes each."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    image: str = DEFAULT_IMAGE
    nodes: int = 1
    processes: int = 1
    gpus: int = 0
    cpu: str = ""
    memory: str = ""
    env: dict[str, str] = field(default_factory=dict)
    queue: str = ""
    priority: str = ""


def job_name(script: str) -> str:
    """A name for the jobs of a script: its file name, as Kubernetes accepts it."""
    stem = script.rsplit("/", 1)[-1].removesuffix(".py").lower()
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:_MAX_NAME].rstrip("-") or "script"


def script_objects(job: ScriptJob, workspace: bytes) -> list[Object]:
    """The ConfigMap with the packed workspace and the PyTorchJob that unpacks and runs it."""
    archive = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{job.name}-workspace"},
        "binaryData": {ARCHIVE: base64.b64encode(workspace).decode()},
    }
    return [archive, _training(job, hashlib.sha256(workspace).hexdigest())]


def _training(job: ScriptJob, digest: str) -> Object:
    labels = {QUEUE_NAME: job.queue, PRIORITY: job.priority}
    metadata: Object = {"name": job.name}
    if chosen := {name: value for name, value in labels.items() if value}:
        metadata["labels"] = chosen
    replicas: Object = {names.MASTER: _replica(job, 1, digest)}
    if job.nodes > 1:
        replicas[names.WORKER] = _replica(job, job.nodes - 1, digest)
    spec: Object = {"pytorchReplicaSpecs": replicas}
    if job.processes > 1:
        spec["nprocPerNode"] = str(job.processes)
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}


def _replica(job: ScriptJob, count: int, digest: str) -> Object:
    # the launcher reads the number of processes and the rendezvous from the environment that the controller sets
    launcher = ["python", "-u", *(["-m", "torch.distributed.run"] if job.processes > 1 else [])]
    container: Object = {
        "name": "pytorch",
        "image": job.image,
        "command": ["sh", "-c", _UNPACK, "sh", *launcher, job.script, *job.arguments],
        "volumeMounts": [
            {"name": "archive", "mountPath": _MOUNT, "readOnly": True},
            {"name": "workspace", "mountPath": WORKSPACE},
        ],
    }
    if job.env:
        container["env"] = [{"name": name, "value": value} for name, value in job.env.items()]
    amounts = {"cpu": job.cpu, "memory": job.memory, "nvidia.com/gpu": str(job.gpus) if job.gpus else ""}
    if requested := {name: amount for name, amount in amounts.items() if amount}:
        container["resources"] = {"requests": requested, "limits": requested}
    volumes = [
        {"name": "archive", "configMap": {"name": f"{job.name}-workspace"}},
        {"name": "workspace", "emptyDir": {}},
    ]
    # a changed file changes the template: pods that run keep the old one
    annotations = {WORKSPACE_DIGEST: f"sha256:{digest}"}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container], "volumes": volumes}}
    return {"replicas": count, "restartPolicy": "Never", "template": template}
