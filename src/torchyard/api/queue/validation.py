"""Validation of queues and workloads: Kueue's rules, with messages that say what to write instead.

It runs after the schema validation, on objects in the stored version, so every field has the right type.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchyard.api import checks, compute_resources, field_errors, quantity
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.quantity import Quantity, QuantityError
from torchyard.api.queue import messages, names
from torchyard.api.strategy import Strategy

_GROUPS = "spec.resourceGroups"
_SMALL_MEMORY = 1024 * 1024
# Units that are common elsewhere, and the Kubernetes suffix for each.
_UNITS = {"KB": "k", "MB": "M", "GB": "G", "TB": "T", "KIB": "Ki", "MIB": "Mi", "GIB": "Gi", "TIB": "Ti", "B": ""}


class InUseStrategy(Strategy):
    """A kind whose objects stay until nothing uses them."""

    def prepare_create(self, obj: Object) -> None:
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if names.IN_USE not in finalizers:
            finalizers.append(names.IN_USE)


class FlavorStrategy(InUseStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errs: list[FieldError] = []
        for key, value in (spec.get("nodeLabels") or {}).items():
            checks.report_problems(any_names.qualified_name_problems(key), "spec.nodeLabels", key, errs)
            checks.report_problems(any_names.label_value_problems(value), f"spec.nodeLabels[{key}]", value, errs)
        for field, limit in (("nodeLabels", 8), ("nodeTaints", 8), ("tolerations", 8)):
            if len(spec.get(field) or ()) > limit:
                errs.append(field_errors.too_many(f"spec.{field}", len(spec[field]), limit))
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        for index, taint in enumerate(spec.get("nodeTaints") or ()):
            checks.required_enum(taint.get("effect"), effects, f"spec.nodeTaints[{index}].effect", errs)
        if spec.get("topologyName"):
            errs.append(field_errors.forbidden("spec.topologyName", "topologies are not supported; remove the field"))
        return errs


class ClusterQueueStrategy(InUseStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errs: list[FieldError] = []
        _check_name(spec.get("cohortName"), "spec.cohortName", errs)
        _check_groups(spec, errs, has_cohort=bool(spec.get("cohortName")))
        preemption = spec.get("preemption") or {}
        borrow_policy = (preemption.get("borrowWithinCohort") or {}).get("policy", names.NEVER)
        if borrow_policy != names.NEVER and preemption.get("reclaimWithinCohort", names.NEVER) == names.NEVER:
            detail = "requires reclaimWithinCohort to be LowerPriority or Any"
            errs.append(field_errors.invalid("spec.preemption.borrowWithinCohort.policy", names.LOWER, detail))
        return errs

    def warnings(self, obj: Object) -> list[str]:
        spec = obj.get("spec") or {}
        warnings = [messages.FAIR_SHARING_IGNORED] if spec.get("fairSharing") else []
        if spec.get("namespaceSelector") is None:
            warnings.append(messages.NO_NAMESPACE_SELECTED)
        return warnings + list(_suspicious_quotas(spec))


class CohortStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errs: list[FieldError] = []
        _check_name(spec.get("parentName"), "spec.parentName", errs)
        if spec.get("parentName") == obj["metadata"].get("name"):
            errs.append(
                field_errors.invalid(
                    "spec.parentName", spec["parentName"], messages.cohort_cycle([spec["parentName"]] * 2)
                )
            )
        _check_groups(spec, errs, has_cohort=bool(spec.get("parentName")))
        return errs

    def warnings(self, obj: Object) -> list[str]:
        spec = obj.get("spec") or {}
        return ([messages.FAIR_SHARING_IGNORED] if spec.get("fairSharing") else []) + list(_suspicious_quotas(spec))


class LocalQueueStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        errs: list[FieldError] = []
        _check_name((obj.get("spec") or {}).get("clusterQueue"), "spec.clusterQueue", errs)
        return errs


class WorkloadStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errs: list[FieldError] = []
        _check_name(spec.get("queueName"), "spec.queueName", errs)
        if spec.get("priorityClassRef") and spec.get("priority") is None:
            errs.append(
                field_errors.required("spec.priority", "priority should not be nil when priorityClassRef is set")
            )
        partial = 0
        for index, pod_set in enumerate(spec.get("podSets") or ()):
            at = f"spec.podSets[{index}]"
            checks.report_problems(any_names.label_problems(pod_set["name"]), f"{at}.name", pod_set["name"], errs)
            min_count = pod_set.get("minCount")
            if min_count is not None:
                partial += 1
                if min_count > pod_set["count"]:
                    detail = "minCount should be positive and less or equal to count"
                    errs.append(field_errors.invalid(f"{at}.minCount", min_count, detail))
            _check_pod(pod_set["template"].get("spec") or {}, f"{at}.template.spec", errs)
        if partial > 1:
            errs.append(field_errors.invalid("spec.podSets", partial, "at most one podSet can use minCount"))
        return errs

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errs = self.validate(new)
        if (old.get("status") or {}).get("admission"):
            before, after = old.get("spec") or {}, new.get("spec") or {}
            checks.immutable(after.get("queueName"), before.get("queueName"), "spec.queueName", errs)
            is_elastic = names.ELASTIC in (new["metadata"].get("annotations") or {})
            if not is_elastic:
                checks.immutable(after.get("podSets"), before.get("podSets"), "spec.podSets", errs)
        return errs


class CheckStrategy(Strategy):
    def validate(self, obj: Object) -> list[FieldError]:
        if not (obj.get("spec") or {}).get("controllerName"):
            return [
                field_errors.required(
                    "spec.controllerName",
                    "must name the controller that sets the state, for example example.com/budget",
                )
            ]
        return []


STRATEGIES: dict[str, Strategy] = {
    names.FLAVOR.kind: FlavorStrategy(),
    names.CLUSTER_QUEUE.kind: ClusterQueueStrategy(),
    names.COHORT.kind: CohortStrategy(),
    names.LOCAL_QUEUE.kind: LocalQueueStrategy(),
    names.WORKLOAD.kind: WorkloadStrategy(),
    names.CHECK.kind: CheckStrategy(),
}


def _check_name(value: str | None, field: str, errs: list[FieldError]) -> None:
    if value:
        checks.report_problems(any_names.subdomain_problems(value), field, value, errs)


def _check_groups(spec: Object, errs: list[FieldError], *, has_cohort: bool) -> None:
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(spec.get("resourceGroups") or ()):
        at = f"{_GROUPS}[{index}]"
        for position, name in enumerate(group["coveredResources"]):
            if name in resources:
                errs.append(field_errors.duplicate(f"{at}.coveredResources[{position}]", name))
            resources.add(name)
        for position, flavor in enumerate(group["flavors"]):
            field = f"{at}.flavors[{position}]"
            _check_name(flavor["name"], f"{field}.name", errs)
            if flavor["name"] in flavors:
                errs.append(field_errors.duplicate(f"{field}.name", flavor["name"]))
            flavors.add(flavor["name"])
            _check_quotas(flavor["resources"], group["coveredResources"], field, errs, has_cohort=has_cohort)


def _check_quotas(
    quotas: list[Object], covered: list[str], at: str, errs: list[FieldError], *, has_cohort: bool
) -> None:
    listed = [quota["name"] for quota in quotas]
    if listed != covered:
        detail = f"must list the coveredResources, in their order: {', '.join(covered)}"
        errs.append(field_errors.invalid(f"{at}.resources", listed, detail))
    for index, quota in enumerate(quotas):
        field = f"{at}.resources[{index}]"
        nominal = parse_quantity(quota["name"], quota["nominalQuota"], f"{field}.nominalQuota", errs)
        for limit in ("borrowingLimit", "lendingLimit"):
            if quota.get(limit) is None:
                continue
            amount = parse_quantity(quota["name"], quota[limit], f"{field}.{limit}", errs)
            if not has_cohort:
                detail = "must be omitted if the queue has no cohort to borrow from or lend to"
                errs.append(field_errors.invalid(f"{field}.{limit}", quota[limit], detail))
            elif limit == "lendingLimit" and amount and nominal and amount > nominal:
                errs.append(
                    field_errors.invalid(
                        f"{field}.{limit}", quota[limit], f"must be at most the nominalQuota, {nominal}"
                    )
                )


def parse_quantity(resource: str, text: str | int, field: str, errs: list[FieldError]) -> Quantity | None:
    """The quantity of a resource; None, with an error that says what to write instead, if it is not valid."""
    try:
        amount = quantity.parse(text)
    except QuantityError:
        errs.append(field_errors.invalid(field, text, f"is not a valid quantity; {_suggestion(resource, str(text))}"))
        return None
    if amount.nano < 0:
        errs.append(field_errors.invalid(field, text, any_names.NOT_NEGATIVE))
        return None
    if not amount.whole and compute_resources.is_integer_resource(resource):
        errs.append(
            field_errors.invalid(
                field, text, f"must be an integer, because {resource} cannot be divided; use {amount.value}"
            )
        )
        return None
    return amount


def _suggestion(resource: str, text: str) -> str:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().upper()
    if digits and unit in _UNITS:
        return f"use {digits.strip()}{_UNITS[unit]}"
    examples = {"cpu": "4 or 500m", "memory": "64Gi"}
    return f"use for example {examples.get(resource, '8')}"


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


def _check_pod(spec: Object, at: str, errs: list[FieldError]) -> None:
    """Only the quantities: the rest of a template is validated when its pods are created."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            for field in ("requests", "limits"):
                for name, text in ((container.get("resources") or {}).get(field) or {}).items():
                    parse_quantity(name, text, f"{at}.{kind}[{index}].resources.{field}[{name}]", errs)
