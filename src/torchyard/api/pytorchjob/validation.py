"""Validation of PyTorchJobs: upstream's rules with upstream's messages, plus rules against jobs that crash or hang it.

Runs after schema validation, so every field that is present has its type.
"""

from __future__ import annotations

import re

from torchyard.api import checks, field_errors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names
from torchyard.api.strategy import Strategy

REPLICAS = "spec.pytorchReplicaSpecs"
RUN_POLICY = "spec.runPolicy"
ELASTIC = "spec.elasticPolicy"
DEPRECATED_PROCESSES = f"{ELASTIC}.nProcPerNode is deprecated, use spec.nprocPerNode instead"

_is_process_count = re.compile(r"auto|cpu|gpu|xpu|[1-9][0-9]*").fullmatch


class PyTorchJobStrategy(Strategy):
    """Validation and warnings beyond the schema of the CustomResourceDefinition."""

    def validate(self, obj: Object) -> list[FieldError]:
        return validate(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validate_update(new, old)

    def warnings(self, obj: Object) -> list[str]:
        return warnings(obj)


def validate(job: Object) -> list[FieldError]:
    spec = job.get("spec") or {}
    errs: list[FieldError] = []
    name = job["metadata"].get("name", "")
    problems = any_names.dns1035_problems(name)
    if problems:
        errs.append(field_errors.invalid("metadata.name", name, f"should match: {','.join(problems)}"))
    replicas = spec.get("pytorchReplicaSpecs")
    _check_run_policy(spec.get("runPolicy") or {}, errs)
    _check_elastic(spec, errs)
    _check_processes(spec, errs)
    if replicas is None:
        return [*errs, field_errors.required(REPLICAS, "must be required")]
    if not replicas:
        errs.append(
            field_errors.required(REPLICAS, "must have a Master or a Worker: a job without replicas never starts")
        )
    for kind, replica in replicas.items():
        _check_replica(kind, replica, errs)
    if not problems:
        _check_derived_names(name, replicas, errs)
    return errs


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errs = validate(new)
    before, after = ((((obj.get("spec") or {}).get("runPolicy")) or {}).get("managedBy") for obj in (old, new))
    checks.immutable(after, before, f"{RUN_POLICY}.managedBy", errs)
    return errs


def warnings(job: Object) -> list[str]:
    elastic = (job.get("spec") or {}).get("elasticPolicy") or {}
    return [DEPRECATED_PROCESSES] if elastic.get("nProcPerNode") is not None else []


def _check_run_policy(policy: Object, errs: list[FieldError]) -> None:
    manager = policy.get("managedBy")
    if manager is not None and manager not in names.MANAGERS:
        errs.append(field_errors.not_supported(f"{RUN_POLICY}.managedBy", manager, names.MANAGERS))
    checks.optional_enum(policy.get("cleanPodPolicy"), names.CLEAN_POD_POLICIES, f"{RUN_POLICY}.cleanPodPolicy", errs)
    limits = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
    checks.nonnegative_fields(policy, limits, RUN_POLICY, errs)
    scheduling = policy.get("schedulingPolicy") or {}
    fields = ("minAvailable", "scheduleTimeoutSeconds")
    checks.nonnegative_fields(scheduling, fields, f"{RUN_POLICY}.schedulingPolicy", errs)


def _check_elastic(spec: Object, errs: list[FieldError]) -> None:
    elastic = spec.get("elasticPolicy")
    if elastic is None:
        return
    if (spec.get("pytorchReplicaSpecs") or {}).get(names.WORKER) is None:
        errs.append(
            field_errors.required(f"{REPLICAS}[{names.WORKER}]", "must be configured if elastic policy is used")
        )
    if elastic.get("nProcPerNode") is not None and spec.get("nprocPerNode") is not None:
        errs.append(field_errors.forbidden(f"{ELASTIC}.nProcPerNode", "must not be used with spec.nprocPerNode"))
    for name in ("minReplicas", "maxReplicas", "nProcPerNode"):
        value = elastic.get(name)
        if value is not None and value < 1:
            errs.append(field_errors.invalid(f"{ELASTIC}.{name}", value, "must be at least 1"))
    checks.nonnegative(elastic.get("maxRestarts"), f"{ELASTIC}.maxRestarts", errs)
    low, high = elastic.get("minReplicas"), elastic.get("maxReplicas")
    if low is not None and high is not None and low > high:
        errs.append(
            field_errors.invalid(f"{ELASTIC}.minReplicas", low, f"must not be more than maxReplicas, which is {high}")
        )
    if elastic.get("rdzvPort") is not None:
        checks.port_number(elastic["rdzvPort"], f"{ELASTIC}.rdzvPort", errs)
    if elastic.get("rdzvConf") == []:
        errs.append(field_errors.required(f"{ELASTIC}.rdzvConf", "must have an entry, or be omitted"))


def _check_processes(spec: Object, errs: list[FieldError]) -> None:
    count = spec.get("nprocPerNode")
    if count is not None and not _is_process_count(count):
        detail = 'must be "auto", "cpu", "gpu", "xpu" or a number of processes such as "2"'
        errs.append(field_errors.invalid("spec.nprocPerNode", count, detail))


def _check_replica(kind: str, replica: Object | None, errs: list[FieldError]) -> None:
    at = f"{REPLICAS}[{kind}]"
    if kind not in names.REPLICA_TYPES:
        errs.append(field_errors.not_supported(at, kind, names.REPLICA_TYPES))
    if replica is None:
        errs.append(field_errors.required(at, "must have a template; omit the entry if there are no such replicas"))
        return
    checks.optional_enum(replica.get("restartPolicy"), names.RESTART_POLICIES, f"{at}.restartPolicy", errs)
    pod = (replica.get("template") or {}).get("spec") or {}
    containers = pod.get("containers") or []
    where = f"{at}.template.spec.containers"
    if not containers:
        errs.append(field_errors.required(where, "must be specified"))
    for index, container in enumerate(containers):
        if not container.get("image"):
            errs.append(field_errors.required(f"{where}[{index}].image", "must be required"))
    if not any(container.get("name") == names.CONTAINER for container in containers):
        errs.append(field_errors.required(where, f"must have at least one container with name {names.CONTAINER}"))
    count = replica.get("replicas")
    if kind == names.MASTER and count != 1:
        errs.append(field_errors.forbidden(f"{at}.replicas", "must be 1"))
    if kind == names.WORKER and count is not None and count < 1:
        errs.append(field_errors.forbidden(f"{at}.replicas", "must be at least 1"))


def _check_derived_names(job: str, replicas: Object, errs: list[FieldError]) -> None:
    """Check the names of services, which may have 63 characters; every replica has one."""
    last = [
        names.replica_name(job, kind, max((replicas[kind] or {}).get("replicas") or 1, 1) - 1)
        for kind in names.REPLICA_TYPES
        if kind in replicas
    ]
    longest = max(last, key=len, default="")
    excess = len(longest) - any_names.LABEL_LENGTH
    if excess > 0:
        detail = f"the replica name {longest} would have more than 63 characters; shorten the job name by {excess}"
        errs.append(field_errors.invalid("metadata.name", job, detail))
