"""PyTorchJobs to TrainJobs and back. A note names each thing that has no counterpart.

A TrainJob that needs more than a patch of `torch-distributed` may say gets a TrainingRuntime of its own.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.pytorchjob.defaults import main_container, with_defaults
from torchyard.api.torchrun import TORCHYARD
from torchyard.api.trainjob import environment, names
from torchyard.api.trainjob.elastic import ElasticNodes, elastic_nodes
from torchyard.api.trainjob.runtimes import TORCH_DISTRIBUTED, runtimes
from torchyard.api.trainjob.validation import ancestor
from torchyard.core.training.elastic import VARIABLES
from torchyard.core.trainjob.convert_input import (
    check_new_pytorchjob,
    check_new_trainjob,
    check_with_runtime,
    checked_pytorchjob,
    checked_runtime,
    checked_trainjob,
    named,
)
from torchyard.core.trainjob.elastic import BACKOFF_LIMIT
from torchyard.core.trainjob.jobset import make_jobset, pod_counts
from torchyard.core.trainjob.patches import patched_template

MANAGER = "torchyard.dev/convert"
# What a patch of the runtime may set; everything else needs a runtime.
_PATCHED_POD = (
    "affinity", "imagePullSecrets", "nodeSelector", "schedulingGates", "securityContext", "serviceAccountName",
    "terminationGracePeriodSeconds", "tolerations", "volumes",
)  # fmt: skip
_PATCHED_CONTAINER = ("securityContext", "volumeMounts")
_TRAINER = ("image", "command", "args", "env")
_METADATA = ("name", "generateName", "namespace", "labels")
_RANKS = "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"


@dataclass(slots=True)
class Conversion:
    objects: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def to_trainjob(submitted: Object) -> Conversion:
    """Raises YardError if the job is not valid."""
    result = Conversion()
    submitted = checked_pytorchjob(submitted)
    job = with_defaults(submitted)
    replicas = job["spec"]["pytorchReplicaSpecs"]
    first = next(iter(replicas.values()))
    _note_differences(replicas, result)
    template = copy.deepcopy(first["template"])
    pod = template["spec"]
    container = main_container(pod["containers"])
    _drop_default_port(container)
    spec: Object = {"runtimeRef": {"name": TORCH_DISTRIBUTED}}
    trainer = {name: container.pop(name) for name in _TRAINER if name in container}
    trainer["numNodes"] = sum(int(each["replicas"]) for each in replicas.values())
    if _has_amounts(container.get("resources")):
        trainer["resourcesPerNode"] = container.pop("resources")
    container.pop("resources", None)
    _drop_reserved(trainer, result)
    _set_processes(job, trainer, result)
    spec["trainer"] = trainer
    annotations = dict(job["metadata"].get("annotations") or {})
    job_spec = _run_policy(job, first, spec, annotations=annotations, pod=pod, result=result)
    _elastic(submitted, annotations, nodes=trainer["numNodes"], result=result)
    container["name"] = names.NODE
    metadata = {key: value for key, value in job["metadata"].items() if key in _METADATA}
    if annotations:
        metadata["annotations"] = annotations
    if job_spec or _needs_runtime(pod, container):
        runtime = _runtime(named(job)["metadata"], template, container, trainer, job_spec)
        result.objects.append(runtime)
        spec["runtimeRef"] = {"name": runtime["metadata"]["name"], "kind": names.RUNTIME_KIND}
    elif patch := _patch(template, container):
        spec["runtimePatches"] = [patch]
    if not _starts_torchrun(trainer):
        result.notes.append(f"{_RANKS} are set by torchrun in a TrainJob: start the program with torchrun")
    train_job = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}
    check_new_trainjob(train_job, result.objects[0] if result.objects else runtimes()[0])
    result.objects.append(train_job)
    return result


def _note_differences(replicas: Object, result: Conversion) -> None:
    policies = {kind: each["restartPolicy"] for kind, each in replicas.items()}
    if len(set(policies.values())) > 1:
        result.notes.append(f"all nodes get the Master's restartPolicy; the Worker's is {policies[pytorchjob.WORKER]}")
    if len({repr(each["template"]) for each in replicas.values()}) > 1:
        fields = sorted(
            {
                name
                for each in replicas.values()
                for name in {*each["template"]["spec"], *replicas[pytorchjob.MASTER]["template"]["spec"]}
                if each["template"]["spec"].get(name) != replicas[pytorchjob.MASTER]["template"]["spec"].get(name)
            }
        )
        differing = ", ".join(f"spec.{name}" for name in fields) or "metadata"
        result.notes.append(f"all nodes get the Master's template; the Worker's differs in {differing}")


def _drop_default_port(container: Object) -> None:
    ports = [port for port in container.get("ports") or () if port.get("name") != pytorchjob.PORT_NAME]
    container.pop("ports", None)
    if ports:
        container["ports"] = ports


def _drop_reserved(trainer: Object, result: Conversion) -> None:
    reserved = environment.RESERVED[names.TORCH]
    used = sorted({each["name"] for each in trainer.get("env") or () if each["name"] in reserved})
    if used:
        trainer["env"] = [each for each in trainer["env"] if each["name"] not in reserved]
        result.notes.append(f"env {', '.join(used)}: a TrainJob sets these itself; they are left out")


def _has_amounts(resources: Object | None) -> bool:
    return any((resources or {}).get(name) for name in ("limits", "requests", "claims"))


def _set_processes(job: Object, trainer: Object, result: Conversion) -> None:
    count = job["spec"].get("nprocPerNode") or ""
    if count.isascii() and count.isdigit() and len(count) < 10:
        trainer["numProcPerNode"] = int(count)
    elif count not in ("", "auto"):
        result.notes.append(
            f"spec.nprocPerNode {count!r}: a TrainJob takes a number; without one torchrun uses all GPUs"
        )


def _run_policy(
    job: Object, first: Object, spec: Object, *, annotations: Object, pod: Object, result: Conversion
) -> Object:
    """Set what a TrainJob has of the run policy; returns the fields of the runtime's Job template."""
    policy: Object = job["spec"]["runPolicy"]
    job_spec: Object = {}
    if policy.get("suspend"):
        spec["suspend"] = True
    if policy.get("activeDeadlineSeconds") is not None:
        spec["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    if policy.get("ttlSecondsAfterFinished") is not None:
        annotations[names.TTL] = str(policy["ttlSecondsAfterFinished"])
    if policy.get("backoffLimit") is not None:
        job_spec["backoffLimit"] = policy["backoffLimit"]
    if policy["cleanPodPolicy"] != pytorchjob.CLEAN_NONE:
        result.notes.append(f"spec.runPolicy.cleanPodPolicy {policy['cleanPodPolicy']}: a JobSet deletes pods itself")
    if policy.get("managedBy") == pytorchjob.MANAGED_BY_MULTIKUEUE:
        spec["managedBy"] = policy["managedBy"]
    if policy.get("schedulingPolicy"):
        result.notes.append("spec.runPolicy.schedulingPolicy has no counterpart; see spec.podGroupPolicy of runtimes")
    restart = first["restartPolicy"]
    pod.pop("restartPolicy", None)
    if restart == pytorchjob.NEVER:
        pod["restartPolicy"] = restart
    elif restart != pytorchjob.ON_FAILURE:
        result.notes.append(f"restartPolicy {restart}: Jobs have OnFailure and Never; OnFailure is used")
    return job_spec


def _elastic(job: Object, annotations: Object, *, nodes: int, result: Conversion) -> None:
    policy = job["spec"].get("elasticPolicy")
    if policy is None:
        return
    with_limits = with_defaults(job)["spec"]["elasticPolicy"]
    least, most = with_limits["minReplicas"], with_limits["maxReplicas"]
    if policy.get("rdzvBackend") == TORCHYARD:
        annotations |= {names.ELASTIC: f"{min(least, nodes)}:{max(most, nodes)}", names.RDZV_BACKEND: TORCHYARD}
        most = nodes
    else:
        annotations[names.ELASTIC] = f"{min(least, nodes)}:{nodes}"
    if most != nodes:
        result.notes.append(
            f"spec.elasticPolicy.maxReplicas {with_limits['maxReplicas']}: a TrainJob has as many pods as nodes, so the"
            f" maximum is numNodes ({nodes}); to change it, change numNodes and the annotation {names.ELASTIC}"
        )
    known = {"minReplicas", "maxReplicas"} | ({"rdzvBackend"} if names.RDZV_BACKEND in annotations else set())
    others = sorted(set(policy) - known)
    if others:
        result.notes.append(f"spec.elasticPolicy has no counterpart for {', '.join(others)}")


def _needs_runtime(pod: Object, container: Object) -> bool:
    return (
        len(pod["containers"]) > 1
        or any(name not in (*_PATCHED_POD, "containers") for name in pod)
        or any(name not in (*_PATCHED_CONTAINER, "name") for name in container)
    )


def _runtime(metadata: Object, template: Object, container: Object, trainer: Object, job_spec: Object) -> Object:
    container["image"] = trainer.get("image", "")
    job = {
        "name": names.NODE,
        "template": {
            "metadata": {"labels": {names.ANCESTOR: names.TRAINER}},
            "spec": {**job_spec, "template": template},
        },
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUNTIME_KIND,
        "metadata": {
            **{key: metadata[key] for key in ("name", "namespace") if key in metadata},
            "labels": {names.FRAMEWORK: names.TORCH},
        },
        "spec": {
            "mlPolicy": {"numNodes": trainer["numNodes"], names.TORCH: {}},
            "template": {"spec": {"replicatedJobs": [job]}},
        },
    }


def _patch(template: Object, container: Object) -> Object | None:
    pod = {name: template["spec"][name] for name in _PATCHED_POD if name in template["spec"]}
    if len(container) > 1:
        pod["containers"] = [container]
    inner = {key: value for key, value in (("metadata", template.get("metadata")), ("spec", pod)) if value}
    if not inner:
        return None
    job = {"name": names.NODE, "template": {"spec": {"template": inner}}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def _starts_torchrun(trainer: Object) -> bool:
    words = " ".join([*(trainer.get("command") or ()), *(trainer.get("args") or ())])
    return "torchrun" in words or "torch.distributed.run" in words


def to_pytorchjob(job: Object, own_runtimes: list[Object]) -> Conversion:
    """`own_runtimes` are the runtimes beside the job; otherwise it must use one that every installation has.

    Raises YardError if the job or its runtime is not valid. Without an object the notes say why there is none.
    """
    result = Conversion()
    job = checked_trainjob(job)
    original_metadata = job["metadata"]
    job = copy.deepcopy(named(job))
    job["metadata"].setdefault("namespace", "")
    reference = names.runtime_reference(job)
    runtime = next(
        (
            each
            for each in [*own_runtimes, *runtimes()]
            if (each["kind"], _name_of(each)) == (reference["kind"], reference["name"])
        ),
        None,
    )
    if runtime is None:
        result.notes.append(f"{reference['kind']} {reference['name']} is not in the file; add it")
        return result
    runtime = checked_runtime(runtime)
    check_with_runtime(job, runtime)
    jobset = make_jobset(job, runtime)
    trainers = [each for each in jobset["spec"]["replicatedJobs"] if ancestor(each) == names.TRAINER]
    others = [each["name"] for each in jobset["spec"]["replicatedJobs"] if ancestor(each) != names.TRAINER]
    if others:
        result.notes.append(f"a PyTorchJob has no steps before the training: {', '.join(others)} are left out")
    elastic = elastic_nodes(job, runtime)
    is_torch = names.TORCH in (runtime["spec"].get("mlPolicy") or {}) or (elastic and elastic.uses_coordinator)
    if not trainers or not is_torch:
        result.notes.append("only a runtime with the policy torch and a trainer can become a PyTorchJob")
        return result
    if job["spec"].get("initializer"):
        result.notes.append("spec.initializer has no counterpart: load dataset and model in the program")
    pytorch_job = _pytorchjob(job, runtime, trainers[0], result)
    metadata = {key: original_metadata[key] for key in _METADATA if original_metadata.get(key)}
    pytorch_job = {**pytorch_job, "metadata": metadata | pytorch_job["metadata"]}
    check_new_pytorchjob(pytorch_job)
    result.objects.append(pytorch_job)
    return result


def _name_of(manifest: Object) -> Any:
    """The name of a manifest that is not checked yet."""
    metadata = manifest.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _pytorchjob(job: Object, runtime: Object, trainer: Object, result: Conversion) -> Object:
    job_spec = trainer["template"]["spec"]
    template = copy.deepcopy(job_spec["template"])
    pod = template["spec"]
    _as_pytorch(next(each for each in pod["containers"] if each["name"] == names.NODE))
    restart = pod.pop("restartPolicy", pytorchjob.ON_FAILURE)
    counts = pod_counts(job, runtime, patched_template(runtime, job)["spec"])
    total = counts[trainer["name"]]

    def replica(count: int) -> Object:
        return {"replicas": count, "restartPolicy": restart, "template": copy.deepcopy(template)}

    replicas = {pytorchjob.MASTER: replica(1)}
    if total > 1:
        replicas[pytorchjob.WORKER] = replica(total - 1)
    annotations = dict(job["metadata"].get("annotations") or {})
    policy: Object = {}
    if job["spec"].get("suspend"):
        policy["suspend"] = True
    if job["spec"].get("activeDeadlineSeconds") is not None:
        policy["activeDeadlineSeconds"] = job["spec"]["activeDeadlineSeconds"]
    if job["spec"].get("managedBy") == pytorchjob.MANAGED_BY_MULTIKUEUE:
        policy["managedBy"] = job["spec"]["managedBy"]
    elastic = elastic_nodes(job, runtime)
    limit = job_spec.get("backoffLimit")
    if limit is not None and not (elastic and elastic.uses_coordinator and limit == BACKOFF_LIMIT):
        policy["backoffLimit"] = limit
    annotations.pop(names.TTL, None)
    if (seconds := names.time_to_live(job)) is not None:
        policy["ttlSecondsAfterFinished"] = seconds
    spec: Object = {"pytorchReplicaSpecs": replicas}
    if policy:
        spec["runPolicy"] = policy
    processes = (job["spec"].get("trainer") or {}).get("numProcPerNode")
    if processes is not None:
        spec["nprocPerNode"] = str(processes)
    for name in (names.ELASTIC, names.RDZV_BACKEND, names.RESIZED):
        annotations.pop(name, None)
    if elastic is not None:
        # The elastic policy counts workers, so all nodes are workers.
        spec["elasticPolicy"] = _elastic_policy(elastic, total)
        spec["pytorchReplicaSpecs"] = {pytorchjob.WORKER: replica(total)}
    metadata: Object = {"annotations": annotations} if annotations else {}
    return {"apiVersion": pytorchjob.API_VERSION, "kind": pytorchjob.KIND, "metadata": metadata, "spec": spec}


def _elastic_policy(elastic: ElasticNodes, nodes: int) -> Object:
    if elastic.uses_coordinator:
        return {"minReplicas": elastic.least, "maxReplicas": elastic.most, "rdzvBackend": TORCHYARD}
    return {"minReplicas": min(elastic.least, nodes), "maxReplicas": nodes}


def _as_pytorch(container: Object) -> None:
    """Rename the container, and leave out what the policy torch has added."""
    container["name"] = pytorchjob.CONTAINER
    added = (*environment.RESERVED[names.TORCH], "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", *VARIABLES)
    env = [variable for variable in container.pop("env", ()) if variable["name"] not in added]
    if env:
        container["env"] = env
    ports = [port for port in container.pop("ports", ()) if port["containerPort"] != names.PORT]
    if ports:
        container["ports"] = ports
