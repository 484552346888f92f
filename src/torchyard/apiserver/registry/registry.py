"""What verbs work with: the store, the catalog of served resources, and the rules that every write passes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import ClassVar, Protocol

from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.access.admission.attributes import Operation
from torchyard.apiserver.registry.catalog import Catalog, object_key
from torchyard.apiserver.registry.lookup import StoreLookup
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.store.store import Store
from torchyard.core.pod.logs import LogOptions

# The revisions of all that a verdict rests on, beside the object in question.
Basis = tuple[int, ...]


class Admission(Protocol):
    """The rules beyond a kind's own: quotas, limits, service accounts, webhooks."""

    async def mutate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> bool:
        """Complete or change `new` in place; answers whether anything outside the server had a hand in it."""
        ...

    async def validate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> None:
        """Raise if the operation is not allowed."""
        ...

    def basis(self, registry: Registry) -> Basis | None:
        """What new pods are changed and judged by: equal means alike. None where more than that has a say."""
        ...


class Allocator(Protocol):
    """Gives an object what only the server can give: a service its address."""

    # As upstream for services: what cannot be given is told before, and instead of, what is wrong with the object.
    before_validation: ClassVar[bool]

    def allocate(self, registry: Registry, new: Object, old: Object | None) -> None: ...


class PodStreams(Protocol):
    """The node's side of log, exec, attach and port-forward."""

    async def answer(self, ctx: RequestContext, request: Request, pod: Object) -> Response: ...


class UsageSource(Protocol):
    """The resource usage of pods and nodes, for metrics.k8s.io."""

    def figures(self, kind: str) -> list[Object]:
        """By plural: objects with metadata (labels included), timestamp, window and usage."""
        ...


class NoAdmission:
    async def mutate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> bool:
        return False

    async def validate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> None:
        return None

    def basis(self, registry: Registry) -> Basis | None:
        return ()


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Registry:
    store: Store
    catalog: Catalog
    admission: Admission = field(default_factory=NoAdmission)
    allocators: dict[tuple[str, str], Allocator] = field(default_factory=dict)
    streams: PodStreams | None = None
    # Logs of pods that no node runs, because parts of this process are behind them: by namespace and name.
    own_logs: dict[tuple[str, str], Callable[[LogOptions], AsyncGenerator[bytes, None]]] = field(default_factory=dict)
    usage: UsageSource | None = None
    clock: Callable[[], datetime] = utc_now
    random: Random = field(default_factory=Random)
    # Controllers that run in this plane, by the names of kube-controller-manager; a kind whose controller is missing
    # is stored, and the writer is told so.
    controllers: frozenset[str] = frozenset()
    # Figures of other parts of this process, in Prometheus' text format, shown with the server's own.
    figures: list[Callable[[], bytes]] = field(default_factory=list)
    # Definitions whose objects are being deleted: no new ones are taken.
    terminating: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lookup = StoreLookup(self.store)

    def key(self, resource: Resource, namespace: str, name: str) -> str:
        return object_key(resource, namespace, name)
