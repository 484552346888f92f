"""The strategy of a kind: how it differs from a plain stored object.

The API server calls these hooks in a fixed order (see `apiserver.verbs`). Every hook is pure: no I/O, no clock, no
randomness. A kind overrides what it needs. `default` and `prepare_*` may change `obj` and `new` in place, but never
`old`.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

NameRule = Literal["subdomain", "label", "service", "path-segment"]


class Strategy:
    """The strategy of a kind without special rules."""

    name_rule: ClassVar[NameRule] = "subdomain"
    # PUT without a resourceVersion updates unconditionally
    unconditional_update: ClassVar[bool] = True
    # PUT of an object that does not exist creates it
    create_on_update: ClassVar[bool] = False
    # DELETE returns the last state of the object instead of a Status
    returns_deleted: ClassVar[bool] = False
    # finalizers must be well-known or have a prefix
    qualified_finalizers: ClassVar[bool] = True
    # an update is validated like a new object, including the prefix of its name
    validates_prefix_on_update: ClassVar[bool] = False
    # warn on update too, not only on create
    warns_on_update: ClassVar[bool] = True
    # DELETE sets a grace period first
    graceful: ClassVar[bool] = False
    default_propagation: ClassVar[Literal["Background", "Orphan"]] = "Background"
    # paths of lists that become null once stored if they are empty: Go's storage cannot distinguish the two
    empty_is_null: ClassVar[tuple[tuple[str, ...], ...]] = ()
    # a change of the status depends on no other field, and `default` sets nothing in the status
    status_is_separate: ClassVar[bool] = False
    # top-level fields other than metadata whose change increments the generation; None: the kind has no generation
    generation_fields: ClassVar[tuple[str, ...] | None] = ("spec",)

    def default(self, obj: Object) -> None:
        """Set defaults. Runs on every write, before validation."""

    def prepare_create(self, obj: Object) -> None:
        """Reset fields that a client must not set on create, such as the status."""

    def rename(self, obj: Object, before: str) -> None:
        """Update what `prepare_create` derived from a generated name, after a new name was generated on a collision."""

    def prepare_update(self, new: Object, old: Object) -> None:
        """Restore fields that the main endpoint must not change, such as the status."""

    def prepare_status(self, new: Object, old: Object) -> None:
        """Restore fields that the status endpoint must not change: everything but the status."""

    def stamp_status(self, new: Object, old: Object, now: datetime) -> None:
        """Set the times of the status that a status update leaves out. Runs after `prepare_status`."""

    def on_delete(self, obj: Object, now: datetime) -> None:
        """Handle the first DELETE of an object: update its status, or add finalizers of the kind."""

    def is_new_generation(self, new: Object, old: Object) -> bool:
        """Whether the update changes the desired state and so increments the generation."""
        return any(new.get(name) != old.get(name) for name in self.generation_fields or ())

    def validate(self, obj: Object) -> list[FieldError]:
        """Validate a new object. The server validates the metadata."""
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """Validate an update, including `new` itself."""
        return self.validate(new)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        """Validate a status update."""
        return []

    def validate_normalized_status(self, new: Object, old: Object) -> list[FieldError]:
        """Validate a status update that is known to conform to the schema."""
        return self.validate_status(new, old)

    def warnings(self, obj: Object) -> list[str]:
        """Return texts for the Warning header about valid but suspicious objects."""
        return []

    def delete_warnings(self) -> list[str]:
        """Return texts for a DELETE without a propagation policy."""
        return []

    def selectable(self, obj: Object) -> dict[str, str]:
        """Return the fields that field selectors support besides metadata.name and metadata.namespace."""
        return {}
