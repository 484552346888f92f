"""What the verbs work with: the store, the served resources, and the rules that every write passes."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
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
from torchyard.apiserver.service_network.dialer import Dialer, dial_machine_network
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.store import Store
from torchyard.core.pod.logs import LogOptions
from torchyard.core.progress.reports import ProgressReports

# (group, plural)
ResourceKey = tuple[str, str]
# The revisions of the collections that admission reads for new objects of a resource.
AdmissionInputs = tuple[int, ...]


class Admission(Protocol):
    """The rules beyond a kind's own: quotas, limits, service accounts, webhooks."""

    async def mutate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> bool:
        """Complete or change `new` in place; returns whether a webhook changed it."""
        ...

    async def validate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> None:
        """Raise if the operation is not allowed."""
        ...

    async def review(self, registry: Registry, ctx: RequestContext, operation: Operation, obj: Object) -> None:
        """Raise if a request that stores no object is not allowed."""
        ...

    def inputs(self, registry: Registry, resource: Resource) -> AdmissionInputs | None:
        """Equal inputs mean that alike new objects are admitted alike. None if admission depends on more than these."""
        ...


class Allocator(Protocol):
    """Sets what only the server can assign, such as the cluster IP of a Service."""

    # As upstream for Services: an allocation error is reported instead of validation errors.
    before_validation: ClassVar[bool]

    def allocate(self, registry: Registry, new: Object, old: Object | None) -> None: ...


class TemplateCache(Protocol):
    """Creates the objects of one resource from JSON, reusing the work done for earlier objects that are alike."""

    async def create(self, ctx: RequestContext, body: bytes) -> Record: ...


class PodStreams(Protocol):
    """The node's side of log, exec, attach and port-forward."""

    async def handle(self, ctx: RequestContext, request: Request, pod: Object) -> Response: ...


class UsageSource(Protocol):
    """The resource usage of pods and nodes, for metrics.k8s.io."""

    def usage_metrics(self, plural: str) -> list[Object]:
        """Objects with metadata (labels included), timestamp, window and usage."""
        ...


class VersionConverter(Protocol):
    """Converts the objects of resources with a conversion webhook."""

    async def to_version(self, resource: Resource, records: list[Record], *, cached: bool = False) -> list[Record]:
        """The records in the version of `resource`; `cached` ones may have been converted for an earlier request."""
        ...

    async def to_stored(self, resource: Resource, obj: Object) -> Object:
        """The object in its storage version."""
        ...

    async def convert(self, resource: Resource, obj: Object) -> Object:
        """The object in the version of `resource`."""
        ...


class NoConverter:
    """For a server without custom resources."""

    async def to_version(self, resource: Resource, records: list[Record], *, cached: bool = False) -> list[Record]:
        return records

    async def to_stored(self, resource: Resource, obj: Object) -> Object:
        return obj

    async def convert(self, resource: Resource, obj: Object) -> Object:
        return obj


class NoAdmission:
    async def mutate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> bool:
        return False

    async def validate(
        self, registry: Registry, ctx: RequestContext, operation: Operation, new: Object | None, old: Object | None
    ) -> None:
        return None

    async def review(self, registry: Registry, ctx: RequestContext, operation: Operation, obj: Object) -> None:
        return None

    def inputs(self, registry: Registry, resource: Resource) -> AdmissionInputs | None:
        return ()


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Registry:
    store: Store
    catalog: Catalog
    admission: Admission = field(default_factory=NoAdmission)
    converter: VersionConverter = field(default_factory=NoConverter)
    allocators: dict[ResourceKey, Allocator] = field(default_factory=dict)
    # What is done with a new object, given its name, before its creator gets the response.
    after_create: dict[ResourceKey, Callable[[str], Awaitable[None]]] = field(default_factory=dict)
    template_caches: dict[ResourceKey, TemplateCache] = field(default_factory=dict)
    streams: PodStreams | None = None
    # Logs of pods that stand for parts of this process and run on no node: by namespace and name.
    own_logs: dict[tuple[str, str], Callable[[LogOptions], AsyncGenerator[bytes, None]]] = field(default_factory=dict)
    usage: UsageSource | None = None
    # Opens connections to pods; a node replaces it with its own.
    dialer: Dialer = dial_machine_network
    clock: Callable[[], datetime] = utc_now
    random: Random = field(default_factory=Random)
    # The controllers that run in this plane, by their names in kube-controller-manager. An object whose controller is
    # missing is stored with a warning.
    controllers: frozenset[str] = frozenset()
    # Metrics of other parts of this process in Prometheus' text format, appended to the server's own.
    metrics_sources: list[Callable[[], bytes]] = field(default_factory=list)
    # Every report of a training's progress passes here, at the endpoint of TrainJobs or read from logs by the node.
    progress: ProgressReports = field(default_factory=ProgressReports)
    # CustomResourceDefinitions whose objects are being deleted: no new objects are accepted.
    terminating: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lookup = StoreLookup(self.store)

    async def dial(self, host: str, port: int) -> socket.socket:
        """Connect to a pod or another address of the cluster. Raises OSError."""
        return await self.dialer(host, port)

    async def in_version(self, resource: Resource, record: Record) -> Record:
        """The record in the version of `resource`, where a webhook converts; other records are converted later."""
        if not resource.has_conversion_webhook:
            return record
        return (await self.converter.to_version(resource, [record]))[0]

    async def in_storage_version(self, resource: Resource, obj: Object) -> Object:
        """The object as it is stored, where a webhook converts."""
        return await self.converter.to_stored(resource, obj) if resource.has_conversion_webhook else obj

    def key(self, resource: Resource, namespace: str, name: str) -> str:
        return object_key(resource, namespace, name)
