"""LimitRanger: sets the namespace's default requests and limits, and enforces its minimum, maximum and ratio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchyard.api import quantity
from torchyard.api.objects import Object
from torchyard.api.pod.totals import Amounts, pod_total
from torchyard.api.quantity import Quantity
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes

ANNOTATION = "kubernetes.io/limit-ranger"
_KINDS = (("containers", "container"), ("initContainers", "init container"))


def set_limits(attributes: AdmissionAttributes) -> None:
    """Set the default requests and limits of a new pod's containers."""
    if not attributes.is_for("pods"):
        return
    for limit_range in _ranges(attributes):
        requests, limits = _defaults(limit_range)
        if not requests and not limits:
            continue
        notes: list[str] = []
        for field, container_kind in _KINDS:
            for container in attributes.new["spec"].get(field) or ():
                for amounts_field, defaults in (("requests", requests), ("limits", limits)):
                    added = _fill(container, amounts_field, defaults)
                    if added:
                        notes.append(
                            f"{', '.join(added)} {amounts_field[:-1]} for {container_kind} {container['name']}"
                        )
        if notes:
            annotations = attributes.new["metadata"].setdefault("annotations", {})
            annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


def _ranges(attributes: AdmissionAttributes) -> list[Object]:
    ranges = attributes.lister.list("", "limitranges", attributes.namespace)
    return sorted(ranges, key=lambda limit_range: str(limit_range["metadata"]["name"]))


def _defaults(limit_range: Object) -> tuple[dict[str, str], dict[str, str]]:
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        if limit.get("type") == "Container":
            requests |= limit.get("defaultRequest") or {}
            limits |= limit.get("default") or {}
    return requests, limits


def _fill(container: Object, field: str, defaults: dict[str, str]) -> list[str]:
    """Add the missing amounts; returns the names added."""
    present = (container.get("resources") or {}).get(field) or {}
    missing = {name: defaults[name] for name in sorted(defaults) if name not in present}
    if missing:
        resources = container.get("resources") or {}
        container["resources"] = {**resources, field: {**present, **missing}}
    return list(missing)


def check_limits(attributes: AdmissionAttributes) -> None:
    """Reject pods and claims outside the namespace's limits; the message names every violated limit."""
    if attributes.is_for("pods"):
        check = _pod_problems
    elif attributes.is_for("persistentvolumeclaims", operations=("CREATE", "UPDATE")):
        check = _claim_problems
    else:
        return
    ranges = _ranges(attributes)
    if not ranges:
        return
    problems = list(
        dict.fromkeys(
            problem
            for limit_range in ranges
            for limit in (limit_range.get("spec") or {}).get("limits") or ()
            for problem in check(limit, attributes.new["spec"])
        )
    )
    if problems:
        raise attributes.forbidden_error(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def _pod_problems(limit: Object, spec: Object) -> Iterator[str]:
    if limit.get("type") == "Container":
        for field, _ in _KINDS:
            for container in spec.get(field) or ():
                resources = container.get("resources") or {}
                yield from _problems(limit, _amounts(resources.get("requests")), _amounts(resources.get("limits")))
    elif limit.get("type") == "Pod":
        yield from _problems(limit, pod_total(spec, "requests"), pod_total(spec, "limits"))


def _claim_problems(limit: Object, spec: Object) -> Iterator[str]:
    if limit.get("type") != "PersistentVolumeClaim":
        return
    requests = _amounts((spec.get("resources") or {}).get("requests"))
    for name, enforced in _sorted(limit, "min"):
        yield from _too_little("PersistentVolumeClaim", name, enforced, requests, {})
    for name, enforced in _sorted(limit, "max"):
        head = f"maximum {name} usage per PersistentVolumeClaim is {enforced}"
        if name not in requests:
            yield f"{head}.  No request is specified"
        elif requests[name] > enforced:
            yield f"{head}, but request is {requests[name]}"


def _amounts(texts: Mapping[str, Any] | None) -> Amounts:
    return {name: quantity.parse(text) for name, text in (texts or {}).items()}


def _sorted(limit: Object, field: str) -> list[tuple[str, Quantity]]:
    return sorted(_amounts(limit.get(field)).items())


def _problems(limit: Object, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = limit["type"]
    for name, enforced in _sorted(limit, "min"):
        yield from _too_little(kind, name, enforced, requests, limits)
    for name, enforced in _sorted(limit, "max"):
        yield from _too_much(kind, name, enforced, requests, limits)
    for name, enforced in _sorted(limit, "maxLimitRequestRatio"):
        yield from _too_uneven(kind, name, enforced, requests, limits)


def _too_little(kind: str, name: str, enforced: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head = f"minimum {name} usage per {kind} is {enforced}"
    if name not in requests:
        yield f"{head}.  No request is specified"
    elif requests[name] < enforced:
        yield f"{head}, but request is {requests[name]}"
    elif name in limits and limits[name] < enforced:
        yield f"{head}, but limit is {limits[name]}"


def _too_much(kind: str, name: str, enforced: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head = f"maximum {name} usage per {kind} is {enforced}"
    if name not in limits:
        yield f"{head}.  No limit is specified"
    elif limits[name] > enforced:
        yield f"{head}, but limit is {limits[name]}"
    elif name in requests and requests[name] > enforced:
        yield f"{head}, but request is {requests[name]}"


def _too_uneven(kind: str, name: str, enforced: Quantity, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head = f"{name} max limit to request ratio per {kind} is {enforced}"
    if not requests.get(name):
        yield f"{head}, but no request is specified or request is 0"
    elif not limits.get(name):
        yield f"{head}, but no limit is specified or limit is 0"
    elif limits[name].nano * quantity.NANO > enforced.nano * requests[name].nano:
        yield f"{head}, but provided ratio is {limits[name].nano / requests[name].nano:f}"
