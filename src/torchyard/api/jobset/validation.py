"""Validation of JobSets: upstream's rules with upstream's messages. Runs after schema validation and defaults.

Where upstream names no field, neither does the error: it starts with `<nil>: Internal error:`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable

from torchyard.api import checks, field_errors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.jobset import names
from torchyard.api.jobset.defaults import set_defaults
from torchyard.api.jobset.volume_claims import check_volume_claims
from torchyard.api.objects import Object
from torchyard.api.strategy import Strategy

_MAX_INT32 = 2**31 - 1
_MAX_MANAGER_LENGTH = 63
_MAX_RULE_NAME = 128
# A restart counter per Job must fit into the status.
_MAX_REPLICAS_WITH_JOB_RESTARTS = 1024
# What a generated name may add: five random characters.
_GENERATED_SUFFIX = "abcde"
_TOO_LONG = "must be no more than 63 characters"
_is_rule_name = re.compile("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?").fullmatch
_MUTABLE_POD_METADATA = ("annotations", "labels")
_MUTABLE_POD_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")
EXCLUSIVE_PLACEMENT = (
    f"annotation {names.EXCLUSIVE_TOPOLOGY}: the pods are not placed exclusively; add pod affinity to the templates,"
    f" or label the nodes and set {names.NODE_SELECTOR_STRATEGY}"
)


class JobSetStrategy(Strategy):
    """Defaults, validation and warnings beyond the schema of the CustomResourceDefinition."""

    def prepare_create(self, obj: Object) -> None:
        set_defaults(obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        """Set the defaults again, so that the manifest of an existing JobSet can be applied once more.

        Upstream's webhook does not, and refuses it: what the manifest leaves out seems to be removed.
        """
        set_defaults(new)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validate_update(new, old)

    def warnings(self, obj: Object) -> list[str]:
        return warnings(obj)


def validate(jobset: Object) -> list[FieldError]:
    spec = jobset.get("spec") or {}
    errs: list[FieldError] = []
    replicated_jobs = spec.get("replicatedJobs") or []
    policy = spec.get("failurePolicy") or {}
    if policy.get("restartStrategy") == names.IN_PLACE_RESTART:
        text = "InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled"
        errs.append(_internal(text))
    if replicated_jobs and replicated_jobs[0].get("dependsOn") is not None:
        errs.append(_internal("DependsOn can't be set for the first ReplicatedJob"))
    _check_subdomain((spec.get("network") or {}).get("subdomain"), errs)
    _check_manager(spec.get("managedBy"), errs)
    name = _expected_name(jobset)
    known: list[str] = []
    for index, replicated_job in enumerate(replicated_jobs):
        known.append(replicated_job["name"])
        _check_replicated_job(name, replicated_job, f"spec.replicatedJobs[{index}]", known, errs)
    for target in (spec.get("successPolicy") or {}).get("targetReplicatedJobs") or ():
        if target not in known:
            errs.append(_internal(f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs"))
    _check_failure_policy(policy, replicated_jobs, errs)
    if spec.get("coordinator") is not None:
        _check_coordinator(jobset, name, errs)
    check_volume_claims(spec, name, errs)
    return errs


def validate_update(new: Object, old: Object) -> list[FieldError]:
    """Only what the queue writes into pod templates may change, while the JobSet is or becomes suspended."""
    errs: list[FieldError] = []
    before, after = old.get("spec") or {}, new.get("spec") or {}
    compared = after.get("replicatedJobs")
    if before.get("suspend") or after.get("suspend"):
        compared = _with_mutable_fields_of(compared, before.get("replicatedJobs"))
    if compared != before.get("replicatedJobs"):
        errs.append(field_errors.invalid("spec.replicatedJobs", compared, "field is immutable"))
    checks.immutable(after.get("managedBy"), before.get("managedBy"), "spec.managedBy", errs)
    return errs


def warnings(jobset: Object) -> list[str]:
    annotations = [jobset["metadata"].get("annotations") or {}]
    for replicated_job in (jobset.get("spec") or {}).get("replicatedJobs") or ():
        annotations.append(((replicated_job.get("template") or {}).get("metadata") or {}).get("annotations") or {})
    wants = any(names.EXCLUSIVE_TOPOLOGY in each and names.NODE_SELECTOR_STRATEGY not in each for each in annotations)
    return [EXCLUSIVE_PLACEMENT] if wants else []


def _internal(text: str) -> FieldError:
    """An error that upstream does not attribute to a field."""
    return FieldError("InternalError", "<nil>", f"Internal error: {text}")


def _expected_name(jobset: Object) -> str:
    metadata = jobset["metadata"]
    generated = metadata.get("generateName")
    return str(metadata.get("name") or (f"{generated}{_GENERATED_SUFFIX}" if generated else ""))


def _check_subdomain(subdomain: str | None, errs: list[FieldError]) -> None:
    if not subdomain:
        return
    field = "spec.network.subdomain"
    checks.report_problems(any_names.subdomain_problems(subdomain), field, subdomain, errs)
    problems = any_names.dns1035_problems(subdomain)
    too_long = ".spec.network.subdomain is too long, must be less than 63 characters"
    checks.report_problems(_renamed(problems, too_long), field, subdomain, errs)


def _check_manager(manager: str | None, errs: list[FieldError]) -> None:
    if manager is None:
        return
    checks.domain_path(manager, "spec.managedBy", errs)
    if len(manager.encode()) > _MAX_MANAGER_LENGTH:
        errs.append(field_errors.too_long("spec.managedBy", _MAX_MANAGER_LENGTH))


def _check_replicated_job(
    jobset: str, replicated_job: Object, at: str, known: list[str], errs: list[FieldError]
) -> None:
    name, replicas = replicated_job["name"], replicated_job.get("replicas", 1)
    job = (replicated_job.get("template") or {}).get("spec") or {}
    checks.nonnegative(replicas, f"{at}.replicas", errs)
    if job.get("parallelism", 1) * replicas > _MAX_INT32:
        text = f"the product of replicas and parallelism must not exceed {_MAX_INT32} for replicatedJob '{name}'"
        errs.append(_internal(text))
    group = replicated_job.get("groupName", "")
    too_long = ".spec.replicatedJob[].groupName is too long, must be less than 63 characters"
    problems = _renamed(any_names.dns1035_problems(group), too_long)
    checks.report_problems(problems, f"{at}.groupName", group, errs)
    longest = names.job_name(jobset, name, replicas - 1)
    _check_child_name(longest, longest, "job", f"{at}.name", errs)
    if job.get("completionMode") == "Indexed" and job.get("completions") is not None:
        pod = f"{longest}-{job['completions'] - 1}-abcde"
        _check_child_name(pod, longest, "pod", f"{at}.name", errs)
    for dependency in replicated_job.get("dependsOn") or ():
        if dependency["name"] not in known:
            text = f"replicatedJob: {name} cannot depend on replicatedJob: {dependency['name']}"
            errs.append(_internal(text))


def _check_child_name(name: str, shown: str, kind: str, field: str, errs: list[FieldError]) -> None:
    too_long = f"JobSet name is too long, {kind} names generated for this JobSet will exceed 63 characters"
    checks.report_problems(_renamed(any_names.dns1035_problems(name), too_long), field, shown, errs)


def _renamed(problems: Iterable[str], too_long: str) -> list[str]:
    return [too_long if problem == _TOO_LONG else problem for problem in problems]


def _check_failure_policy(policy: Object, replicated_jobs: list[Object], errs: list[FieldError]) -> None:
    rules = policy.get("rules") or []
    restarts_jobs = any(rule.get("action") in (names.RESTART_JOB, names.RESTART_JOB_FREE) for rule in rules)
    limit = _MAX_REPLICAS_WITH_JOB_RESTARTS
    if restarts_jobs and any(job.get("replicas", 1) > limit for job in replicated_jobs):
        text = (
            "JobSet cannot have a failure policy rule with RestartJob or RestartJobAndIgnoreMaxRestarts action"
            f" and a replicated job with replicas > {limit}"
        )
        errs.append(_internal(text))
    known = {job["name"] for job in replicated_jobs}
    for rule in rules:
        _check_failure_rule(rule, known, errs)
    indexes: dict[str, list[int]] = {}
    for index, rule in enumerate(rules):
        indexes.setdefault(rule.get("name", ""), []).append(index)
    for name, same_name in indexes.items():
        if len(same_name) > 1:
            listed = " ".join(str(index) for index in same_name)
            text = f"rule names are not unique, rules with indices [{listed}] all have the same name '{name}'"
            errs.append(_internal(text))


def _check_failure_rule(rule: Object, known: set[str], errs: list[FieldError]) -> None:
    name = rule.get("name", "")
    if not 1 <= len(name.encode()) <= _MAX_RULE_NAME:
        text = (
            f"invalid failure policy rule name of length {len(name.encode())}, the rule name must be at least 1"
            f" characters long and at most {_MAX_RULE_NAME} characters long"
        )
        errs.append(_internal(text))
    if not _is_rule_name(name):
        text = (
            f"invalid failure policy rule name '{name}', a failure policy rule name must start with an alphabetic"
            " character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an"
            " alphanumeric character or '_'"
        )
        errs.append(_internal(text))
    for target in rule.get("targetReplicatedJobs") or ():
        if target not in known:
            text = f"invalid replicatedJob name '{target}' in failure policy does not appear in .spec.ReplicatedJobs"
            errs.append(_internal(text))
    for reason in rule.get("onJobFailureReasons") or ():
        if reason not in names.FAILURE_REASONS:
            text = f"invalid job failure reason '{reason}' in failure policy is not a recognized job failure reason"
            errs.append(_internal(text))


def _check_coordinator(jobset: Object, name: str, errs: list[FieldError]) -> None:
    problem = _coordinator_problem(jobset["spec"])
    if problem:
        errs.append(_internal(problem))
    label = names.coordinator_endpoint({**jobset, "metadata": {**jobset["metadata"], "name": name}})
    # The Kubernetes libraries of JobSet 0.12 count bytes here.
    problems = [each.replace("63 characters", "63 bytes") for each in any_names.label_value_problems(label)]
    if problems:
        text = (
            f"spec will lead to invalid label value {field_errors.format_value(label)} for coordinator label"
            f' "{names.COORDINATOR}" (long JobSet / ReplicatedJob / SubDomain name?): {", ".join(problems)}'
        )
        errs.append(_internal(text))


def _coordinator_problem(spec: Object) -> str:
    coordinator = spec["coordinator"]
    wanted = coordinator["replicatedJob"]
    chosen = next((job for job in spec.get("replicatedJobs") or () if job["name"] == wanted), None)
    if chosen is None:
        return f"coordinator replicatedJob {wanted} does not exist"
    job_index, pod_index = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    if not 0 <= job_index < chosen.get("replicas", 1):
        return f"coordinator job index {job_index} is invalid for replicatedJob {wanted}"
    job = (chosen.get("template") or {}).get("spec") or {}
    completions = job.get("completions")
    if completions is None or job.get("completionMode") != "Indexed":
        return "job for coordinator pod must be indexed completion mode, and completions number must be set"
    if not 0 <= pod_index < completions:
        return f"coordinator pod index {pod_index} is invalid for replicatedJob {wanted} job index {job_index}"
    return ""


def _with_mutable_fields_of(new: list[Object] | None, old: list[Object] | None) -> list[Object] | None:
    """The new replicated jobs, with the mutable fields of the old ones of the same name."""
    if new is None:
        return None
    by_name = {job["name"]: job for job in old or ()}
    return [_replaced(job, by_name[job["name"]]) if job["name"] in by_name else job for job in new]


def _replaced(new: Object, old: Object) -> Object:
    job = copy.deepcopy(new)
    pod, before = (each.get("template", {}).get("spec", {}).get("template", {}) for each in (job, old))
    for holder, fields in (("metadata", _MUTABLE_POD_METADATA), ("spec", _MUTABLE_POD_FIELDS)):
        values = before.get(holder) or {}
        merged = {key: value for key, value in (pod.get(holder) or {}).items() if key not in fields}
        merged |= {key: values[key] for key in fields if key in values}
        if merged or holder in before:
            pod[holder] = merged
        else:
            pod.pop(holder, None)
    return job
