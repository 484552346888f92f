"""Validation of Job status updates: finished jobs stay finished, counters never decrease.

Upstream added these rules when it allowed controllers other than its own to run Jobs. A rule applies only if the
update changes the fields it concerns, so that other fields of an invalid status can still be corrected.
"""

from __future__ import annotations

from torchyard.api import checks, field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.job.indexes import IndexesError, count_indexes, first_overlap
from torchyard.api.objects import Object

_TERMINAL = ("Failed", "Complete", "FailureTarget")


def is_true(status: Object, kind: str) -> bool:
    """Whether the condition exists and is true."""
    return any(
        condition.get("type") == kind and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _is_false(status: Object, kind: str) -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == "False"
        for condition in status.get("conditions") or ()
    )


def is_finished(status: Object) -> bool:
    return is_true(status, "Complete") or is_true(status, "Failed")


def _refuse(field: str, detail: str, errs: list[FieldError]) -> None:
    """Append an error about the conditions as a whole, without the value, as upstream does."""
    errs.append(FieldError("FieldValueInvalid", f"status.{field}", f"Invalid value: {detail}"))


def validate_job_status(new: Object, old: Object) -> list[FieldError]:
    """Validate a status update of a Job."""
    status, before, spec = new.get("status") or {}, old.get("status") or {}, new["spec"]
    errs: list[FieldError] = []
    checks.nonnegative_fields(status, ("active", "succeeded", "failed", "ready", "terminating"), "status", errs)
    _check_uncounted(status.get("uncountedTerminatedPods") or {}, errs)
    _check_conditions(status, before, errs)
    _check_times(status, before, errs)
    _check_finished(status, before, errs)
    _check_indexes(status, before, spec, errs)
    ready = status.get("ready") or 0
    if ready > (status.get("active") or 0) and _has_changed(status, before, "ready", "active"):
        errs.append(field_errors.invalid("status.ready", ready, "cannot set more ready pods than active"))
    _check_success(status, spec, errs)
    _check_transition(status, before, spec, errs)
    return errs


def _has_changed(status: Object, before: Object, *fields: str) -> bool:
    return any(status.get(field) != before.get(field) for field in fields)


def _has_flipped(status: Object, before: Object, *kinds: str) -> bool:
    return any(is_true(status, kind) != is_true(before, kind) for kind in kinds)


def _check_uncounted(uncounted: Object, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for kind in ("succeeded", "failed"):
        for index, uid in enumerate(uncounted.get(kind) or ()):
            field = f"status.uncountedTerminatedPods.{kind}[{index}]"
            if not uid:
                errs.append(field_errors.invalid(field, uid, "must not be empty"))
            elif uid in seen:
                errs.append(field_errors.duplicate(field, uid))
            seen.add(uid)


def _check_conditions(status: Object, before: Object, errs: list[FieldError]) -> None:
    complete, failed = is_true(status, "Complete"), is_true(status, "Failed")
    if complete and failed and _has_flipped(status, before, "Complete", "Failed"):
        _refuse("conditions", "cannot set Complete=True and Failed=true conditions", errs)
    if complete and is_true(status, "FailureTarget") and _has_flipped(status, before, "Complete", "FailureTarget"):
        _refuse("conditions", "cannot set Complete=True and FailureTarget=true conditions", errs)


def _check_times(status: Object, before: Object, errs: list[FieldError]) -> None:
    complete, start, end = is_true(status, "Complete"), status.get("startTime"), status.get("completionTime")
    changed = _has_flipped(status, before, "Complete") or _has_changed(status, before, "completionTime")
    if changed and end and not complete:
        detail = "cannot set completionTime when there is no Complete=True condition"
        errs.append(field_errors.invalid("status.completionTime", end, detail))
    if changed and complete and not end:
        errs.append(field_errors.required("status.completionTime", "completionTime is required for Complete jobs"))
    if start and end and end < start and _has_changed(status, before, "startTime", "completionTime"):
        detail = "must be equal to or after `startTime`"
        errs.append(field_errors.invalid("status.completionTime", end, detail))


def _check_finished(status: Object, before: Object, errs: list[FieldError]) -> None:
    if _has_flipped(status, before, "Failed") and is_true(status, "Failed") and not is_true(status, "FailureTarget"):
        _refuse("conditions", "cannot set Failed=True condition without the FailureTarget=true condition", errs)
    if (
        _has_flipped(status, before, "Complete")
        and is_true(status, "Complete")
        and not is_true(status, "SuccessCriteriaMet")
    ):
        detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        _refuse("conditions", detail, errs)
    if not is_finished(status):
        return
    flipped = is_finished(status) != is_finished(before)
    if status.get("active") and (flipped or _has_changed(status, before, "active")):
        errs.append(field_errors.invalid("status.active", status["active"], "active>0 is invalid for finished job"))
    if not status.get("startTime") and (flipped or _has_changed(status, before, "startTime")):
        errs.append(field_errors.required("status.startTime", "startTime is required for finished job"))
    uncounted = status.get("uncountedTerminatedPods") or {}
    if any(uncounted.values()) and (flipped or _has_changed(status, before, "uncountedTerminatedPods")):
        detail = "must be empty for finished job"
        errs.append(field_errors.invalid("status.uncountedTerminatedPods", uncounted, detail))
    if status.get("terminating") and (flipped or _has_changed(status, before, "terminating")):
        detail = "terminating>0 is invalid for finished job"
        errs.append(field_errors.invalid("status.terminating", status["terminating"], detail))


def _check_indexes(status: Object, before: Object, spec: Object, errs: list[FieldError]) -> None:
    completions = spec.get("completions")
    completed, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    completed_changed = completed != (before.get("completedIndexes") or "")
    failed_changed = failed != before.get("failedIndexes")
    if completed_changed and completions is not None:
        _check_format(completed, completions, "completedIndexes", errs)
    if (
        failed_changed
        and completions is not None
        and failed is not None
        and spec.get("backoffLimitPerIndex") is not None
    ):
        _check_format(failed, completions, "failedIndexes", errs)
    if completed_changed and completed and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errs.append(field_errors.invalid("status.completedIndexes", completed, detail))
    if failed_changed and failed is not None and spec.get("backoffLimitPerIndex") is None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errs.append(field_errors.invalid("status.failedIndexes", failed, detail))
    if (completed_changed or failed_changed) and completions is not None and failed:
        overlap = first_overlap(completed, failed, completions)
        if overlap is not None:
            detail = f"failedIndexes and completedIndexes overlap at index: {overlap}"
            errs.append(field_errors.invalid("status.failedIndexes", failed, detail))


def _check_format(indexes: str, completions: int, field: str, errs: list[FieldError]) -> None:
    try:
        count_indexes(indexes, completions)
    except IndexesError as error:
        errs.append(field_errors.invalid(f"status.{field}", indexes, f"error parsing {field}: {error.message}"))


def _check_success(status: Object, spec: Object, errs: list[FieldError]) -> None:
    met = is_true(status, "SuccessCriteriaMet")
    if met and is_true(status, "Failed"):
        _refuse("conditions", "cannot set SuccessCriteriaMet=True and Failed=true conditions", errs)
    if met and is_true(status, "FailureTarget"):
        _refuse("conditions", "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions", errs)
    if spec.get("successPolicy") is not None and not met and is_true(status, "Complete"):
        detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        _refuse("conditions", detail, errs)


def _check_transition(status: Object, before: Object, spec: Object, errs: list[FieldError]) -> None:
    for kind in _TERMINAL:
        if is_true(before, kind) and not is_true(status, kind):
            _refuse("conditions", f"cannot disable the terminal {kind}=True condition", errs)
    if (status.get("failed") or 0) < (before.get("failed") or 0):
        errs.append(
            field_errors.invalid("status.failed", status.get("failed") or 0, "cannot decrease the failed counter")
        )
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if (status.get("succeeded") or 0) < (before.get("succeeded") or 0) and not elastic:
        detail = "cannot decrease the succeeded counter"
        errs.append(field_errors.invalid("status.succeeded", status.get("succeeded") or 0, detail))
    end, end_before = status.get("completionTime"), before.get("completionTime")
    if end and end_before and end != end_before:
        errs.append(field_errors.invalid("status.completionTime", end, "completionTime cannot be mutated"))
    start_before = before.get("startTime")
    # A resumed job starts anew: this is the only update that may change startTime.
    goes_on = is_true(before, "Suspended") and _is_false(status, "Suspended")
    if start_before and status.get("startTime") != start_before and not spec.get("suspend") and not goes_on:
        errs.append(field_errors.required("status.startTime", "startTime cannot be removed for unsuspended job"))
    met, was_met = is_true(status, "SuccessCriteriaMet"), is_true(before, "SuccessCriteriaMet")
    if was_met and not met:
        _refuse("conditions", "cannot disable the SuccessCriteriaMet=True condition", errs)
    if is_true(before, "Complete") and not was_met and met:
        detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        _refuse("conditions", detail, errs)
