"""What queues and workloads may say: Kueue's rules, with words that say what to write instead.

Runs after the schema, on objects in the stored version, so that every field that is there has its type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchyard.api import amounts, checks, faults, quantity
from torchyard.api import names as any_names
from torchyard.api.behaviour import Behaviour
from torchyard.api.faults import Fault
from torchyard.api.quantity import Quantity, QuantityError
from torchyard.api.queue import names, words

Object = dict[str, Any]

_GROUPS = "spec.resourceGroups"
_SMALL_MEMORY = 1024 * 1024
FAIR_SHARING = "spec.fairSharing is stored, but this plane's queues do not share by weight"
# How people write amounts elsewhere, and how they are written here.
_UNITS = {"KB": "k", "MB": "M", "GB": "G", "TB": "T", "KIB": "Ki", "MIB": "Mi", "GIB": "Gi", "TIB": "Ti", "B": ""}


class FlavorBehaviour(Behaviour):
    def validate(self, obj: Object) -> list[Fault]:
        spec = obj.get("spec") or {}
        found: list[Fault] = []
        for key, value in (spec.get("nodeLabels") or {}).items():
            checks.told(any_names.qualified_name_problems(key), "spec.nodeLabels", key, found)
            checks.told(any_names.label_value_problems(value), f"spec.nodeLabels[{key}]", value, found)
        for field, most in (("nodeLabels", 8), ("nodeTaints", 8), ("tolerations", 8)):
            if len(spec.get(field) or ()) > most:
                found.append(faults.too_many(f"spec.{field}", len(spec[field]), most))
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        for index, taint in enumerate(spec.get("nodeTaints") or ()):
            checks.one_of(taint.get("effect"), effects, f"spec.nodeTaints[{index}].effect", found)
        if spec.get("topologyName"):
            found.append(faults.forbidden("spec.topologyName", "topologies are not supported; leave it out"))
        return found


class ClusterQueueBehaviour(Behaviour):
    def validate(self, obj: Object) -> list[Fault]:
        spec = obj.get("spec") or {}
        found: list[Fault] = []
        _check_name(spec.get("cohortName"), "spec.cohortName", found)
        _check_groups(spec, found, has_cohort=bool(spec.get("cohortName")))
        preemption = spec.get("preemption") or {}
        borrows = (preemption.get("borrowWithinCohort") or {}).get("policy", names.NEVER) != names.NEVER
        if borrows and preemption.get("reclaimWithinCohort", names.NEVER) == names.NEVER:
            detail = "needs reclaimWithinCohort to be LowerPriority or Any"
            found.append(faults.invalid("spec.preemption.borrowWithinCohort.policy", names.LOWER, detail))
        return found

    def warnings(self, obj: Object) -> list[str]:
        spec = obj.get("spec") or {}
        said = [FAIR_SHARING] if spec.get("fairSharing") else []
        if spec.get("namespaceSelector") is None:
            said.append("spec.namespaceSelector is null: no namespace may use this queue; write {} for all")
        return said + list(_suspicious(spec))


class CohortBehaviour(Behaviour):
    def validate(self, obj: Object) -> list[Fault]:
        spec = obj.get("spec") or {}
        found: list[Fault] = []
        _check_name(spec.get("parentName"), "spec.parentName", found)
        if spec.get("parentName") == obj["metadata"].get("name"):
            found.append(faults.invalid("spec.parentName", spec["parentName"], words.cycle([spec["parentName"]] * 2)))
        _check_groups(spec, found, has_cohort=bool(spec.get("parentName")))
        return found

    def warnings(self, obj: Object) -> list[str]:
        spec = obj.get("spec") or {}
        return ([FAIR_SHARING] if spec.get("fairSharing") else []) + list(_suspicious(spec))


class LocalQueueBehaviour(Behaviour):
    def validate(self, obj: Object) -> list[Fault]:
        found: list[Fault] = []
        _check_name((obj.get("spec") or {}).get("clusterQueue"), "spec.clusterQueue", found)
        return found


class WorkloadBehaviour(Behaviour):
    def validate(self, obj: Object) -> list[Fault]:
        spec = obj.get("spec") or {}
        found: list[Fault] = []
        _check_name(spec.get("queueName"), "spec.queueName", found)
        if spec.get("priorityClassRef") and spec.get("priority") is None:
            found.append(faults.required("spec.priority", "priority should not be nil when priorityClassRef is set"))
        partial = 0
        for index, one in enumerate(spec.get("podSets") or ()):
            at = f"spec.podSets[{index}]"
            checks.told(any_names.label_problems(one["name"]), f"{at}.name", one["name"], found)
            least = one.get("minCount")
            if least is not None:
                partial += 1
                if least > one["count"]:
                    detail = "minCount should be positive and less or equal to count"
                    found.append(faults.invalid(f"{at}.minCount", least, detail))
            _check_pod(one["template"].get("spec") or {}, f"{at}.template.spec", found)
        if partial > 1:
            found.append(faults.invalid("spec.podSets", partial, "at most one podSet can use minCount"))
        return found

    def validate_update(self, new: Object, old: Object) -> list[Fault]:
        found = self.validate(new)
        if (old.get("status") or {}).get("admission"):
            before, after = old.get("spec") or {}, new.get("spec") or {}
            checks.immutable(after.get("queueName"), before.get("queueName"), "spec.queueName", found)
            is_elastic = names.ELASTIC in (new["metadata"].get("annotations") or {})
            if not is_elastic:
                checks.immutable(after.get("podSets"), before.get("podSets"), "spec.podSets", found)
        return found


class CheckBehaviour(Behaviour):
    def validate(self, obj: Object) -> list[Fault]:
        if not obj["spec"].get("controllerName"):
            return [faults.required("spec.controllerName", "say who sets the state, e.g. example.com/budget")]
        return []


RULES: dict[str, Behaviour] = {
    names.FLAVOR.kind: FlavorBehaviour(),
    names.CLUSTER_QUEUE.kind: ClusterQueueBehaviour(),
    names.COHORT.kind: CohortBehaviour(),
    names.LOCAL_QUEUE.kind: LocalQueueBehaviour(),
    names.WORKLOAD.kind: WorkloadBehaviour(),
    names.CHECK.kind: CheckBehaviour(),
}


def _check_name(value: str | None, field: str, found: list[Fault]) -> None:
    if value:
        checks.told(any_names.subdomain_problems(value), field, value, found)


def _check_groups(spec: Object, found: list[Fault], *, has_cohort: bool) -> None:
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(spec.get("resourceGroups") or ()):
        at = f"{_GROUPS}[{index}]"
        for place, name in enumerate(group["coveredResources"]):
            if name in resources:
                found.append(faults.duplicate(f"{at}.coveredResources[{place}]", name))
            resources.add(name)
        for place, flavor in enumerate(group["flavors"]):
            field = f"{at}.flavors[{place}]"
            _check_name(flavor["name"], f"{field}.name", found)
            if flavor["name"] in flavors:
                found.append(faults.duplicate(f"{field}.name", flavor["name"]))
            flavors.add(flavor["name"])
            _check_quotas(flavor["resources"], group["coveredResources"], field, found, has_cohort=has_cohort)


def _check_quotas(quotas: list[Object], covered: list[str], at: str, found: list[Fault], *, has_cohort: bool) -> None:
    listed = [one["name"] for one in quotas]
    if listed != covered:
        detail = f"must list the coveredResources, in their order: {', '.join(covered)}"
        found.append(faults.invalid(f"{at}.resources", listed, detail))
    for index, one in enumerate(quotas):
        field = f"{at}.resources[{index}]"
        nominal = amount_of(one["name"], one["nominalQuota"], f"{field}.nominalQuota", found)
        for limit in ("borrowingLimit", "lendingLimit"):
            if one.get(limit) is None:
                continue
            amount = amount_of(one["name"], one[limit], f"{field}.{limit}", found)
            if not has_cohort:
                detail = "must be left out when the queue is in no cohort: there is nobody to borrow from or lend to"
                found.append(faults.invalid(f"{field}.{limit}", one[limit], detail))
            elif limit == "lendingLimit" and amount and nominal and amount > nominal:
                found.append(
                    faults.invalid(f"{field}.{limit}", one[limit], f"must be at most the nominalQuota, {nominal}")
                )


def amount_of(resource: str, text: str | int, field: str, found: list[Fault]) -> Quantity | None:
    """The amount a quota says; a fault with what to write instead where it is none of this resource."""
    try:
        amount = quantity.parse(text)
    except QuantityError:
        found.append(faults.invalid(field, text, f"is no amount{_better(resource, str(text))}"))
        return None
    if amount.nano < 0:
        found.append(faults.invalid(field, text, any_names.NOT_NEGATIVE))
        return None
    if not amount.whole and amounts.counts_whole(resource):
        found.append(faults.invalid(field, text, f"{resource} is counted in whole pieces: write {amount.value}"))
        return None
    return amount


def _better(resource: str, text: str) -> str:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().upper()
    if digits and unit in _UNITS:
        return f": write {digits.strip()}{_UNITS[unit]}"
    examples = {"cpu": "4 or 500m", "memory": "64Gi"}
    return f": write {examples.get(resource, '8')}, for example"


def _suspicious(spec: Object) -> Iterator[str]:
    """Amounts that are valid and hardly meant: 64 bytes of memory."""
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for one in flavor["resources"]:
                amount = quantity.parse(one["nominalQuota"])
                if one["name"] == "memory" and 0 < amount.value < _SMALL_MEMORY:
                    meant = str(one["nominalQuota"]).rstrip("m")
                    yield (
                        f"flavor {flavor['name']} has a quota of {amount.value} bytes of memory;"
                        f" did you mean {meant}Gi?"
                    )


def _check_pod(spec: Object, at: str, found: list[Fault]) -> None:
    """Amounts must be such; the rest of a template is judged where pods are made."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            for which in ("requests", "limits"):
                for name, text in ((container.get("resources") or {}).get(which) or {}).items():
                    amount_of(name, text, f"{at}.{kind}[{index}].resources.{which}[{name}]", found)
