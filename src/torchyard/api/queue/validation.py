"""Validation of queues and workloads: Kueue's rules, with messages that say what to write instead.

It runs after the schema validation, on objects in the stored version, so every field has the right type.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchyard.api import checks, field_errors, quantity, selectors
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.quantity import Quantity, QuantityError
from torchyard.api.queue import names, queue_messages
from torchyard.api.queue.pod_template_validation import validate_pod_templates
from torchyard.api.queue.quantities import is_plain, parse_quantity
from torchyard.api.queue.taints import check_taints, check_toleration_keys, taint_rules, toleration_rules
from torchyard.api.queue.unsupported import (
    unsupported_in_check,
    unsupported_in_cluster_queue,
    unsupported_in_flavor,
    unsupported_in_workload,
)
from torchyard.api.queue.workload_validation import schema_rules, webhook_rules, webhook_update_rules
from torchyard.api.strategy import Strategy

_GROUPS = "spec.resourceGroups"
_MAX_WEIGHT = 2**63 - 1
_SMALL_MEMORY = 1024 * 1024
_MAX_FLAVOR_ITEMS, _MAX_TOTAL, _MAX_COMBINATIONS = 8, 256, 512


class InUseStrategy(Strategy):
    """A kind whose objects stay until nothing uses them."""

    def prepare_create(self, obj: Object) -> None:
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if names.IN_USE not in finalizers:
            finalizers.append(names.IN_USE)


class FlavorStrategy(InUseStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        taints, tolerations = spec.get("nodeTaints") or (), spec.get("tolerations") or ()
        errs = [
            field_errors.too_many(f"spec.{field}", len(spec[field]), _MAX_FLAVOR_ITEMS)
            for field in ("nodeLabels", "nodeTaints", "tolerations")
            if len(spec.get(field) or ()) > _MAX_FLAVOR_ITEMS
        ]
        errs += taint_rules(taints, "spec.nodeTaints")
        errs += toleration_rules(tolerations, "spec.tolerations")
        errs += unsupported_in_flavor(spec)
        if errs:
            return errs
        errs += any_names.validate_labels(spec.get("nodeLabels"), "spec.nodeLabels")
        check_taints(taints, "spec.nodeTaints", errs)
        check_toleration_keys(tolerations, "spec.tolerations", errs)
        return errs


class ClusterQueueStrategy(InUseStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errs = [*_cluster_queue_rules(spec), *unsupported_in_cluster_queue(spec)]
        if errs:
            return errs
        _check_groups(spec, errs, parent="cohort" if not spec.get("cohortName") else "")
        errs += selectors.validate_object(spec.get("namespaceSelector"), "spec.namespaceSelector")
        _check_fair_sharing(spec, errs)
        _check_sizes(spec, errs)
        _check_flavors_of_checks(spec, errs)
        return errs

    def warnings(self, obj: Object) -> list[str]:
        spec = obj.get("spec") or {}
        warnings: list[str] = []
        if spec.get("namespaceSelector") is None:
            warnings.append(queue_messages.NO_NAMESPACE_SELECTED)
        return warnings + list(_suspicious_quotas(spec))


class CohortStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errs: list[FieldError] = []
        if spec.get("parentName") == obj["metadata"].get("name"):
            errs.append(
                field_errors.invalid(
                    "spec.parentName", spec["parentName"], queue_messages.cohort_cycle([spec["parentName"]] * 2)
                )
            )
        _check_groups(spec, errs, parent="parent" if not spec.get("parentName") else "", is_cohort=True)
        _check_fair_sharing(spec, errs)
        return errs

    def warnings(self, obj: Object) -> list[str]:
        spec = obj.get("spec") or {}
        return list(_suspicious_quotas(spec))


class LocalQueueStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        _parse_weight(obj.get("spec") or {}, errs)  # as in Kueue, it may be negative here, which counts as 0
        return errs


class CheckStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        return list(unsupported_in_check(obj.get("spec") or {}))


class WorkloadStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errs = schema_rules(obj, None) or [*webhook_rules(obj), *unsupported_in_workload(obj)]
        return errs or validate_pod_templates(spec.get("podSets") or ())

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        unsupported = list(unsupported_in_workload(new))
        if unsupported:  # what was stored before it was refused may stay, so that the status can be written
            before = list(unsupported_in_workload(old))
            unsupported = [err for err in unsupported if err not in before]
        errs = schema_rules(new, old) or [*webhook_rules(new), *webhook_update_rules(new, old), *unsupported]
        pod_sets = (new.get("spec") or {}).get("podSets")
        if not errs and pod_sets != (old.get("spec") or {}).get("podSets"):
            return validate_pod_templates(pod_sets or ())
        return errs

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate_update(new, old)


STRATEGIES: dict[str, Strategy] = {
    names.FLAVOR.kind: FlavorStrategy(),
    names.CLUSTER_QUEUE.kind: ClusterQueueStrategy(),
    names.COHORT.kind: CohortStrategy(),
    names.LOCAL_QUEUE.kind: LocalQueueStrategy(),
    names.CHECK.kind: CheckStrategy(),
    names.WORKLOAD.kind: WorkloadStrategy(),
}


def _cluster_queue_rules(spec: Object) -> list[FieldError]:
    """The rules of Kueue's schema that compare fields."""
    errs: list[FieldError] = []
    preemption, fungibility = spec.get("preemption") or {}, spec.get("flavorFungibility") or {}
    borrow_policy = (preemption.get("borrowWithinCohort") or {}).get("policy", names.NEVER)
    if borrow_policy != names.NEVER and preemption.get("reclaimWithinCohort", names.NEVER) == names.NEVER:
        detail = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never"
        errs.append(field_errors.invalid("spec.preemption", "object", detail))
    tries_next = all(fungibility.get(field) == names.TRY_NEXT for field in ("whenCanBorrow", "whenCanPreempt"))
    if fungibility.get("preference") and not tries_next:
        detail = "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor"
        errs.append(field_errors.invalid("spec.flavorFungibility", "object", detail))
    errs += _group_rules(spec)
    quotas = (quota for _, quota in _quotas(spec))
    if spec.get("cohortName") is None and any(quota.get("borrowingLimit") is not None for quota in quotas):
        errs.append(field_errors.invalid("spec", "object", "borrowingLimit must be nil when cohort is empty"))
    return errs


def _group_rules(spec: Object) -> list[FieldError]:
    detail = "flavors must have the same number of resources as the coveredResources"
    return [
        field_errors.invalid(f"{_GROUPS}[{index}]", "object", detail)
        for index, group in enumerate(spec.get("resourceGroups") or ())
        if any(len(flavor["resources"]) != len(group["coveredResources"]) for flavor in group["flavors"])
    ]


def _quotas(spec: Object) -> Iterator[tuple[str, Object]]:
    """All quotas of resource groups, with the flavor of each."""
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                yield flavor["name"], quota


def _check_groups(spec: Object, errs: list[FieldError], *, parent: str, is_cohort: bool = False) -> None:
    """`parent`: the field that names a parent, if it is empty."""
    resources: set[str] = set()
    flavors: set[str] = set()
    if is_cohort and (broken := _group_rules(spec)):
        errs += broken
        return
    for index, group in enumerate(spec.get("resourceGroups") or ()):
        at = f"{_GROUPS}[{index}]"
        for position, name in enumerate(group["coveredResources"]):
            field = f"{at}.coveredResources[{position}]"
            checks.report_problems(any_names.qualified_name_problems(name), field, name, errs)
            if name in resources:
                errs.append(field_errors.duplicate(field, name))
            resources.add(name)
        for position, flavor in enumerate(group["flavors"]):
            field = f"{at}.flavors[{position}]"
            _check_quotas(flavor["resources"], group["coveredResources"], field, errs, parent, is_cohort=is_cohort)
            if flavor["name"] in flavors:
                errs.append(field_errors.duplicate(f"{field}.name", flavor["name"]))
            flavors.add(flavor["name"])


def _check_quotas(
    quotas: list[Object], covered: list[str], at: str, errs: list[FieldError], parent: str, *, is_cohort: bool
) -> None:
    for index, (quota, name) in enumerate(zip(quotas, covered, strict=False)):
        field = f"{at}.resources[{index}]"
        if quota["name"] != name:
            detail = "must match the name in coveredResources"
            errs.append(field_errors.invalid(f"{field}.name", quota["name"], detail))
        nominal = parse_quantity(quota["name"], quota["nominalQuota"], f"{field}.nominalQuota", errs)
        for limit in ("borrowingLimit", "lendingLimit"):
            if quota.get(limit) is None:
                continue
            amount = parse_quantity(quota["name"], quota[limit], f"{field}.{limit}", errs)
            value = str(quota[limit])
            if parent:
                errs.append(field_errors.invalid(f"{field}.{limit}", value, f"must be nil when {parent} is empty"))
            if limit == "lendingLimit" and not is_cohort and amount and nominal is not None and amount > nominal:
                detail = "must be less than or equal to the nominalQuota"
                errs.append(field_errors.invalid(f"{field}.{limit}", value, detail))


def _check_fair_sharing(spec: Object, errs: list[FieldError]) -> None:
    amount = _parse_weight(spec, errs)
    if amount is None:
        return
    weight = str(spec["fairSharing"]["weight"])
    if amount.nano < 0:
        errs.append(field_errors.invalid("spec.fairSharing", weight, any_names.NOT_NEGATIVE))
    elif 0 < amount.nano <= 1:
        errs.append(field_errors.invalid("spec.fairSharing", weight, "When not 0, weight must be > 10e-9"))


def _parse_weight(spec: Object, errs: list[FieldError]) -> Quantity | None:
    """None if there is none, or it is not a quantity that can be a weight."""
    weight = (spec.get("fairSharing") or {}).get("weight")
    if weight is None:
        return None
    try:
        if not is_plain(weight):
            raise QuantityError(str(weight))
        amount = quantity.parse(weight)
    except QuantityError:
        detail = "is not a valid quantity; use for example 1 or 500m"
        errs.append(field_errors.invalid("spec.fairSharing.weight", weight, detail))
        return None
    if amount.value > _MAX_WEIGHT:
        detail = f"must be less than or equal to {_MAX_WEIGHT}"
        errs.append(field_errors.invalid("spec.fairSharing.weight", str(weight), detail))
        return None
    return amount


def _check_sizes(spec: Object, errs: list[FieldError]) -> None:
    groups = spec.get("resourceGroups") or ()
    for noun, field in (("flavors", "flavors"), ("covered resources", "coveredResources")):
        total = sum(len(group[field]) for group in groups)
        if total > _MAX_TOTAL:
            detail = f"total number of {noun} across all resourceGroups must be ≤ {_MAX_TOTAL}, got {total}"
            errs.append(field_errors.invalid(_GROUPS, total, detail))
    for index, group in enumerate(groups):
        total = sum(len(flavor["resources"]) for flavor in group["flavors"])
        if total > _MAX_COMBINATIONS:
            detail = (
                f"number of flavor-resource combinations in a resourceGroup must be ≤ {_MAX_COMBINATIONS}, got {total}"
            )
            errs.append(field_errors.invalid(f"{_GROUPS}[{index}]", total, detail))


def _check_flavors_of_checks(spec: Object, errs: list[FieldError]) -> None:
    flavors = [flavor["name"] for group in spec.get("resourceGroups") or () for flavor in group["flavors"]]
    rules = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    for index, rule in enumerate(rules):
        for position, flavor in enumerate(rule.get("onFlavors") or ()):
            if flavor not in flavors:
                field = f"spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{position}]"
                errs.append(field_errors.not_supported(field, flavor, flavors))


def _suspicious_quotas(spec: Object) -> Iterator[str]:
    """Warnings about quotas that are valid but probably a mistake, such as 64 bytes of memory."""
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                amount = quantity.parse(resource["nominalQuota"])
                if resource["name"] == "memory" and 0 < amount.value < _SMALL_MEMORY:
                    intended = str(resource["nominalQuota"]).rstrip("m")
                    yield (
                        f"flavor {flavor['name']} has a quota of {amount.value} bytes of memory;"
                        f" did you mean {intended}Gi?"
                    )
