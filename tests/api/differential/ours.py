"""Our verdict about a case: the hooks of a kind, in the order in which the server calls them."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable

from tests.api.differential.verdict import Case, Part, Verdict, comparable_message, comparable_object, resource_of

from torchyard.api import names
from torchyard.api.errors import StatusError
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.pod.admission import add_default_tolerations, resolve_priority
from torchyard.api.pod.updates import apply_resize, validate_ephemeral_containers, validate_resize
from torchyard.api.strategy import Strategy
from torchyard.api.volume.admission import protect

NAMESPACE = "diff"


def _admit_pod(pod: Object) -> None:
    resolve_priority(pod, ())
    add_default_tolerations(pod)


def _taint(node: Object) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    node["spec"]["taints"] = [*(node["spec"].get("taints") or ()), taint]


# What admission does to an object before validation.
_ADMISSION: dict[str, Callable[[Object], None]] = {
    "Node": _taint,
    "Pod": _admit_pod,
    "PersistentVolume": protect,
    "PersistentVolumeClaim": protect,
    "VolumeAttributesClass": protect,
}


def created(obj: Object) -> Verdict:
    resource = resource_of(obj)
    strategy = resource.strategy
    new = copy.deepcopy(obj)
    meta = new.setdefault("metadata", {})
    if resource.namespaced:
        meta["namespace"] = NAMESPACE
    meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z"}
    strategy.default(new)
    try:
        if admit := _ADMISSION.get(resource.kind):
            admit(new)
    except StatusError as refusal:
        return Verdict(False, message=refusal.message)
    strategy.prepare_create(new)
    errs = names.validate_metadata(meta, namespaced=resource.namespaced, name_rule=strategy.name_rule)
    return _verdict(errs + strategy.validate(new), new, strategy)


def changed(case: Case, old: Object) -> Verdict:
    """Return the verdict on the change of an object that kube-apiserver stored."""
    assert case.change is not None
    strategy = resource_of(old).strategy
    new, before = copy.deepcopy(old), copy.deepcopy(old)
    case.change(new)
    strategy.default(new)
    if new["kind"] == "Pod":
        add_default_tolerations(new)
    errs = names.validate_metadata_update(new["metadata"], before["metadata"])
    errs += _rules(strategy, case.part)(new, before)
    assert json.dumps(before) == json.dumps(old), "a hook changed the old object"
    verdict = _verdict(errs, new, strategy)
    if case.part:
        verdict.warnings = []
    return verdict


def _rules(strategy: Strategy, part: Part) -> Callable[[Object, Object], list[FieldError]]:
    if part == "ephemeralcontainers":
        return validate_ephemeral_containers
    if part == "resize":
        return _resize

    def rules(new: Object, old: Object) -> list[FieldError]:
        if part == "status":
            strategy.prepare_status(new, old)
            return strategy.validate_status(new, old)
        strategy.prepare_update(new, old)
        return strategy.validate_update(new, old)

    return rules


def _resize(new: Object, old: Object) -> list[FieldError]:
    new["spec"] = apply_resize(old, new)["spec"]
    return validate_resize(new, old)


def _verdict(errs: list[FieldError], obj: Object, strategy: Strategy) -> Verdict:
    if errs:
        causes = [(err.field, err.reason, comparable_message(err.message)) for err in errs]
        return Verdict(False, causes, message=str([str(err) for err in errs]))
    return Verdict(True, obj=comparable_object(obj), warnings=strategy.warnings(obj))
