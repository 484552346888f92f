"""A served resource: its names, scope, verbs, subresources, schema and strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema.types import Type
from torchyard.api.strategy import Strategy

# Built-in resources whose use upstream warns of, by group, version and plural.
_DEPRECATIONS = {
    ("", "v1", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
    ("", "v1", "endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource such as `status`, `scale` or `log`."""

    name: str
    gvk: GroupVersionKind
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A (group, version, plural). All versions of a resource share their stored objects."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: dict[str, Subresource] = field(default_factory=dict)
    storage_version: str = ""  # the version in which objects are stored; empty means this version
    storage_group: str | None = None  # set if objects are stored in another group: events.k8s.io uses the core group
    load_type: Callable[[], Type | None] = lambda: None  # called for each use of `type`
    strategy: Strategy = field(default_factory=Strategy)
    custom: Any = None  # the compiled CRD version for custom resources, None for built-in kinds
    has_conversion_webhook: bool = False  # a webhook converts its objects between versions

    @property
    def type(self) -> Type | None:
        """The type of its objects, built when it is first needed; None: any."""
        return self.load_type()

    @property
    def deprecation(self) -> str:
        """The warning of every response about its objects, if it is deprecated."""
        if self.custom is not None:
            return str(self.custom.deprecation)
        return _DEPRECATIONS.get((self.group, self.version, self.plural), "")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def gvk(self) -> GroupVersionKind:
        return GroupVersionKind(self.group, self.version, self.kind)
