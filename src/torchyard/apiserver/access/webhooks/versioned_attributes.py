"""The attributes of a write in the version that a webhook or policy asks for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.access.admission.attributes import Operation


@dataclass(frozen=True, slots=True)
class VersionedAttributes:
    """A write before it is stored. `obj` is None for DELETE, `old` is None for CREATE; `user` is a UserInfo."""

    operation: Operation
    resource: Resource
    obj: Object | None
    old: Object | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    user: Object = field(default_factory=dict)
    dry_run: bool = False
    options: Object = field(default_factory=dict)

    def with_object(self, obj: Object | None) -> VersionedAttributes:
        return replace(self, obj=obj)

    def labels(self) -> list[Object]:
        """The labels of the new and the old object, as far as they exist."""
        return [(obj.get("metadata") or {}).get("labels") or {} for obj in (self.obj, self.old) if obj is not None]

    @property
    def is_exempt(self) -> bool:
        """Whether the write configures admission; it is exempt, so that no configuration blocks its own removal."""
        return self.resource.group == "admissionregistration.k8s.io" and self.resource.plural in _ADMISSION_RESOURCES

    def forbidden(self, reason: str) -> errors.StatusError:
        return errors.forbidden(self.resource.plural, self.resource.group, self.name, reason)


_ADMISSION_RESOURCES = frozenset(
    (
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    )
)
