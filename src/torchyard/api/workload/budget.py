"""Strategy and validation of PodDisruptionBudgets."""

from __future__ import annotations

from torchyard.api import checks, field_errors, selectors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.status_subresource import StatusSubresourceStrategy

_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def validate_budget(budget: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = budget.get("spec") or {}
    bounds = ("minAvailable", "maxUnavailable")
    if all(spec.get(name) is not None for name in bounds):
        errs.append(field_errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in bounds:
        if (value := spec.get(name)) is not None:
            checks.int_or_percent(value, f"spec.{name}", errs)
            checks.at_most_100_percent(value, f"spec.{name}", errs)
    errs += selectors.validate_object(spec.get("selector"), "spec.selector")
    policies = ("AlwaysAllow", "IfHealthyBudget")
    checks.optional_enum(spec.get("unhealthyPodEvictionPolicy"), policies, "spec.unhealthyPodEvictionPolicy", errs)
    return errs


class PodDisruptionBudgetStrategy(StatusSubresourceStrategy):
    qualified_finalizers = False
    unconditional_update = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = dict.fromkeys(_COUNTS, 0)

    def validate(self, obj: Object) -> list[FieldError]:
        return validate_budget(obj)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        checks.nonnegative_fields(new.get("status") or {}, _COUNTS, "status", errs)
        return errs
