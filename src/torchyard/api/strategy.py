"""What makes one kind different from a plain stored object.

The API server calls these hooks in a fixed order (see `apiserver.verbs`); every hook is pure: no I/O, no clock, no
randomness. A kind overrides what it needs. `obj`, `new` may be changed in place by `default` and `prepare_*`;
`old` never is.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object

NameRule = Literal["subdomain", "label", "service", "path-segment"]


class Strategy:
    """The behaviour of a kind with nothing special about it."""

    name_rule: ClassVar[NameRule] = "subdomain"
    # PUT without a resourceVersion is taken as "whatever the current one is"
    unconditional_update: ClassVar[bool] = True
    # PUT of an object that does not exist creates it
    create_on_update: ClassVar[bool] = False
    # DELETE answers the last state of the object instead of a Status
    returns_deleted: ClassVar[bool] = False
    # finalizers must be well-known or have a prefix
    qualified_finalizers: ClassVar[bool] = True
    # warnings are for those who write such objects by hand; programs that change them are not told again
    warns_on_update: ClassVar[bool] = True
    # DELETE sets a grace period first
    graceful: ClassVar[bool] = False
    default_propagation: ClassVar[Literal["Background", "Orphan"]] = "Background"
    # lists that are null once stored if they are empty, by their paths: Go's storage cannot tell the two apart
    empty_is_null: ClassVar[tuple[tuple[str, ...], ...]] = ()
    # top-level fields (beside metadata) that count as a change of generation; None: the kind has no generation
    generation_fields: ClassVar[tuple[str, ...] | None] = ("spec",)

    def default(self, obj: Object) -> None:
        """Fill in what the user left out. Runs on every write, before validation."""

    def prepare_create(self, obj: Object) -> None:
        """Reset what a client must not set on create, such as the status."""

    def rename(self, obj: Object, before: str) -> None:
        """Bring along what `prepare_create` made of a generated name that was taken; the object has another now."""

    def prepare_update(self, new: Object, old: Object) -> None:
        """Carry over what the main endpoint must not change, such as the status."""

    def prepare_status(self, new: Object, old: Object) -> None:
        """Carry over what the status endpoint must not change: everything but the status."""

    def on_delete(self, obj: Object, now: datetime) -> None:
        """The first DELETE: say so in the status, or add finalizers of the kind's own, where it has that."""

    def is_new_generation(self, new: Object, old: Object) -> bool:
        """Whether a change is one of what the user asks for, and so a new generation."""
        return any(new.get(name) != old.get(name) for name in self.generation_fields or ())

    def validate(self, obj: Object) -> list[FieldError]:
        """The faults of an object as it is created (metadata is checked by the server)."""
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """The faults of a change. Includes those of `new` itself."""
        return self.validate(new)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        """The faults of a status change."""
        return []

    def warnings(self, obj: Object) -> list[str]:
        """Sentences for the Warning header: valid, but probably not what was meant."""
        return []

    def delete_warnings(self) -> list[str]:
        """Sentences for a DELETE that leaves the propagation policy to the kind."""
        return []

    def selectable(self, obj: Object) -> dict[str, str]:
        """The fields a field selector may name beside metadata.name and metadata.namespace, with their values."""
        return {}
