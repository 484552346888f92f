"""From a CRD to the resources that the server serves: `resources_of`."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.jobset import names as jobset
from torchyard.api.jobset.validation import JobSetStrategy
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.pytorchjob.validation import PyTorchJobStrategy
from torchyard.api.queue import names as queues
from torchyard.api.queue.validation import STRATEGIES as QUEUE_STRATEGIES
from torchyard.api.resources import Resource, Subresource
from torchyard.api.schema.types import Type
from torchyard.api.strategy import Strategy
from torchyard.api.trainjob import names as trainjob
from torchyard.api.trainjob.validation import RuntimeStrategy
from torchyard.apiserver.crd.definition.status import is_established
from torchyard.apiserver.crd.version import CustomVersion
from torchyard.apiserver.registry.conversion import is_converted
from torchyard.apiserver.wire.discovery import stability

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SUBRESOURCE_VERBS = ("get", "patch", "update")
_SCALE = GroupVersionKind("autoscaling", "v1", "Scale")
_UNQUALIFIED = "prefer a domain-qualified finalizer name{} to avoid accidental conflicts with other finalizer writers"
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
# Custom kinds with rules beyond their schema; on a cluster a validating webhook applies the same rules.
_KIND_RULES: dict[tuple[str, str], Strategy] = {
    (jobset.GROUP, jobset.KIND): JobSetStrategy(),
    (pytorchjob.GROUP, pytorchjob.KIND): PyTorchJobStrategy(),
    **dict.fromkeys([(trainjob.GROUP, kind) for kind in trainjob.RUNTIME_PLURALS], RuntimeStrategy()),
    **{(queues.GROUP, kind): rules for kind, rules in QUEUE_STRATEGIES.items()},
}
_NO_RULES = Strategy()


class CustomStrategy(Strategy):
    """The strategy of a custom resource, derived from its CRD."""

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
        self._rules.prepare_create(obj)

    def prepare_update(self, new: Object, old: Object) -> None:
        self._rules.prepare_update(new, old)
        if not self.version.has_status:
            return
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)

    def prepare_status(self, new: Object, old: Object) -> None:
        """Keep everything but the status; labels and annotations cannot change either."""
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
        """Whether anything changed except metadata and, with a status subresource, the status."""
        aside = {"metadata": None, "status": None} if self.version.has_status else {"metadata": None}
        return {**new, **aside} != {**old, **aside}

    def validate(self, obj: Object) -> list[FieldError]:
        """Validate the schema first; a kind's own rules can rely on its types."""
        return self.version.validate(obj) or self._rules.validate(obj)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.version.validate(new, old) or self._rules.validate_update(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        return self.version.validate_status(new, old) or self._rules.validate_status(new, old)

    def validate_normalized_status(self, new: Object, old: Object) -> list[FieldError]:
        errs = self.version.validate_status(new, old, is_normalized=True)
        return errs or self._rules.validate_status(new, old)

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
    """The served versions of a CRD; none before it is established."""
    if not is_established(crd):
        return []
    spec, names = crd["spec"], crd["status"]["acceptedNames"]
    conversion = spec.get("conversion") or {}
    webhook = conversion["webhook"] if conversion.get("strategy") == "Webhook" else None
    versions: dict[str, CustomVersion] = {}
    for entry in spec["versions"]:
        versions[entry["name"]] = CustomVersion(names["kind"], entry, _deprecation(entry, crd), webhook, versions)
    storage = next(entry["name"] for entry in spec["versions"] if entry.get("storage"))
    resources: list[Resource] = []
    for entry in spec["versions"]:
        if not entry.get("served"):
            continue
        version = versions[entry["name"]]
        validator = versions[storage] if is_converted(spec["group"], entry["name"], names["plural"]) else version
        resources.append(
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
                load_type=partial(_type_of, version),
                strategy=CustomStrategy(validator, _KIND_RULES.get((spec["group"], names["kind"]), _NO_RULES)),
                custom=version,
                has_conversion_webhook=webhook is not None,
            )
        )
    return resources


def _type_of(version: CustomVersion) -> Type:
    return version.type


def _deprecation(entry: dict[str, Any], crd: dict[str, Any]) -> str:
    """The warning of a deprecated version: its own text, or the newer version to use."""
    if not entry.get("deprecated"):
        return ""
    if entry.get("deprecationWarning"):
        return str(entry["deprecationWarning"])
    group, kind, own = crd["spec"]["group"], crd["status"]["acceptedNames"]["kind"], entry["name"]
    warning = f"{group}/{own} {kind} is deprecated"
    newer = [
        version["name"]
        for version in crd["spec"]["versions"]
        if version.get("served") and not version.get("deprecated") and stability(version["name"]) > stability(own)
    ]
    return f"{warning}; use {group}/{max(newer, key=stability)} {kind}" if newer else warning


def _subresources(group: str, version: CustomVersion) -> dict[str, Subresource]:
    subresources: dict[str, Subresource] = {}
    if version.has_status:
        gvk = GroupVersionKind(group, version.name, version.kind)
        subresources["status"] = Subresource("status", gvk, _SUBRESOURCE_VERBS)
    if version.scale is not None:
        subresources["scale"] = Subresource("scale", _SCALE, _SUBRESOURCE_VERBS)
    return subresources
