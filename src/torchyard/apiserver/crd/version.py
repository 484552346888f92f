"""One served version of a custom resource: everything that the server needs from its schema, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torchyard.api.columns import Columns
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.schema.types import Type
from torchyard.apiserver.crd.columns import printer_columns
from torchyard.apiserver.crd.jsonpath import JSONPath
from torchyard.apiserver.crd.scale import ScalePaths, scale_errors
from torchyard.apiserver.crd.schema import defaulting
from torchyard.apiserver.crd.schema.lists import duplicate_errors
from torchyard.apiserver.crd.schema.metadata import coerce, embedded_errors
from torchyard.apiserver.crd.schema.node import SchemaNode, compile_schema
from torchyard.apiserver.crd.schema.prune import prune
from torchyard.apiserver.crd.schema.quick_check import QuickCheck, never, normalized_check, valid_check
from torchyard.apiserver.crd.schema.resource_type import resource_type
from torchyard.apiserver.crd.schema.validation import ABSENT, NO_PATH, schema_errors

if TYPE_CHECKING:
    from torchyard.apiserver.crd.cel_rules.validation import RuleValidator


@dataclass(frozen=True)
class CustomVersion:
    """A version of a CRD. `spec` is its entry of spec.versions, shared with the stored definition: read-only."""

    kind: str
    spec: Object
    deprecation: str = ""  # the warning for clients of a deprecated version
    conversion: Object | None = None  # spec.conversion.webhook, if a webhook converts the objects
    siblings: Mapping[str, CustomVersion] = field(default_factory=dict, repr=False, compare=False)  # all versions

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def schema(self) -> Object:
        """The schema as it is in the CRD, descriptions included, for OpenAPI and `kubectl explain`."""
        return (self.spec.get("schema") or {}).get("openAPIV3Schema") or {}

    @property
    def has_status(self) -> bool:
        return (self.spec.get("subresources") or {}).get("status") is not None

    @cached_property
    def scale(self) -> ScalePaths | None:
        return ScalePaths.of((self.spec.get("subresources") or {}).get("scale"))

    @cached_property
    def root(self) -> SchemaNode:
        return compile_schema(self.schema)

    @cached_property
    def _rules(self) -> RuleValidator | None:
        if not self.root.rules_below:
            return None
        from torchyard.apiserver.crd.cel_rules.validation import RuleValidator

        return RuleValidator(self.root)

    @cached_property
    def type(self) -> Type:
        return resource_type(self.root)

    @cached_property
    def columns(self) -> Columns:
        return printer_columns(self.spec.get("additionalPrinterColumns"))

    @cached_property
    def _selectable(self) -> dict[str, JSONPath]:
        paths = [field["jsonPath"] for field in self.spec.get("selectableFields") or ()]
        return {path.removeprefix("."): JSONPath(path) for path in paths}

    def selectable(self, obj: Object) -> dict[str, str]:
        """The values of the selectable fields; a missing field is an empty string."""
        return {name: _selected(path.find(obj)) for name, path in self._selectable.items()}

    def prune(self, obj: Object) -> list[str]:
        """Drop unspecified fields in place; returns their paths.

        Raises a 400 for invalid metadata, of the object itself or of an embedded resource.
        """
        unknown = coerce(obj, self.root, kind=self.kind, version=self.name)
        return sorted(unknown + prune(obj, self.root))

    def default(self, obj: Object) -> None:
        defaulting.default(obj, self.root)

    def normalize(self, obj: Object) -> None:
        """Bring an object of any version, or of an earlier schema, into this version, in place.

        As upstream, the schema of the object's own version sets the defaults.
        """
        group, _, name = obj["apiVersion"].partition("/")
        own = self.siblings.get(name, self)
        own.prune(obj)
        own.default(obj)
        if own is not self:
            obj["apiVersion"] = f"{group}/{self.name}"
            self.prune(obj)

    def validate(self, obj: Object, old: Object | None = None) -> list[FieldError]:
        """The errors of a new object, or of a change from `old`; its own metadata is validated elsewhere."""
        root = self.root
        is_valid = valid_check(root)(obj)
        errs = [] if is_valid else schema_errors(obj, root, old=ABSENT if old is None else old)
        errs += scale_errors(obj, self.scale)
        errs += embedded_errors(obj, root)
        duplicates = [] if is_valid else duplicate_errors(obj, root)
        if duplicates and (old is None or not duplicate_errors(old, root)):
            errs += duplicates
        return errs + self._rule_errors(obj, old, errs)

    @cached_property
    def is_normalized_status(self) -> QuickCheck:
        """A fast check: true only for a valid status that pruning and defaulting do not change."""
        status = self.root.properties.get("status")
        return never if status is None or status.embedded_below else normalized_check(status)

    def validate_status(self, obj: Object, old: Object, *, is_normalized: bool = False) -> list[FieldError]:
        """The errors of a status change; the rest is unchanged. `is_normalized`: `is_normalized_status` was true."""
        status = self.root.properties.get("status")
        is_valid = is_normalized or status is None or "status" not in obj or valid_check(status)(obj["status"])
        errs: list[FieldError] = []
        if status is not None and not is_valid:
            errs = [_in_status(error) for error in schema_errors(obj["status"], status, old=old.get("status", ABSENT))]
        errs += scale_errors(obj, self.scale, status_only=True)
        duplicates = duplicate_errors(obj["status"], status, "status") if status is not None and not is_valid else []
        if duplicates and not duplicate_errors(old, self.root):
            errs += duplicates
        return errs + self._rule_errors(obj, old, errs)

    def _rule_errors(self, obj: Object, old: Object | None, previous_errs: list[FieldError]) -> list[FieldError]:
        rules = self._rules
        return [] if rules is None else rules.validate(obj, ABSENT if old is None else old, previous_errs)


def _in_status(error: FieldError) -> FieldError:
    """As upstream: the status is validated on its own, so only the field has the full path, not the message."""
    field = f"status.{error.field}" if error.field not in ("", NO_PATH) else "status"
    return FieldError(error.reason, field, error.message)


def _selected(values: list[Any]) -> str:
    if not values or values[0] is None:
        return ""
    return str(values[0]).lower() if isinstance(values[0], bool) else str(values[0])
