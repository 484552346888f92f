"""Validation of Jobs and CronJobs on create and update."""

from __future__ import annotations

import re
import zoneinfo
from typing import Any

from torchyard.api import checks, field_errors, names, selectors
from torchyard.api.diff import semantically_equal
from torchyard.api.field_errors import FieldError
from torchyard.api.job import labels
from torchyard.api.job.policies import check_failure_policy, check_success_policy
from torchyard.api.job.schedule import schedule_problem
from torchyard.api.objects import Object
from torchyard.api.pod.validation import validate_template

_MAX_PARALLELISM = 100_000
_MAX_FAILED_INDEXES = 100_000
_MANY_COMPLETIONS = 100_000
_MANY_LIMIT = 10_000
_MANAGER_LENGTH = 63
_CRON_NAME_LENGTH = 52
_NONNEGATIVE = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_is_zone_part = re.compile(r"[A-Za-z.\-_0-9+]{1,14}").fullmatch


def validate_job(job: Object) -> list[FieldError]:
    """Validate a new Job whose selector has been generated."""
    errs: list[FieldError] = []
    spec, meta = job["spec"], job["metadata"]
    if not spec.get("manualSelector") and spec.get("selector") is not None:
        _check_generated(spec, meta, errs)
    _check_whole_spec(spec, errs)
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == "Indexed" and completions > 0:
        # the hostname of the last pod consists of the job's name and the index
        last = f"{meta.get('name')}-{completions - 1}"
        if names.label_problems(last):
            detail = f"will not able to create pod with invalid DNS label: {last}"
            errs.append(field_errors.invalid("metadata.name", meta.get("name"), detail))
    return errs


def _check_generated(spec: Object, meta: Object, errs: list[FieldError]) -> None:
    own = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    uid, name = meta.get("uid") or "", meta.get("name") or ""
    if not uid:
        errs.append(field_errors.required("metadata.uid"))
    expected = {
        labels.LEGACY_CONTROLLER_UID: uid,
        labels.LEGACY_JOB_NAME: name,
        labels.CONTROLLER_UID: uid,
        labels.JOB_NAME: name,
    }
    for key, value in expected.items():
        field = f"spec.template.metadata.labels[{key}]"
        if key not in own:
            errs.append(field_errors.required(field, f"must be '{value}'"))
        elif own[key] != value:
            errs.append(field_errors.invalid(field, dict(sorted(own.items())), f"must be '{value}'"))
    if not _matches(spec["selector"], expected):
        errs.append(field_errors.invalid("spec.selector", spec["selector"], "`selector` not auto-generated"))


def _matches(selector: Object | None, own: dict[str, str]) -> bool:
    """Whether a selector, as far as it is valid, selects these labels."""
    if selectors.validate_object(selector, ""):
        return True
    return selectors.from_object(selector).matches(own)


def _check_whole_spec(spec: Object, errs: list[FieldError]) -> None:
    check_job_spec(spec, "spec", errs)
    if spec.get("selector") is None:
        errs.append(field_errors.required("spec.selector"))
    else:
        errs += selectors.validate_object(spec["selector"], "spec.selector")
    own = (spec["template"].get("metadata") or {}).get("labels")
    if not _matches(spec.get("selector"), own or {}):
        value = dict(sorted(own.items())) if own else None
        detail = "`selector` does not match template `labels`"
        errs.append(field_errors.invalid("spec.template.metadata.labels", value, detail))


def check_job_spec(spec: Object, at: str, errs: list[FieldError]) -> None:
    """Check the fields that a Job's spec and a CronJob's job template share."""
    checks.nonnegative_fields(spec, _NONNEGATIVE, at, errs)
    per_index, max_failed = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    checks.nonnegative(per_index, f"{at}.backoffLimitPerIndex", errs)
    if max_failed is not None:
        checks.nonnegative(max_failed, f"{at}.maxFailedIndexes", errs)
        if per_index is None:
            errs.append(field_errors.required(f"{at}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    _check_manager(spec.get("managedBy"), f"{at}.managedBy", errs)
    mode = spec.get("completionMode")
    if mode is not None:
        checks.optional_enum(mode, ("NonIndexed", "Indexed"), f"{at}.completionMode", errs)
    if mode == "Indexed":
        _check_indexed(spec, at, errs)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                errs.append(field_errors.invalid(f"{at}.{name}", spec[name], "requires indexed completion mode"))
    if spec.get("podFailurePolicy") is not None:
        check_failure_policy(spec, f"{at}.podFailurePolicy", errs)
    success = spec.get("successPolicy")
    if success is not None:
        if mode != "Indexed":
            errs.append(field_errors.invalid(f"{at}.successPolicy", success, "requires indexed completion mode"))
        else:
            check_success_policy(spec, f"{at}.successPolicy", errs)
    allowed = ("Failed", "TerminatingOrFailed") if spec.get("podFailurePolicy") is None else ("Failed",)
    checks.optional_enum(spec.get("podReplacementPolicy"), allowed, f"{at}.podReplacementPolicy", errs)
    validate_template(spec["template"], f"{at}.template", errs)
    _check_restart_policy(spec, f"{at}.template.spec.restartPolicy", errs)


def _check_restart_policy(spec: Object, field: str, errs: list[FieldError]) -> None:
    policy = (spec["template"].get("spec") or {}).get("restartPolicy")
    if not policy or policy == "Always":
        # a missing policy has been defaulted to Always
        errs.append(field_errors.required(field, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        errs.append(field_errors.not_supported(field, policy, ("OnFailure", "Never")))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        errs.append(field_errors.invalid(field, policy, detail))


def _check_manager(manager: str | None, field: str, errs: list[FieldError]) -> None:
    """Check managedBy: a domain-prefixed path."""
    if manager is None:
        return
    checks.domain_path(manager, field, errs)
    if len(manager) > _MANAGER_LENGTH:
        errs.append(field_errors.too_long(field, _MANAGER_LENGTH))


def _check_indexed(spec: Object, at: str, errs: list[FieldError]) -> None:
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    max_failed = spec.get("maxFailedIndexes")
    if completions is None:
        errs.append(field_errors.required(f"{at}.completions", "when completion mode is Indexed"))
    if parallelism is not None and parallelism > _MAX_PARALLELISM:
        detail = f"must be less than or equal to {_MAX_PARALLELISM} when completion mode is Indexed"
        errs.append(field_errors.invalid(f"{at}.parallelism", parallelism, detail))
    if completions is not None and max_failed is not None and max_failed > completions:
        detail = "must be less than or equal to completions"
        errs.append(field_errors.invalid(f"{at}.maxFailedIndexes", max_failed, detail))
    if max_failed is not None and max_failed > _MAX_FAILED_INDEXES:
        detail = f"must be less than or equal to {_MAX_FAILED_INDEXES}"
        errs.append(field_errors.invalid(f"{at}.maxFailedIndexes", max_failed, detail))
    if completions is None or completions <= _MANY_COMPLETIONS or spec.get("backoffLimitPerIndex") is None:
        return
    detail = (
        f"must be less than or equal to {_MANY_LIMIT} when completions are above {_MANY_COMPLETIONS} "
        "and used with backoff limit per index"
    )
    if max_failed is None:
        missing = f"must be specified when completions is above {_MANY_COMPLETIONS}"
        errs.append(field_errors.required(f"{at}.maxFailedIndexes", missing))
    if parallelism is not None and parallelism > _MANY_LIMIT:
        errs.append(field_errors.invalid(f"{at}.parallelism", parallelism, detail))
    if max_failed is not None and max_failed > _MANY_LIMIT:
        errs.append(field_errors.invalid(f"{at}.maxFailedIndexes", max_failed, detail))


def validate_job_update(new: Object, old: Object) -> list[FieldError]:
    """Validate an update. Errors of the new spec are reported twice, as upstream reports them."""
    errs = validate_job(new)
    spec, before = new["spec"], old["spec"]
    _check_whole_spec(spec, errs)
    _check_completions(spec, before, errs)
    checks.immutable(spec.get("selector"), before.get("selector"), "spec.selector", errs)
    _check_template(new, old, errs)
    for field in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        checks.immutable(spec.get(field), before.get(field), f"spec.{field}", errs)
    return errs


def _check_completions(spec: Object, before: Object, errs: list[FieldError]) -> None:
    completions = spec.get("completions")
    if completions == before.get("completions"):
        return
    if spec.get("completionMode") != "Indexed":
        errs.append(field_errors.invalid("spec.completions", completions, names.IMMUTABLE))
    elif completions is not None and completions != spec.get("parallelism"):
        detail = "can only be modified in tandem with spec.parallelism"
        errs.append(field_errors.invalid("spec.completions", completions, detail))


def _check_template(new: Object, old: Object, errs: list[FieldError]) -> None:
    """Require an unchanged template, except for the scheduling directives of a suspended Job that has not started."""
    template, before = new["spec"]["template"], old["spec"]["template"]
    if old["spec"].get("suspend") and not (old.get("status") or {}).get("startTime"):
        before = _with_directives_of(template, before)
    if not semantically_equal(before, template):
        errs.append(field_errors.invalid("spec.template", template, names.IMMUTABLE))


def _with_directives_of(template: Object, before: Object) -> Object:
    spec, meta = template.get("spec") or {}, template.get("metadata") or {}
    merged: dict[str, Any] = {**(before.get("spec") or {})}
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        merged[field] = spec.get(field)
    nodes = (spec.get("affinity") or {}).get("nodeAffinity")
    affinity = {**(merged.get("affinity") or {}), "nodeAffinity": nodes}
    merged["affinity"] = {key: value for key, value in affinity.items() if value is not None}
    was = before.get("metadata") or {}
    own = {**was, "labels": meta.get("labels"), "annotations": meta.get("annotations")}
    return {**before, "metadata": own, "spec": merged}


def validate_cron_job(cron_job: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    _check_cron_spec(cron_job["spec"], None, errs)
    name = cron_job["metadata"].get("name") or ""
    if len(name) > _CRON_NAME_LENGTH:
        # the names of its jobs are eleven characters longer
        errs.append(field_errors.invalid("metadata.name", name, f"must be no more than {_CRON_NAME_LENGTH} characters"))
    return errs


def validate_cron_job_update(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    _check_cron_spec(new["spec"], old["spec"], errs)
    return errs


def _check_cron_spec(spec: Object, before: Object | None, errs: list[FieldError]) -> None:
    schedule, zone = spec.get("schedule"), spec.get("timeZone")
    if not schedule:
        errs.append(field_errors.required("spec.schedule"))
    else:
        zone_was_in_schedule = before is not None and "TZ" in (before.get("schedule") or "")
        _check_schedule(schedule, zone, errs, zone_allowed=zone_was_in_schedule)
    checks.nonnegative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds", errs)
    if zone is not None and (before is None or before.get("timeZone") != zone):
        _check_time_zone(zone, errs)
    policies = ("Allow", "Forbid", "Replace")
    checks.required_enum(spec.get("concurrencyPolicy"), policies, "spec.concurrencyPolicy", errs)
    template = spec["jobTemplate"].get("spec") or {}
    check_job_spec(template, "spec.jobTemplate.spec", errs)
    if template.get("selector") is not None:
        detail = "`selector` will be auto-generated"
        errs.append(field_errors.invalid("spec.jobTemplate.spec.selector", template["selector"], detail))
    if template.get("manualSelector"):
        errs.append(field_errors.not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
    checks.nonnegative_fields(spec, ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), "spec", errs)


def _check_schedule(schedule: str, zone: str | None, errs: list[FieldError], *, zone_allowed: bool) -> None:
    if problem := schedule_problem(schedule):
        errs.append(field_errors.invalid("spec.schedule", schedule, problem))
    if "TZ" not in schedule:
        return
    if not zone_allowed:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errs.append(field_errors.invalid("spec.schedule", schedule, detail))
    elif zone is not None:
        detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        errs.append(field_errors.invalid("spec.schedule", schedule, detail))


def _check_time_zone(zone: str, errs: list[FieldError]) -> None:
    field = "spec.timeZone"
    if not zone:
        errs.append(field_errors.invalid(field, zone, "timeZone must be nil or non-empty string"))
        return
    if any(part in (".", "..") or part.startswith("-") or not _is_zone_part(part) for part in zone.split("/")):
        errs.append(field_errors.invalid(field, zone, f"unknown time zone {zone}"))
        return
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errs.append(field_errors.invalid(field, zone, detail))
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        errs.append(field_errors.invalid(field, zone, f"unknown time zone {zone}"))
