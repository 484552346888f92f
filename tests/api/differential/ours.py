"""What our rules say about a case: the hooks of a kind, in the order the server calls them."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable

from tests.api.differential.verdict import (
    Case,
    Object,
    Part,
    Verdict,
    comparable_message,
    comparable_object,
    resource_of,
)

from torchyard.api import names
from torchyard.api.behaviour import Behaviour
from torchyard.api.errors import StatusError
from torchyard.api.faults import Fault
from torchyard.api.pod.admission import add_default_tolerations, resolve_priority
from torchyard.api.pod.updates import resized, validate_ephemeral_containers, validate_resize
from torchyard.api.volume.admission import protect

NAMESPACE = "diff"


def _admit_pod(pod: Object) -> None:
    resolve_priority(pod, ())
    add_default_tolerations(pod)


def _taint(node: Object) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    node["spec"]["taints"] = [*(node["spec"].get("taints") or ()), taint]


# What a server's admission does to an object before it is validated.
_ADMISSION: dict[str, Callable[[Object], None]] = {
    "Node": _taint,
    "Pod": _admit_pod,
    "PersistentVolume": protect,
    "PersistentVolumeClaim": protect,
    "VolumeAttributesClass": protect,
}


def created(obj: Object) -> Verdict:
    resource = resource_of(obj)
    behaviour = resource.behaviour
    mine = copy.deepcopy(obj)
    meta = mine.setdefault("metadata", {})
    if resource.namespaced:
        meta["namespace"] = NAMESPACE
    meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z"}
    behaviour.default(mine)
    try:
        if admit := _ADMISSION.get(resource.kind):
            admit(mine)
    except StatusError as refusal:
        return Verdict(False, said=refusal.message)
    behaviour.prepare_create(mine)
    found = names.validate_metadata(meta, namespaced=resource.namespaced, name_rule=behaviour.name_rule)
    return _verdict(found + behaviour.validate(mine), mine, behaviour)


def changed(case: Case, old: Object) -> Verdict:
    """The verdict on the case's change of an object as a real server stored it."""
    assert case.change is not None
    behaviour = resource_of(old).behaviour
    mine, before = copy.deepcopy(old), copy.deepcopy(old)
    case.change(mine)
    behaviour.default(mine)
    if mine["kind"] == "Pod":
        add_default_tolerations(mine)
    found = names.validate_metadata_update(mine["metadata"], before["metadata"])
    found += _rules(behaviour, case.part)(mine, before)
    assert json.dumps(before) == json.dumps(old), "a hook changed the old object"
    verdict = _verdict(found, mine, behaviour)
    if case.part:
        verdict.warnings = []
    return verdict


def _rules(behaviour: Behaviour, part: Part) -> Callable[[Object, Object], list[Fault]]:
    if part == "ephemeralcontainers":
        return validate_ephemeral_containers
    if part == "resize":
        return _resize

    def rules(new: Object, old: Object) -> list[Fault]:
        if part == "status":
            behaviour.prepare_status(new, old)
            return behaviour.validate_status(new, old)
        behaviour.prepare_update(new, old)
        return behaviour.validate_update(new, old)

    return rules


def _resize(new: Object, old: Object) -> list[Fault]:
    new["spec"] = resized(old, new)["spec"]
    return validate_resize(new, old)


def _verdict(found: list[Fault], obj: Object, behaviour: Behaviour) -> Verdict:
    if found:
        causes = [(one.field, one.reason, comparable_message(one.message)) for one in found]
        return Verdict(False, causes, said=str([one.line() for one in found]))
    return Verdict(True, obj=comparable_object(obj), warnings=behaviour.warnings(obj))
