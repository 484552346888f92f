"""Converts objects of custom resources by the webhook of their definition."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.crd.conversion.review import ConversionError, converted_objects, review, review_version
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.service_network.resolver import ServiceResolver
from torchyard.apiserver.store.cache import Record

if TYPE_CHECKING:
    from torchyard.apiserver.access.webhooks.client import WebhookClient

# As upstream, whatever the definition says.
TIMEOUT_SECONDS = 30
_MAX_CACHED = 4096
# Of the objects in one call: the size of the answer is limited, and converted objects may be larger.
_BATCH_BYTES = 1 << 20


class WebhookConverter:
    """The registry's converter. `close` it when the server stops.

    Lists and watches read converted objects from a cache, as from a real server's watch cache; a get converts anew.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._client: WebhookClient | None = None
        self._cache: dict[tuple[str, str], Record] = {}  # by apiVersion and key
        registry.catalog.on_change(self._cache.clear)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def to_version(self, resource: Resource, records: list[Record], *, cached: bool = False) -> list[Record]:
        """The records in the version of `resource`, which has a conversion webhook. Raises 500."""
        results: list[Record | None] = [self._cached(resource, record) if cached else None for record in records]
        missing: list[tuple[int, Record, Object]] = []
        for index, record in enumerate(records):
            if results[index] is not None:
                continue
            obj = record.object()
            if obj["apiVersion"] == resource.api_version:
                results[index] = self._normalized(resource, record, obj)
            else:
                self._normalize_stored(resource, record, obj)
                missing.append((index, record, obj))
        converted = await self._convert(resource, resource.api_version, [obj for _, _, obj in missing])
        for (index, record, _), obj in zip(missing, converted, strict=True):
            resource.custom.prune(obj)
            result = results[index] = Record(record.key, record.rev, orjson.dumps(obj))
            if cached:
                self._remember(resource, result)
        return [record for record in results if record is not None]

    async def to_stored(self, resource: Resource, obj: Object) -> Object:
        """The object in its storage version. Raises 500."""
        desired = f"{resource.group}/{resource.storage_version}"
        if obj["apiVersion"] == desired:
            return obj
        converted = (await self._convert(resource, desired, [obj]))[0]
        storage = self._registry.catalog.find(resource.group, resource.storage_version, resource.plural)
        if storage is not None:
            storage.custom.prune(converted)
        return converted

    async def convert(self, resource: Resource, obj: Object) -> Object:
        """The object in the version of `resource`. Raises 500."""
        converted = (await self._convert(resource, resource.api_version, [obj]))[0]
        resource.custom.prune(converted)
        return converted

    async def _convert(self, resource: Resource, desired: str, objects: list[Object]) -> list[Object]:
        """Objects of one version at a time; a collection has several after its storage version changed."""
        converted: dict[int, Object] = {}
        for version in dict.fromkeys(obj["apiVersion"] for obj in objects):
            indexes = [index for index, obj in enumerate(objects) if obj["apiVersion"] == version]
            for batch in _batches(objects, indexes):
                results = await self._call(resource, desired, [objects[index] for index in batch])
                converted |= dict(zip(batch, results, strict=True))
        return [converted[index] for index in range(len(objects))]

    async def _call(self, resource: Resource, desired: str, objects: list[Object]) -> list[Object]:
        from torchyard.apiserver.access.webhooks.client import WebhookCallError, WebhookClient  # loads aiohttp

        if self._client is None:
            self._client = WebhookClient(ServiceResolver(self._registry.lookup).resolve, self._registry.dial)
        webhook, uid = resource.custom.conversion, str(uuid.uuid4())
        version = review_version(webhook)
        body = review(version, uid, desired, objects)
        try:
            answer = await self._client.call(webhook["clientConfig"], body, TIMEOUT_SECONDS)
            return converted_objects(answer, version, uid, desired, objects)
        except WebhookCallError as error:
            source = f"{objects[0]['apiVersion']}, Kind={resource.kind}"
            raise StatusError(500, "", f"conversion webhook for {source} failed: {error}") from None
        except ConversionError as error:
            raise StatusError(500, "", str(error)) from None

    def _normalize_stored(self, resource: Resource, record: Record, obj: Object) -> None:
        """As upstream: the schema of the stored version sets the defaults, before the conversion."""
        storage = self._registry.catalog.find(resource.group, resource.storage_version, resource.plural)
        if storage is not None and obj["apiVersion"] == storage.api_version and self._is_older(resource, record):
            storage.custom.normalize(obj)

    def _normalized(self, resource: Resource, record: Record, obj: Object) -> Record:
        if not self._is_older(resource, record):
            return record
        resource.custom.normalize(obj)
        return Record(record.key, record.rev, orjson.dumps(obj))

    def _is_older(self, resource: Resource, record: Record) -> bool:
        return record.rev < self._registry.catalog.schema_revision(resource)

    def _cached(self, resource: Resource, record: Record) -> Record | None:
        result = self._cache.get((resource.api_version, record.key))
        return result if result is not None and result.rev == record.rev else None

    def _remember(self, resource: Resource, record: Record) -> None:
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[(resource.api_version, record.key)] = record


def _batches(objects: list[Object], indexes: list[int]) -> Iterator[list[int]]:
    """The indexes of the objects that are converted together."""
    batch: list[int] = []
    size = 0
    for index in indexes:
        own = len(orjson.dumps(objects[index]))
        if batch and size + own > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(index)
        size += own
    if batch:
        yield batch
