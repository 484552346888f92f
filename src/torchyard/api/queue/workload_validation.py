"""Validation of workloads: the rules of Kueue's schema that compare fields, and those of its webhook.

The former are written out here instead of in the CustomResourceDefinition: a workload is written several times in its
life, and evaluating expressions takes longer than the write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchyard.api import checks, field_errors
from torchyard.api import names as any_names
from torchyard.api.conditions import is_true
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.quantity import NANO
from torchyard.api.queue import messages, names
from torchyard.api.queue.quantities import parse_quantity
from torchyard.api.queue.taints import check_toleration_keys, toleration_rules

_CLASS_KINDS = {names.GROUP: names.PRIORITY_CLASS.kind, "scheduling.k8s.io": "PriorityClass"}
_MILLI_IN_NANO = NANO // 1000
_CPU = "cpu"
_MAX_NAME = 63  # of the name part of a qualified name


def has_quota(obj: Object) -> bool:
    return is_true((obj.get("status") or {}).get("conditions") or (), messages.QUOTA_RESERVED)


def _is_admitted(obj: Object) -> bool:
    return is_true((obj.get("status") or {}).get("conditions") or (), messages.ADMITTED)


def schema_rules(obj: Object, old: Object | None) -> list[FieldError]:
    """The rules of Kueue's schema that compare fields."""
    errs = [_rule(path, text) for path, text in _broken_rules(obj)]
    clusters = {((version or {}).get("status") or {}).get("clusterName") for version in (obj, old)} - {None}
    if len(clusters) > 1:
        errs.append(_rule("status", "clusterName is immutable once set"))
    if old is not None and has_quota(old):
        errs += [_rule("", text) for text in _changed_while_reserved(obj, old)]
    for index, check in enumerate((obj.get("status") or {}).get("admissionChecks") or ()):
        for position, update in enumerate(check.get("podSetUpdates") or ()):
            path = f"status.admissionChecks[{index}].podSetUpdates[{position}].tolerations"
            errs += toleration_rules(update.get("tolerations") or (), path)
    return errs


def _rule(path: str, text: str) -> FieldError:
    return field_errors.invalid(path or "<nil>", "object", text)


def _broken_rules(obj: Object) -> Iterator[tuple[str, str]]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    for index, pod_set in enumerate(spec.get("podSets") or ()):
        if pod_set.get("minCount") is not None and pod_set["minCount"] > pod_set["count"]:
            yield f"spec.podSets[{index}]", "minCount should be positive and less or equal to count"
    reference = spec.get("priorityClassRef")
    if reference:
        for group, kind in _CLASS_KINDS.items():
            if reference["group"] == group and reference["kind"] != kind:
                yield "spec.priorityClassRef", f"only the {kind} kind is allowed for the {group} group"
        if spec.get("priority") is None:
            yield "spec", "priority should not be nil when priorityClassRef is set"
    admission = status.get("admission")
    if admission and has_quota(obj) and len(admission.get("podSetAssignments") or ()) != len(spec["podSets"]):
        yield "", "podSetAssignments must have the same number of podSets as the spec"
    if status.get("clusterName") is not None and status.get("nominatedClusterNames"):
        yield "status", "clusterName and nominatedClusterNames are mutually exclusive"


def _changed_while_reserved(obj: Object, before: Object) -> Iterator[str]:
    new, old = (version["spec"].get("priorityClassRef") for version in (obj, before))
    immutable = "is immutable while workload quota reserved"
    if bool(new) != bool(old):
        yield f"priorityClassRef {immutable}"
    elif new and old:
        for field in ("group", "kind"):
            if new[field] != old[field]:
                yield f"priorityClassRef.{field} {immutable}"
        if new["group"] != names.GROUP and new["name"] != old["name"]:
            yield (
                "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved"
            )
    if has_quota(obj) and obj["spec"].get("queueName") != before["spec"].get("queueName"):
        yield f"queueName {immutable}"
    limits = (version["spec"].get("maximumExecutionTimeSeconds") or 0 for version in (obj, before))
    if _is_admitted(obj) and _is_admitted(before) and len(set(limits)) > 1:
        yield f"maximumExecutionTimeSeconds {immutable}"


def webhook_rules(obj: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    for index, pod_set in enumerate(spec.get("podSets") or ()):
        _check_pod(pod_set["template"].get("spec") or {}, f"spec.podSets[{index}].template.spec", errs)
    partial = sum(pod_set.get("minCount") is not None for pod_set in spec.get("podSets") or ())
    if partial > 1:
        errs.append(field_errors.invalid("spec.podSets", partial, "at most one podSet can use minCount"))
    if has_quota(obj):
        _check_admission(obj, errs)
    counts = {pod_set["name"]: pod_set["count"] for pod_set in spec.get("podSets") or ()}
    _check_reclaimable_pods(status.get("reclaimablePods") or (), counts, errs)
    _check_updates(status.get("admissionChecks") or (), counts, errs)
    for index, condition in enumerate(status.get("conditions") or ()):
        if len(condition["type"]) > _MAX_NAME:  # the schema checks everything else
            path = f"status.conditions[{index}].type"
            problems = any_names.qualified_name_problems(condition["type"])
            checks.report_problems(problems, path, condition["type"], errs)
    return errs


def webhook_update_rules(new: Object, old: Object) -> list[FieldError]:
    errs: list[FieldError] = []
    if has_quota(old):
        _check_pod_sets(new["spec"]["podSets"], old["spec"]["podSets"], errs)
        if has_quota(new):
            _check_reclaimed(_reclaimable(new), _reclaimable(old), errs)
    _check_cluster_name(new.get("status") or {}, old.get("status") or {}, errs)
    after, before = ((obj.get("status") or {}).get("admission") for obj in (new, old))
    if after and before and after != before and not _is_elastic(new):
        errs.append(field_errors.invalid("status.admission", after, any_names.IMMUTABLE))
    ready = {check["name"]: check for check in _ready_checks(new)}
    for check in _ready_checks(old):
        newer = ready.get(check["name"])
        if newer is not None:
            path = f"status.admissionChecks[{check['index']}].podSetUpdates"
            checks.immutable(newer.get("podSetUpdates"), check.get("podSetUpdates"), path, errs)
    return errs


def _check_cluster_name(after: Object, before: Object, errs: list[FieldError]) -> None:
    name = after.get("clusterName")
    if (
        name is not None
        and before.get("clusterName") is None
        and name not in (before.get("nominatedClusterNames") or ())
    ):
        detail = "when setting clusterName it must be one of the nominatedClusterNames"
        errs.append(field_errors.invalid("status.clusterName", name, detail))


def _is_elastic(obj: Object) -> bool:
    return names.ELASTIC in (obj["metadata"].get("annotations") or {})


def _ready_checks(obj: Object) -> list[Object]:
    states = (obj.get("status") or {}).get("admissionChecks") or ()
    return [{**check, "index": index} for index, check in enumerate(states) if check["state"] == names.CHECK_READY]


def _check_pod_sets(after: list[Object], before: list[Object], errs: list[FieldError]) -> None:
    """All fields of pod sets with quota are immutable, except that an elastic workload may shrink."""
    if len(after) != len(before):
        errs.append(field_errors.invalid("spec.podSets", after, any_names.IMMUTABLE))
        return
    for index, (new, old) in enumerate(zip(after, before, strict=True)):
        comparable = {**new, "count": old["count"]} if new["count"] < old["count"] else new
        if comparable != old:
            errs.append(field_errors.invalid(f"spec.podSets.{index}", comparable, any_names.IMMUTABLE))


def _reclaimable(obj: Object) -> dict[str, int]:
    return {entry["name"]: entry["count"] for entry in (obj.get("status") or {}).get("reclaimablePods") or ()}


def _check_reclaimed(after: Mapping[str, int], before: Mapping[str, int], errs: list[FieldError]) -> None:
    for name, count in before.items():
        path = f"status.reclaimablePods[{name}]"
        if name not in after:
            errs.append(field_errors.required(path, "cannot be removed"))
        elif after[name] < count:
            errs.append(field_errors.invalid(f"{path}.count", after[name], f"cannot be less than {count}"))


def _check_admission(obj: Object, errs: list[FieldError]) -> None:
    if not (obj.get("status") or {}).get("admission"):
        detail = "must be set while the QuotaReserved condition is true"
        errs.append(field_errors.required("status.admission", detail))
    pod_sets = {pod_set["name"] for pod_set in obj["spec"]["podSets"]}
    assignments = ((obj.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    for index, assignment in enumerate(assignments):
        path = f"status.admission.podSetAssignments[{index}]"
        if assignment["name"] not in pod_sets:
            errs.append(field_errors.not_found(f"{path}.name", assignment["name"]))
        count = assignment.get("count") or 0
        for resource, text in (assignment.get("resourceUsage") or {}).items():
            field = f"{path}.resourceUsage[{resource}]"
            amount = parse_quantity(resource, text, field, errs)
            unit = _MILLI_IN_NANO if resource == _CPU else NANO
            if amount is not None and count and -(-amount.nano // unit) % count:
                errs.append(field_errors.invalid(field, str(text), f"is not a multiple of {count}"))


def _check_reclaimable_pods(entries: Iterable[Object], counts: Mapping[str, int], errs: list[FieldError]) -> None:
    for entry in entries:
        path = f"status.reclaimablePods[{entry['name']}]"
        if entry["name"] not in counts:
            errs.append(field_errors.not_supported(f"{path}.name", entry["name"], counts))
        elif entry["count"] > counts[entry["name"]]:
            detail = f"should be less or equal to {counts[entry['name']]}"
            errs.append(field_errors.invalid(f"{path}.count", entry["count"], detail))


def _check_updates(states: Iterable[Object], counts: Mapping[str, int], errs: list[FieldError]) -> None:
    for index, state in enumerate(states):
        for position, update in enumerate(state.get("podSetUpdates") or ()):
            path = f"status.admissionChecks[{index}].podSetUpdates[{position}]"
            if update["name"] not in counts:
                errs.append(field_errors.not_supported(f"{path}.name", update["name"], sorted(counts)))
            check_toleration_keys(update.get("tolerations") or (), f"{path}.tolerations", errs)
            errs.extend(any_names.validate_annotations(update.get("annotations"), f"{path}.annotations"))
            errs.extend(any_names.validate_labels(update.get("nodeSelector"), f"{path}.nodeSelector"))
            errs.extend(any_names.validate_labels(update.get("labels"), f"{path}.labels"))


def _check_pod(spec: Any, at: str, errs: list[FieldError]) -> None:
    """Only what quota depends on. Values of other types are left to the validation of the template."""
    for kind in ("initContainers", "containers"):
        containers = _mapping(spec).get(kind)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            _check_resources(_mapping(container).get("resources"), f"{at}.{kind}[{index}].resources", errs)
    _check_resources(_mapping(spec).get("resources"), f"{at}.resources", errs)
    _check_amounts(_mapping(_mapping(spec).get("overhead")), f"{at}.overhead", errs)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _check_resources(resources: Any, at: str, errs: list[FieldError]) -> None:
    for field in ("requests", "limits"):
        amounts = _mapping(_mapping(resources).get(field))
        if field == "requests" and names.PODS in amounts:
            detail = "the key is reserved for internal kueue use"
            errs.append(field_errors.invalid(f"{at}.{field}[{names.PODS}]", names.PODS, detail))
        _check_amounts(amounts, f"{at}.{field}", errs)


def _check_amounts(amounts: Mapping[str, str | int], at: str, errs: list[FieldError]) -> None:
    for name, text in amounts.items():
        parse_quantity(name, text, f"{at}[{name}]", errs)
