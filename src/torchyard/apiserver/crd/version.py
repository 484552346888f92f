"""One served version of a custom resource: everything the server needs of its schema, compiled."""

from __future__ import annotations

from dataclasses import dataclass
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
    deprecation: str = ""  # what to tell those who use a deprecated version

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def schema(self) -> Object:
        """The schema as its author wrote it, descriptions included: what OpenAPI and `kubectl explain` show."""
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
        paths = [one["jsonPath"] for one in self.spec.get("selectableFields") or ()]
        return {path.removeprefix("."): JSONPath(path) for path in paths}

    def selectable(self, obj: Object) -> dict[str, str]:
        """The values of the selectable fields; a missing one is selected by the empty string."""
        return {name: _selected(path.find(obj)) for name, path in self._selectable.items()}

    def prune(self, obj: Object) -> list[str]:
        """Drop in place what the schema does not specify; the paths of what was dropped.

        Raises a 400 where metadata, the object's own or an embedded one's, is not what metadata must be.
        """
        unknown = coerce(obj, self.root, kind=self.kind, version=self.name)
        return sorted(unknown + prune(obj, self.root))

    def default(self, obj: Object) -> None:
        defaulting.default(obj, self.root)

    def normalize(self, obj: Object) -> None:
        """Bring an object that another schema let through into the form of this one, in place."""
        self.prune(obj)
        self.default(obj)

    def validate(self, obj: Object, old: Object | None = None) -> list[FieldError]:
        """The faults of an object as it is created, or changed from `old`; not those of its own metadata."""
        root = self.root
        is_fine = valid_check(root)(obj)
        found = [] if is_fine else schema_errors(obj, root, old=ABSENT if old is None else old)
        found += scale_errors(obj, self.scale)
        found += embedded_errors(obj, root)
        repeated = [] if is_fine else duplicate_errors(obj, root)
        if repeated and (old is None or not duplicate_errors(old, root)):
            found += repeated
        return found + self._rule_errors(obj, old, found)

    @cached_property
    def is_normalized_status(self) -> QuickCheck:
        """Whether a status is valid for sure and stays as it is when it is pruned and defaulted."""
        status = self.root.properties.get("status")
        return never if status is None or status.embedded_below else normalized_check(status)

    def validate_status(self, obj: Object, old: Object, *, is_normalized: bool = False) -> list[FieldError]:
        """The faults of a status change; the rest of the object is what it was. `is_settled`: see `settles`."""
        status = self.root.properties.get("status")
        is_fine = is_normalized or status is None or "status" not in obj or valid_check(status)(obj["status"])
        errs: list[FieldError] = []
        if status is not None and not is_fine:
            errs = [_in_status(one) for one in schema_errors(obj["status"], status, old=old.get("status", ABSENT))]
        errs += scale_errors(obj, self.scale, status_only=True)
        repeated = duplicate_errors(obj["status"], status, "status") if status is not None and not is_fine else []
        if repeated and not duplicate_errors(old, self.root):
            errs += repeated
        return errs + self._rule_errors(obj, old, errs)

    def _rule_errors(self, obj: Object, old: Object | None, known: list[FieldError]) -> list[FieldError]:
        rules = self._rules
        return [] if rules is None else rules.validate(obj, ABSENT if old is None else old, known)


def _in_status(error: FieldError) -> FieldError:
    """As upstream: the status is checked by itself, so only the field tells where it stands, not the message."""
    field = f"status.{error.field}" if error.field not in ("", NO_PATH) else "status"
    return FieldError(error.reason, field, error.message)


def _selected(found: list[Any]) -> str:
    if not found or found[0] is None:
        return ""
    return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])
