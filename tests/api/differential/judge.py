"""Ask both: our rules, and a real kube-apiserver. What they say is compared field by field."""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.http import Client

from torchyard.api import names
from torchyard.api.behaviour import Behaviour
from torchyard.api.builtins import builtin_resources
from torchyard.api.faults import Fault
from torchyard.api.pod.admission import add_default_tolerations, resolve_priority
from torchyard.api.resources import Resource
from torchyard.api.volume.admission import protect

Object = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """An object to create; with `change`, one to create and then to change (by the main or the status endpoint)."""

    name: str
    obj: Object
    change: Callable[[Object], None] | None = None
    status: bool = False
    # what is different on purpose: the path, and why
    unlike: tuple[str, str] | None = None
    # where the real server's own admission answers first; only the verdict counts
    verdict_only: bool = False


@dataclass
class Verdict:
    accepted: bool
    causes: list[tuple[str, str, str]] = field(default_factory=list)
    obj: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    said: str = ""


def resource_of(obj: Object) -> Resource:
    return next(one for one in builtin_resources() if one.api_version == obj["apiVersion"] and one.kind == obj["kind"])


def _path(resource: Resource, namespace: str) -> str:
    base = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    return f"{base}/namespaces/{namespace}/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"


_uid = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_value = re.compile(r"^(Invalid value|Duplicate value|Unsupported value): [\[{].*[\]}](?=: |$)", re.DOTALL)


def _cause(fault: Fault) -> tuple[str, str, str]:
    return fault.field, fault.reason, _comparable(fault.message)


def _comparable(message: str) -> str:
    """Structures are shown as users write them, not as upstream's internal types; a diff is only its first line."""
    return _uid.sub("UID", _value.sub(r"\1: …", message.split("\n", maxsplit=1)[0]))


class Judge:
    """A namespace of a real server, and our rules beside it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    def real_create(self, obj: Object, *, dry: bool = True) -> Verdict:
        query = "?fieldValidation=Strict" + ("&dryRun=All" if dry else "")
        return self._send("POST", _path(resource_of(obj), self.namespace) + query, obj)

    def real_update(self, obj: Object, *, status: bool) -> Verdict:
        path = f"{_path(resource_of(obj), self.namespace)}/{obj['metadata']['name']}"
        return self._send("PUT", f"{path}{'/status' if status else ''}?dryRun=All", obj)

    def delete(self, obj: Object) -> None:
        path = f"{_path(resource_of(obj), self.namespace)}/{obj['metadata']['name']}"
        self._client.patch(path, {"metadata": {"finalizers": None}})
        self._client.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        if obj["kind"] == "Namespace":
            # nobody empties namespaces here
            self._client.put(f"{path}/finalize", {**self._client.get(path).json, "spec": {}})

    def _send(self, method: str, path: str, obj: Object) -> Verdict:
        response = self._client.request(method, path, obj)
        body = response.json
        warnings = [re.sub(r'^299 - "(.*)"$', r"\1", line).replace('\\"', '"') for line in response.warnings]
        if response.status < 300:
            return Verdict(True, obj=body, warnings=warnings)
        causes = [
            (one.get("field", ""), one.get("reason", ""), _comparable(one.get("message", "")))
            for one in (body.get("details") or {}).get("causes") or ()
        ]
        return Verdict(False, causes, warnings=warnings, said=f"{response.status} {body.get('message')}")

    def our_create(self, obj: Object) -> Verdict:
        resource = resource_of(obj)
        behaviour = resource.behaviour
        mine = _prepared(obj, self.namespace if resource.namespaced else None)
        behaviour.default(mine)
        if admit := ADMISSION.get(resource.kind):
            admit(mine)
        behaviour.prepare_create(mine)
        found = names.validate_metadata(
            mine["metadata"], namespaced=resource.namespaced, name_rule=behaviour.name_rule
        ) + behaviour.validate(mine)
        return _verdict(found, mine, behaviour)

    def our_update(self, new: Object, old: Object, *, status: bool) -> Verdict:
        behaviour = resource_of(new).behaviour
        mine, before = copy.deepcopy(new), copy.deepcopy(old)
        behaviour.default(mine)
        untouched = json.dumps(before)
        if mine["kind"] == "Pod":
            add_default_tolerations(mine)
        (behaviour.prepare_status if status else behaviour.prepare_update)(mine, before)
        check = behaviour.validate_status if status else behaviour.validate_update
        found = names.validate_metadata_update(mine["metadata"], before["metadata"]) + check(mine, before)
        assert json.dumps(before) == untouched, "a hook changed the old object"
        return _verdict(found, mine, behaviour)


def _admit_pod(pod: Object) -> None:
    resolve_priority(pod, ())
    add_default_tolerations(pod)


def _taint(node: Object) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    node["spec"]["taints"] = [*(node["spec"].get("taints") or ()), taint]


# What the real server's own admission does to an object before it is validated.
ADMISSION: dict[str, Callable[[Object], None]] = {
    "Node": _taint,
    "Pod": _admit_pod,
    "PersistentVolume": protect,
    "PersistentVolumeClaim": protect,
    "VolumeAttributesClass": protect,
}


def _prepared(obj: Object, namespace: str | None) -> Object:
    mine = copy.deepcopy(obj)
    meta = mine.setdefault("metadata", {})
    if namespace:
        meta["namespace"] = namespace
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return mine


def _verdict(found: list[Fault], obj: Object, behaviour: Behaviour) -> Verdict:
    if found:
        return Verdict(False, [_cause(fault) for fault in found], said=str([fault.line() for fault in found]))
    return Verdict(True, obj=obj, warnings=behaviour.warnings(obj))


def without_empty(value: Any) -> Any:
    """Absent, null and empty are one and the same to Go's encoder; numbers and false are kept."""
    if isinstance(value, dict):
        pairs = {key: without_empty(one) for key, one in value.items()}
        return {key: one for key, one in pairs.items() if one not in (None, "", [], {})}
    if isinstance(value, list):
        return [without_empty(one) for one in value]
    return value


_time = re.compile(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"')
_OWN_METADATA = ("labels", "annotations", "finalizers")


def _told_apart(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two objects differ, path by path."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [*theirs, *(key for key in ours if key not in theirs)]
        return [line for key in keys for line in _told_apart(ours.get(key), theirs.get(key), f"{path}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for index, (one, other) in pairs for line in _told_apart(one, other, f"{path}[{index}]")]
    return [] if ours == theirs else [f"{path}: ours {ours!r}, theirs {theirs!r}"]


def _without_uids(obj: Object) -> Any:
    """Jobs write their uid, which no two servers share, all over themselves; a time is a time."""
    uid = obj.get("metadata", {}).get("uid") or "-"
    return json.loads(_time.sub('"TIME"', json.dumps(obj).replace(uid, "UID")))


def _comparable_object(obj: Object) -> Any:
    """All that rules decide: no names, versions and times, which every server gives in its own way."""
    comparable = _without_uids(obj)
    meta = comparable["metadata"]
    comparable["metadata"] = {key: meta.get(key) for key in _OWN_METADATA}
    if obj["kind"] == "Service" and comparable["spec"].get("clusterIP") != "None":
        # allocated once the service was found valid
        for name in ("clusterIP", "clusterIPs"):
            comparable["spec"].pop(name, None)
    return without_empty({key: value for key, value in comparable.items() if key not in ("apiVersion", "kind")})


def compare(judge: Judge, case: Case) -> list[str]:
    """Every difference between our rules and the real server's for one case; empty when there is none."""
    if case.change is None:
        theirs, ours = judge.real_create(case.obj), judge.our_create(case.obj)
    else:
        made = judge.real_create(case.obj, dry=False)
        assert made.accepted, f"the object to change was refused: {made.said}"
        try:
            changed = copy.deepcopy(made.obj)
            case.change(changed)
            theirs = judge.real_update(changed, status=case.status)
            ours = judge.our_update(changed, made.obj, status=case.status)
        finally:
            judge.delete(made.obj)
    found = _differences(ours, theirs, verdict_only=case.verdict_only)
    if case.unlike is not None:
        path, why = case.unlike
        assert any(path in line for line in found), f"no longer different, so not to be excused by: {why}"
        found = [line for line in found if path not in line]
    return found


def _differences(ours: Verdict, theirs: Verdict, *, verdict_only: bool) -> list[str]:
    if ours.accepted != theirs.accepted:
        return [f"ours accepted: {ours.accepted} {ours.said}", f"theirs accepted: {theirs.accepted} {theirs.said}"]
    if verdict_only:
        return []
    if not ours.accepted:
        missing = [f"not told by us: {cause}" for cause in theirs.causes if cause not in ours.causes]
        invented = [f"told by us only: {cause}" for cause in ours.causes if cause not in theirs.causes]
        fewer = len(ours.causes) != len(theirs.causes) and not missing and not invented
        return missing + invented + ([f"{len(ours.causes)} causes, not {len(theirs.causes)}"] if fewer else [])
    mine, real = (_comparable_object(one) for one in (ours.obj, theirs.obj))
    found = _told_apart(mine, real)
    found += [f"not warned by us: {line}" for line in theirs.warnings if line not in ours.warnings]
    return found + [f"warned by us only: {line}" for line in ours.warnings if line not in theirs.warnings]
