"""Defaults of PyTorchJobs. Applied to a copy when a job is read, never stored."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names


def with_defaults(job: Object) -> Object:
    """Return a job with every default set. It shares unchanged parts with the given job."""
    spec = dict(job.get("spec") or {})
    run_policy = dict(spec.get("runPolicy") or {})
    if run_policy.get("cleanPodPolicy") is None:
        run_policy["cleanPodPolicy"] = names.CLEAN_NONE
    if not run_policy.get("managedBy"):
        run_policy.pop("managedBy", None)  # empty means the default controller, according to upstream's documentation
    spec["runPolicy"] = run_policy
    replica_specs = spec.get("pytorchReplicaSpecs") or {}
    spec["pytorchReplicaSpecs"] = {
        kind: _replica(replica_specs[kind]) for kind in names.REPLICA_TYPES if replica_specs.get(kind) is not None
    }
    elastic = spec.get("elasticPolicy")
    if elastic is not None:
        spec["elasticPolicy"] = _elastic(elastic, spec["pytorchReplicaSpecs"].get(names.WORKER) or {"replicas": 1})
    if spec.get("nprocPerNode") is None and (elastic or {}).get("nProcPerNode") is None:
        spec["nprocPerNode"] = "auto"
    return {**job, "spec": spec}


def _replica(spec: Object) -> Object:
    template = dict(spec.get("template") or {})
    pod = dict(template.get("spec") or {})
    containers = [dict(container) for container in pod.get("containers") or ()]
    if containers:
        main = main_container(containers)
        ports = list(main.get("ports") or ())
        if not any(port.get("name") == names.PORT_NAME for port in ports):
            ports.append({"name": names.PORT_NAME, "containerPort": names.PORT})
        main["ports"] = ports
    pod["containers"] = containers
    template["spec"] = pod
    replicas = spec.get("replicas")
    return {
        **spec,
        "replicas": 1 if replicas is None else replicas,
        "restartPolicy": spec.get("restartPolicy") or names.ON_FAILURE,
        "template": template,
    }


def _elastic(policy: Object, worker: Object) -> Object:
    low, high = policy.get("minReplicas"), policy.get("maxReplicas")
    if low is None:
        low = high if high is not None else worker["replicas"]
    if high is None:
        high = low
    return {**policy, "minReplicas": low, "maxReplicas": high, "rdzvBackend": policy.get("rdzvBackend") or "c10d"}


def main_container(containers: list[Object]) -> Object:
    """Return the container named `pytorch`, or the first one."""
    return next((container for container in containers if container.get("name") == names.CONTAINER), containers[0])


def job_port(replica: Object) -> int:
    """Return the rendezvous port of a defaulted replica spec."""
    ports = main_container(replica["template"]["spec"]["containers"])["ports"]
    return int(next(port["containerPort"] for port in ports if port.get("name") == names.PORT_NAME))
