"""PodDisruptionBudgets."""

from __future__ import annotations

from torchyard.api import checks, faults, selectors
from torchyard.api.behaviour import Object
from torchyard.api.faults import Fault
from torchyard.api.stateful import StatefulBehaviour

_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def validate_budget(budget: Object) -> list[Fault]:
    found: list[Fault] = []
    spec = budget.get("spec") or {}
    bounds = ("minAvailable", "maxUnavailable")
    if all(spec.get(name) is not None for name in bounds):
        found.append(faults.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in bounds:
        if (value := spec.get(name)) is not None:
            checks.int_or_percent(value, f"spec.{name}", found)
            checks.at_most_100_percent(value, f"spec.{name}", found)
    found += selectors.validate_object(spec.get("selector"), "spec.selector")
    policies = ("AlwaysAllow", "IfHealthyBudget")
    checks.choice(spec.get("unhealthyPodEvictionPolicy"), policies, "spec.unhealthyPodEvictionPolicy", found)
    return found


class BudgetBehaviour(StatefulBehaviour):
    qualified_finalizers = False
    unconditional_update = False

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = dict.fromkeys(_COUNTS, 0)

    def validate(self, obj: Object) -> list[Fault]:
        return validate_budget(obj)

    def validate_status(self, new: Object, old: Object) -> list[Fault]:
        found: list[Fault] = []
        checks.nonnegative_fields(new.get("status") or {}, _COUNTS, "status", found)
        return found
