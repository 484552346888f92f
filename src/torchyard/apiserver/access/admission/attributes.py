"""What an admission plugin knows about a write."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torchyard.api.errors import StatusError, forbidden
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.lister import Lister

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class AdmissionAttributes(NamedTuple):
    """One write. `obj` is None for DELETE, `old` is None for CREATE."""

    operation: Operation
    group: str
    resource: str
    namespace: str
    name: str
    user: User
    lister: Lister
    obj: Object | None = None
    old: Object | None = None
    subresource: str = ""
    dry_run: bool = False

    def is_for(self, resource: str, group: str = "", *, operations: tuple[Operation, ...] = ("CREATE",)) -> bool:
        """Whether this is one of the operations on the resource itself, not on a subresource."""
        return (
            self.resource == resource and self.group == group and not self.subresource and self.operation in operations
        )

    @property
    def new(self) -> Object:
        """The object to be written."""
        assert self.obj is not None
        return self.obj

    @property
    def display_name(self) -> str:
        """The name for messages; an object without a name yet is called by its `generateName`."""
        metadata = (self.obj or {}).get("metadata") or {}
        return self.name or metadata.get("name") or metadata.get("generateName") or "Unknown"

    def forbidden_error(self, reason: str) -> StatusError:
        return forbidden(self.resource, self.group, self.display_name, reason)
