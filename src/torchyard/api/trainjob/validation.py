"""Validation of TrainJobs and runtimes beyond their schemas: upstream's rules and messages, and ours.

A TrainJob is checked together with its runtime; who calls knows where runtimes are. Upstream compares patches with the
runtime after it has applied them, so that it accepts a patch of a job that does not exist; here it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchyard.api import field_errors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.strategy import Strategy
from torchyard.api.trainjob import elastic, environment, messages, names

_JOBS = "spec.template.spec.replicatedJobs"
_PATCHES = "spec.runtimePatches"
_ENV = "spec.trainer.env"
NOT_SUSPENDED = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
_DEPRECATED = (
    '{kind} "{name}" is deprecated and will be removed in a future release of Kubeflow Trainer. See runtime deprecation'
    " policy: https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"
)
_is_path = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+").fullmatch
_PATH = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"
_NO_MANAGER = 'must be a domain-prefixed path (such as "acme.io/foo")'


class RuntimeStrategy(Strategy):
    """The rules of runtimes. Those of TrainJobs need the runtime, so admission applies them."""

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_runtime(obj)


def replicated_jobs(runtime: Object) -> list[Object]:
    template = (runtime.get("spec") or {}).get("template") or {}
    jobs: list[Object] = (template.get("spec") or {}).get("replicatedJobs") or []
    return jobs


def ancestor(job: Object) -> str:
    """The step of the training that a replicated job is; empty for others."""
    metadata = (job.get("template") or {}).get("metadata") or {}
    return str((metadata.get("labels") or {}).get(names.ANCESTOR, ""))


def containers(job: Object, field: str = "containers") -> list[Object]:
    template = ((job.get("template") or {}).get("spec") or {}).get("template") or {}
    listed: list[Object] = (template.get("spec") or {}).get(field) or []
    return listed


def validate_runtime(runtime: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    for index, job in enumerate(replicated_jobs(runtime)):
        step = ancestor(job)
        if step not in names.CONTAINERS:
            continue
        at = f"{_JOBS}[{index}]"
        if job.get("replicas", 1) != 1:
            errs.append(field_errors.invalid(f"{at}.replicas", job["replicas"], "always must be 1"))
        listed = containers(job)
        if not any(container.get("name") == names.CONTAINERS[step] for container in listed):
            # As Go prints them: name and image first, and with resources.
            shown = [
                {**{key: container[key] for key in ("name", "image") if key in container}, "resources": {}, **container}
                for container in listed
            ]
            detail = f"must contain the required container for the ancestor: {step}"
            errs.append(field_errors.invalid(f"{at}.template.spec.template.spec.containers", shown, detail))
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    errs += elastic.runtime_errors(runtime, policy)
    if names.FLUX in policy:
        errs.append(field_errors.forbidden("spec.mlPolicy.flux", messages.flux_not_supported()))
    return errs


def runtime_missing(job: Object) -> FieldError:
    reference = names.runtime_reference(job)
    kind, name = reference["kind"], reference["name"]
    # The capital is upstream's.
    field = "spec.RuntimeRef" if kind == names.CLUSTER_RUNTIME_KIND else "spec.runtimeRef"
    detail = (
        f'{kind}.{names.GROUP} "{name}" not found: specified {kind[0].lower()}{kind[1:]} must be created before the'
        " TrainJob is created"
    )
    return field_errors.invalid(field, _shown(reference), detail)


def warnings(job: Object, runtime: Object) -> list[str]:
    """Upstream's about a deprecated runtime, and ours about fields that the runtime gives no effect."""
    texts = []
    reference = names.runtime_reference(job)
    if (runtime["metadata"].get("labels") or {}).get(names.SUPPORT) == names.DEPRECATED:
        texts.append(f"Referenced {_DEPRECATED.format(kind=reference['kind'], name=reference['name'])}")
    steps = {ancestor(each) for each in replicated_jobs(runtime)}
    for step, fields in _fields_by_step(job, runtime):
        if fields and step not in steps:
            texts.append(messages.ignored(fields, reference["kind"], reference["name"], step))
    return texts


def _fields_by_step(job: Object, runtime: Object) -> Iterator[tuple[str, list[str]]]:
    """The fields that a job sets for each step of the training."""
    trainer: Object = job["spec"].get("trainer") or {}
    counted: tuple[str, ...] = ()
    if names.MPI in ((runtime.get("spec") or {}).get("mlPolicy") or {}):
        counted = ("numNodes", "numProcPerNode")  # by the name of the job
    yield names.TRAINER, [f"spec.trainer.{field}" for field, value in trainer.items() if value and field not in counted]
    initializers = job["spec"].get("initializer") or {}
    for kind, step in names.INITIALIZERS.items():
        yield step, [f"spec.initializer.{kind}"] if initializers.get(kind) is not None else []


def validate(
    job: Object, runtime: Object | None, *, old: Object | None = None, jobset: Object | None = None
) -> list[FieldError]:
    """Check a TrainJob with its runtime; for an update also with the stored job and its JobSet."""
    if not names.is_supported_runtime(job):
        return [FieldError("FieldValueInvalid", "", messages.unsupported_runtime(names.runtime_key(job)))]
    errs = [*_manager_errors(job), *_ttl_errors(job, old)]
    if runtime is None:
        # The job has a snapshot of a runtime that is deleted later.
        return errs if old is not None else [runtime_missing(job), *errs]
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    errs += [
        *_count_errors(job),
        *_reserved_env(job, policy),
        *_tune_errors(job, policy),
        *elastic.job_errors(job, runtime, policy),
    ]
    errs += [*_injection_errors(runtime, policy), *_initializer_errors(job, runtime), *_patch_errors(job, runtime)]
    if old is not None:
        errs += _update_errors(job, old, jobset)
    return errs


def _shown(reference: Object) -> Object:
    return {key: reference[key] for key in ("name", "apiGroup", "kind")}


def _count_errors(job: Object) -> Iterator[FieldError]:
    """Upstream's schema allows any number, and its controller then fails to create the JobSet again and again."""
    trainer = job["spec"].get("trainer") or {}
    for field, least in (("numNodes", 1), ("numProcPerNode", 1)):
        value = trainer.get(field)
        if value is not None and value < least:
            yield field_errors.invalid(f"spec.trainer.{field}", value, f"must be greater than or equal to {least}")


def _ttl_errors(job: Object, old: Object | None) -> Iterator[FieldError]:
    written = elastic.annotation(job, names.TTL)
    if written is None or (old is not None and elastic.annotation(old, names.TTL) == written):
        return
    if names.time_to_live(job) is None:
        yield field_errors.invalid(f"metadata.annotations[{names.TTL}]", written, messages.BAD_TTL)


def _tune_errors(job: Object, policy: Object) -> Iterator[FieldError]:
    """Upstream completes exactly this command with the recipe and the configuration of a model that it knows."""
    trainer: Object = job["spec"].get("trainer") or {}
    command, args = trainer.get("command"), trainer.get("args") or [""]
    if names.TORCH in policy and command == ["tune", "run"] and (not args[0] or "=" in args[0]):
        yield field_errors.forbidden("spec.trainer.command", messages.TUNE_NOT_SUPPORTED)


def _reserved_env(job: Object, policy: Object) -> Iterator[FieldError]:
    env = (job["spec"].get("trainer") or {}).get("env") or []
    plugin = next((name for name in names.POLICIES if name in policy), "")
    reserved = environment.RESERVED.get(plugin, ())
    used = sorted({variable["name"] for variable in env if variable["name"] in reserved})
    if used and plugin == names.XGBOOST:
        for index, variable in enumerate(env):
            if variable["name"] in reserved:
                detail = f"{variable['name']} is reserved for the XGBoost runtime"
                yield field_errors.forbidden(f"{_ENV}[{index}]", detail)
    elif used:
        detail = f"must not have reserved envs, invalid envs configured: [{' '.join(used)}]"
        yield field_errors.invalid(_ENV, env, detail)


def _injection_errors(runtime: Object, policy: Object) -> Iterator[FieldError]:
    known = {(job["name"], container["name"]) for job in replicated_jobs(runtime) for container in containers(job)}
    for target in ((policy.get(names.TORCH) or {}).get("envInjection") or {}).get("targets") or ():
        for name in target["containerNames"]:
            if (target["jobName"], name) not in known:
                shown = {key: target[key] for key in ("jobName", "containerNames")}
                detail = (
                    f'envInjection target podSet "{target["jobName"]}" container "{name}" not found in runtime template'
                )
                yield field_errors.invalid("spec.runtimeRef", shown, detail)


def _initializer_errors(job: Object, runtime: Object) -> Iterator[FieldError]:
    jobs = {listed["name"]: listed for listed in replicated_jobs(runtime)}
    shown = _shown(names.runtime_reference(job))
    for kind, name in names.INITIALIZERS.items():
        if (job["spec"].get("initializer") or {}).get(kind) is None:
            continue
        container = next((each for each in containers(jobs.get(name) or {}) if each.get("name") == name), None)
        if name not in jobs:
            detail = f"must have {name} job when trainJob is configured with input {kind}Config"
        elif container is None:
            detail = f"must have container with name - {name} in the {name} job"
        elif not any(mount["name"] == names.INITIALIZER_VOLUME for mount in container.get("volumeMounts") or ()):
            detail = (
                f"must have volumeMount with name - {names.INITIALIZER_VOLUME} in container {name} of the {name} job"
            )
        else:
            continue
        yield field_errors.invalid("spec.runtimeRef", shown, detail)


def _manager_errors(job: Object) -> Iterator[FieldError]:
    field = f"{_PATCHES}.manager"
    for patch in job["spec"].get("runtimePatches") or ():
        domain, slash, path = patch["manager"].partition("/")
        if not (domain and slash and path):
            yield field_errors.invalid(field, patch["manager"], _NO_MANAGER)
            continue
        yield from (field_errors.invalid(field, domain, problem) for problem in any_names.subdomain_problems(domain))
        if not _is_path(path):
            yield field_errors.invalid(field, path, _PATH)


def _patch_errors(job: Object, runtime: Object) -> Iterator[FieldError]:
    patches = job["spec"].get("runtimePatches") or []
    jobs = {listed["name"]: listed for listed in replicated_jobs(runtime)}
    for patch in patches:
        template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        for edit in (template.get("spec") or {}).get("replicatedJobs") or ():
            if edit["name"] not in jobs:
                detail = "must not have replicated job that doesn't exist in the runtime job template"
                yield field_errors.invalid(_PATCHES, patches, detail)
                continue
            for field, kind in (("initContainers", "initContainer"), ("containers", "container")):
                known = {container["name"] for container in containers(jobs[edit["name"]], field)}
                for container in containers(edit, field):
                    if container["name"] not in known:
                        detail = f"must not have {kind} that doesn't exist in the runtime job {edit['name']}"
                        yield field_errors.invalid(_PATCHES, patches, detail)
                    elif container.get("env") and container["name"] in names.CONTAINERS.values():
                        steps = f"{names.DATASET_INITIALIZER}, {names.MODEL_INITIALIZER}, {names.NODE}"
                        yield field_errors.invalid(_PATCHES, patches, f"must not have envs for the {steps} containers")


def _update_errors(job: Object, old: Object, jobset: Object | None) -> list[FieldError]:
    if job["spec"].get("runtimePatches") == old["spec"].get("runtimePatches"):
        return []
    if not (job["spec"].get("suspend") or old["spec"].get("suspend")):
        return [field_errors.forbidden(_PATCHES, NOT_SUSPENDED)]
    return [
        field_errors.forbidden(
            _PATCHES,
            f"RuntimePatches cannot be modified when the JobSet's ReplicatedJob {status['name']} is still active",
        )
        for status in ((jobset or {}).get("status") or {}).get("replicatedJobsStatus") or ()
        if status.get("active", 0) > 0
    ]


def stamp_patches(job: Object, old: Object | None, now: str) -> None:
    """Set the time of each patch in place: kept while the patch is the same, otherwise now."""
    before = {patch["manager"]: patch for patch in ((old or {}).get("spec") or {}).get("runtimePatches") or ()}
    for patch in (job.get("spec") or {}).get("runtimePatches") or ():
        if not isinstance(patch, dict):
            continue  # validation rejects it
        stored = before.get(patch.get("manager", ""))
        if stored is not None and {**stored, "time": None} == {**patch, "time": None}:
            patch["time"] = stored.get("time") or now
        elif old is not None or not patch.get("time"):
            patch["time"] = now
