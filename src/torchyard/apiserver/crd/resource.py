"""From a CustomResourceDefinition to the resources the server serves: `resources_of`."""

from __future__ import annotations

from typing import Any, ClassVar

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.pytorchjob.validation import PyTorchJobStrategy
from torchyard.api.queue import names as queues
from torchyard.api.queue.validation import RULES as QUEUE_RULES
from torchyard.api.resources import Resource, Subresource
from torchyard.api.strategy import Strategy
from torchyard.apiserver.crd.definition.status import is_established
from torchyard.apiserver.crd.version import CustomVersion
from torchyard.apiserver.registry.conversion import is_converted
from torchyard.apiserver.wire.discovery import stability

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SUBRESOURCE_VERBS = ("get", "patch", "update")
_SCALE = GroupVersionKind("autoscaling", "v1", "Scale")
_UNQUALIFIED = "prefer a domain-qualified finalizer name{} to avoid accidental conflicts with other finalizer writers"
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
# Custom kinds with rules that no schema can hold; on a cluster a validating webhook applies the same ones.
_RULES: dict[tuple[str, str], Strategy] = {
    (pytorchjob.GROUP, pytorchjob.KIND): PyTorchJobStrategy(),
    **{(queues.GROUP, kind): rules for kind, rules in QUEUE_RULES.items()},
}
_NO_RULES = Strategy()


class CustomStrategy(Strategy):
    """What a definition says about its objects, in the server's terms."""

    unconditional_update: ClassVar[bool] = False
    generation_fields: ClassVar[tuple[str, ...] | None] = ()

    def __init__(self, version: CustomVersion, rules: Strategy = _NO_RULES) -> None:
        self.version = version
        self._rules = rules

    def default(self, obj: Object) -> None:
        self.version.default(obj)

    def prepare_create(self, obj: Object) -> None:
        if self.version.has_status:
            obj.pop("status", None)

    def prepare_update(self, new: Object, old: Object) -> None:
        if not self.version.has_status:
            return
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)

    def prepare_status(self, new: Object, old: Object) -> None:
        """Everything but the status, labels and annotations among it, stays what it was."""
        status = new.get("status")
        managed = (new.get("metadata") or {}).get("managedFields")
        new.clear()
        new.update(old)
        new["metadata"] = {**old["metadata"], "managedFields": managed}
        if managed is None:
            del new["metadata"]["managedFields"]
        if status is None:
            new.pop("status", None)
        else:
            new["status"] = status

    def is_new_generation(self, new: Object, old: Object) -> bool:
        """Any change but of metadata, and of a status that has an endpoint of its own."""
        aside = {"metadata": None, "status": None} if self.version.has_status else {"metadata": None}
        return {**new, **aside} != {**old, **aside}

    def validate(self, obj: Object) -> list[FieldError]:
        """A kind's own rules come after the schema: they may rely on its types."""
        return self.version.validate(obj) or self._rules.validate(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.version.validate(new, old) or self._rules.validate_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return self.version.validate_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        unqualified = [
            f"metadata.finalizers: {field_errors.format_value(name)}: "
            f"{_UNQUALIFIED.format(' including a path (/)' * ('.' in name))}"
            for name in (obj.get("metadata") or {}).get("finalizers") or ()
            if "/" not in name and name not in _STANDARD_FINALIZERS
        ]
        return unqualified + self._rules.warnings(obj)

    def selectable(self, obj: Object) -> dict[str, str]:
        return self.version.selectable(obj)


def resources_of(crd: dict[str, Any]) -> list[Resource]:
    """The served versions of a definition; none are served before it is established."""
    if not is_established(crd):
        return []
    spec, names = crd["spec"], crd["status"]["acceptedNames"]
    kept = next(one for one in spec["versions"] if one.get("storage"))
    storage, stored = kept["name"], CustomVersion(names["kind"], kept)
    found: list[Resource] = []
    for entry in spec["versions"]:
        if not entry.get("served"):
            continue
        version = CustomVersion(names["kind"], entry, _deprecation(entry, crd))
        judged = stored if is_converted(spec["group"], entry["name"], names["plural"]) else version
        found.append(
            Resource(
                group=spec["group"],
                version=entry["name"],
                plural=names["plural"],
                singular=names.get("singular") or names["kind"].lower(),
                kind=names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                verbs=VERBS,
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=_subresources(spec["group"], version),
                storage_version=storage,
                type=version.type,
                strategy=CustomStrategy(judged, _RULES.get((spec["group"], names["kind"]), _NO_RULES)),
                custom=version,
            )
        )
    return found


def _deprecation(entry: dict[str, Any], crd: dict[str, Any]) -> str:
    """The warning of a deprecated version: its own, or which newer one to use."""
    if not entry.get("deprecated"):
        return ""
    if entry.get("deprecationWarning"):
        return str(entry["deprecationWarning"])
    group, kind, own = crd["spec"]["group"], crd["status"]["acceptedNames"]["kind"], entry["name"]
    said = f"{group}/{own} {kind} is deprecated"
    newer = [
        one["name"]
        for one in crd["spec"]["versions"]
        if one.get("served") and not one.get("deprecated") and stability(one["name"]) > stability(own)
    ]
    return f"{said}; use {group}/{max(newer, key=stability)} {kind}" if newer else said


def _subresources(group: str, version: CustomVersion) -> dict[str, Subresource]:
    found: dict[str, Subresource] = {}
    if version.has_status:
        gvk = GroupVersionKind(group, version.name, version.kind)
        found["status"] = Subresource("status", gvk, _SUBRESOURCE_VERBS)
    if version.scale is not None:
        found["scale"] = Subresource("scale", _SCALE, _SUBRESOURCE_VERBS)
    return found
