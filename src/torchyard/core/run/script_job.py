"""The PyTorchJob that runs a script: its manifest, made from the options of `yard run`."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.queue.names import PRIORITY, QUEUE_NAME
from torchyard.api.queue.quantities import parse_quantity
from torchyard.core.run import function_call
from torchyard.core.run.script_command import ARCHIVE, ARCHIVE_MOUNT, PACKAGES, WORKSPACE, script_command

DEFAULT_IMAGE = "pytorch/pytorch:latest"
WORKSPACE_DIGEST = "torchyard.dev/workspace"
# What the API server accepts in a ConfigMap. A larger workspace is in several.
PART_BYTES = 1 << 20
MAX_PARTS = 32
ARCHIVE_LIMIT = MAX_PARTS * PART_BYTES
# The program that calls a function of a module.
CALL = Path(function_call.__file__).read_text()
_PYTHON = ["python", "-u"]
_ARCHIVE_VOLUME = "archive"
_MAX_NAME = 40


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """A script of the workspace and how to run it: on `nodes` pods with `processes` processes each.

    `elastic` are the least and the most workers of an elastic training. `packages` is a directory of the node with
    packages that the image lacks. `sources` is the directory of the workspace that has the project's own packages.
    """

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
    elastic: tuple[int, int] | None = None
    packages: str = ""
    sources: str | None = None

    def __post_init__(self) -> None:
        if self.priority and not self.queue:
            raise YardError(
                f"priority {self.priority}: a WorkloadPriorityClass has no effect on a job without a queue",
                hint="name the queue too, such as --queue default",
                code="BadOption",
            )
        errors: list[FieldError] = []
        for resource, amount in (("cpu", self.cpu), ("memory", self.memory)):
            if amount:
                parse_quantity(resource, amount, resource, errors)
        if errors:
            raise YardError("; ".join(map(str, errors)), code="BadOption")


def workspace_name(job: str, part: int = 0) -> str:
    """The ConfigMap with the files of a script, or a further part of them."""
    return f"{job}-workspace-{part}" if part else f"{job}-workspace"


def workspace_parts(pod: Object) -> int:
    """How many ConfigMaps the files of a script take; 0 if the pod has none."""
    for volume in pod.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or [volume]
        first = str((sources[0].get("configMap") or {}).get("name"))
        # the name of the volume alone may be a user's
        if volume["name"] == _ARCHIVE_VOLUME and first.endswith(workspace_name("")):
            return len(sources)
    return 0


def is_archive(obj: Object) -> bool:
    """Whether an object is a ConfigMap with files of a script."""
    return any(name.startswith(ARCHIVE) for name in obj.get("binaryData") or ())


def without_noise(obj: Object) -> Object:
    """An object as a person reads it: without its managed fields and its packed files."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    shown = {**obj, "metadata": metadata}
    if is_archive(obj):
        shown["binaryData"] = {name: f"({len(data)} characters)" for name, data in obj["binaryData"].items()}
    return shown


def is_script(job: Object) -> bool:
    """Whether `yard run` made this job from a script."""
    replicas = (job.get("spec") or {}).get("pytorchReplicaSpecs") or {}
    templates = [replica.get("template") or {} for replica in replicas.values()]
    return any(
        WORKSPACE_DIGEST in ((template.get("metadata") or {}).get("annotations") or {}) for template in templates
    )


def job_name(script: str) -> str:
    """A name for the jobs of a script: its file name, as Kubernetes accepts it."""
    stem = script.rsplit("/", 1)[-1].rsplit(":", 1)[-1].removesuffix(".py").lower()
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:_MAX_NAME].rstrip("-") or "script"


def script_objects(job: ScriptJob, workspace: bytes) -> list[Object]:
    """The ConfigMaps with the packed workspace and the PyTorchJob that unpacks and runs it."""
    return [*archive_objects(job, workspace), _training(job, workspace)]


def archive_objects(job: ScriptJob, workspace: bytes) -> list[Object]:
    """The ConfigMaps with the packed workspace, in parts that the API server accepts."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": workspace_name(job.name, number)},
            "binaryData": {_part_file(number): base64.b64encode(part).decode()},
        }
        for number, part in enumerate(_parts(workspace))
    ]


def _parts(workspace: bytes) -> list[bytes]:
    return [workspace[start : start + PART_BYTES] for start in range(0, len(workspace), PART_BYTES)] or [b""]


def _part_file(number: int) -> str:
    """The file of a part; the names sort as the numbers do."""
    return f"{ARCHIVE}.{number:02}" if number else ARCHIVE


def _training(job: ScriptJob, workspace: bytes) -> Object:
    labels = {QUEUE_NAME: job.queue, PRIORITY: job.priority}
    metadata: Object = {"name": job.name}
    if chosen := {name: value for name, value in labels.items() if value}:
        metadata["labels"] = chosen
    replicas: Object = {names.MASTER: _replica(job, 1, workspace)}
    if job.nodes > 1:
        replicas[names.WORKER] = _replica(job, job.nodes - 1, workspace)
    spec: Object = {"pytorchReplicaSpecs": replicas}
    if job.elastic:
        least, most = job.elastic
        spec["pytorchReplicaSpecs"] = {names.WORKER: _replica(job, max(least, min(job.nodes, most)), workspace)}
        spec["elasticPolicy"] = {"rdzvBackend": "torchyard", "minReplicas": least, "maxReplicas": most}
    if job.processes > 1:
        spec["nprocPerNode"] = str(job.processes)
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}


def _program(job: ScriptJob) -> list[str]:
    """The command line: a script, or a function of a module."""
    # the launcher reads the number of processes and the rendezvous from the environment that the controller sets
    launcher = [*_PYTHON, *(["-m", "torch.distributed.run"] if job.processes > 1 else [])]
    module, _, function = job.script.rpartition(":")
    if not module:
        return [*launcher, f"./{job.script}" if job.script.startswith("-") else job.script]
    if job.processes > 1:
        launcher = [*launcher, "--no-python", *_PYTHON]
    return [*launcher, "-c", CALL, module, function]


def call_end(program: list[str]) -> int:
    """Where the arguments begin in the command line of a function of a module; 0 if it is that of a script."""
    calls = [number for number in (2, 7) if program[number - 2 : number + 1] == [*_PYTHON, "-c"]]
    return calls[0] + len(("-c", CALL, "module", "function")) if calls else 0


def _replica(job: ScriptJob, count: int, workspace: bytes) -> Object:
    policy = "OnFailure" if job.elastic else "Never"
    return {"replicas": count, "restartPolicy": policy, "template": pod_template(job, workspace)}


def pod_template(job: ScriptJob, workspace: bytes, *, prepare: str = "") -> Object:
    """The template of the pods that unpack the workspace and run the script, after the shell command `prepare`."""
    if job.sources is not None:
        directory = f"{WORKSPACE}/{job.sources}".rstrip("/.")
        export = f"export PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}{directory}"
        prepare = f"{prepare} && {export}" if prepare else export
    container: Object = {
        "name": "pytorch",
        "image": job.image,
        "command": script_command([*_program(job), *job.arguments], prepare=prepare),
        "volumeMounts": [
            {"name": _ARCHIVE_VOLUME, "mountPath": ARCHIVE_MOUNT, "readOnly": True},
            {"name": "workspace", "mountPath": WORKSPACE},
        ],
    }
    if job.env:
        container["env"] = [{"name": name, "value": value} for name, value in job.env.items()]
    amounts = {"cpu": job.cpu, "memory": job.memory, "nvidia.com/gpu": str(job.gpus) if job.gpus else ""}
    if requested := {name: amount for name, amount in amounts.items() if amount}:
        container["resources"] = {"requests": requested, "limits": dict(requested)}
    sources = [{"configMap": {"name": workspace_name(job.name, part)}} for part in range(len(_parts(workspace)))]
    volumes: list[Object] = [
        {"name": _ARCHIVE_VOLUME, **(sources[0] if len(sources) == 1 else {"projected": {"sources": sources}})},
        {"name": "workspace", "emptyDir": {}},
    ]
    if job.packages:
        volumes.append({"name": "packages", "hostPath": {"path": job.packages, "type": "Directory"}})
        container["volumeMounts"].append({"name": "packages", "mountPath": PACKAGES, "readOnly": True})
    digest = hashlib.sha256(workspace).hexdigest()
    # a changed file changes the template: pods that run keep the old one
    annotations = {WORKSPACE_DIGEST: f"sha256:{digest}"}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], "volumes": volumes}}
