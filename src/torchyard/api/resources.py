"""A served resource: its names, scope, verbs and subresources, and the shape and behaviour of its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema.types import Type
from torchyard.api.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Subresource:
    """`status`, `scale`, `log` …: what hangs below one object's path."""

    name: str
    gvk: GroupVersionKind
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One (group, version, plural). Versions of one group's plural share their objects in the store."""

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
    storage_version: str = ""  # the version objects are kept in; empty means this one
    storage_group: str | None = None  # set where another group keeps the objects: events.k8s.io uses core's
    type: Type | None = None
    strategy: Strategy = field(default_factory=Strategy)
    custom: Any = None  # the compiled CRD version for custom resources, None for built-in kinds

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def gvk(self) -> GroupVersionKind:
        return GroupVersionKind(self.group, self.version, self.kind)
