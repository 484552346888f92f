"""Strategies of Job and CronJob."""

from __future__ import annotations

from torchyard.api import names
from torchyard.api.field_errors import FieldError
from torchyard.api.job import labels
from torchyard.api.job.defaults import default_cron_job, default_job, default_labels, generate_selector
from torchyard.api.job.status import validate_job_status
from torchyard.api.job.validation import (
    validate_cron_job,
    validate_cron_job_update,
    validate_job,
    validate_job_update,
)
from torchyard.api.objects import Object
from torchyard.api.pod.strategy import drop_disabled_fields
from torchyard.api.pod.warnings import template_warnings
from torchyard.api.status_subresource import StatusSubresourceStrategy

_POD_NAMES = (
    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
    "a DNS label is recommended"
)


_RULES = (("podFailurePolicy", "rules"), ("successPolicy", "rules"))
ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set"
    " propagationPolicy=Orphan to suppress this warning"
)


class JobStrategy(StatusSubresourceStrategy):
    validates_prefix_on_update = True
    default_propagation = "Orphan"
    empty_is_null = tuple(("spec", *rules) for rules in _RULES)

    def delete_warnings(self) -> list[str]:
        return [ORPHAN_WARNING]

    def default(self, obj: Object) -> None:
        default_job(obj)

    def prepare_create(self, obj: Object) -> None:
        """Generate the selector. Requires `metadata.uid`, by which the Job selects its pods."""
        super().prepare_create(obj)
        drop_disabled_fields(obj["spec"]["template"]["spec"])
        template = obj["spec"]["template"]["metadata"]
        labels = obj["metadata"].get("labels")
        taken_over = not labels or labels is template.get("labels")
        if not obj["spec"].get("manualSelector"):
            generate_selector(obj)
        own = template.get("labels")
        # labels derived from an invalid name are reported once, in the template
        if taken_over and own and not names.validate_labels(own, ""):
            obj["metadata"]["labels"] = dict(own)

    def prepare_status(self, new: Object, old: Object) -> None:
        super().prepare_status(new, old)
        default_labels(new)  # a body without a spec has no template to take them from

    def rename(self, obj: Object, before: str) -> None:
        name = obj["metadata"]["name"]
        for holder in (obj["metadata"], obj["spec"]["template"]["metadata"]):
            own = holder.get("labels") or {}
            own.update({key: name for key in (labels.LEGACY_JOB_NAME, labels.JOB_NAME) if own.get(key) == before})

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_job(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validate_job_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return validate_job_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        warnings = []
        if problems := names.label_problems(obj["metadata"].get("name") or ""):
            warnings.append(f"{_POD_NAMES}: [{' '.join(problems)}]")
        spec = obj["spec"]
        if spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 100_000:
            warnings += _many_completions(spec)
        return warnings + template_warnings(spec["template"], "spec.template")

    def selectable(self, obj: Object) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded") or 0)}


def _many_completions(spec: Object) -> list[str]:
    if (spec.get("parallelism") or 0) <= 10_000:
        return []
    return [
        "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
        "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
    ]


class CronJobStrategy(StatusSubresourceStrategy):
    empty_is_null = tuple(("spec", "jobTemplate", "spec", *rules) for rules in _RULES)

    def default(self, obj: Object) -> None:
        default_cron_job(obj)

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        drop_disabled_fields(obj["spec"]["jobTemplate"]["spec"]["template"]["spec"])

    def prepare_update(self, new: Object, old: Object) -> None:
        super().prepare_update(new, old)
        drop_disabled_fields(new["spec"]["jobTemplate"]["spec"]["template"]["spec"])

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_cron_job(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return validate_cron_job_update(new, old)

    def warnings(self, obj: Object) -> list[str]:
        warnings = []
        if problems := names.label_problems(obj["metadata"].get("name") or ""):
            warnings.append(f"{_POD_NAMES}: [{' '.join(problems)}]")
        template = (obj["spec"]["jobTemplate"].get("spec") or {}).get("template") or {}
        return warnings + template_warnings(template, "spec.jobTemplate.spec.template")
