"""What is asked of the server, as admission sees it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.access.admission.attributes import Operation


@dataclass(frozen=True, slots=True)
class VersionedAttributes:
    """A write before it happens. `obj` is None for DELETE, `old` for CREATE; `user` is a UserInfo."""

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
        """The labels of the new and of the old object, where there are such."""
        return [(one.get("metadata") or {}).get("labels") or {} for one in (self.obj, self.old) if one is not None]

    @property
    def is_exempt(self) -> bool:
        """Nobody can lock themselves out: what configures admission is not subject to it."""
        return self.resource.group == "admissionregistration.k8s.io" and self.resource.plural in _CONFIGURES

    def forbidden(self, why: str) -> errors.StatusError:
        return errors.forbidden(self.resource.plural, self.resource.group, self.name, why)


_CONFIGURES = frozenset(
    (
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    )
)
