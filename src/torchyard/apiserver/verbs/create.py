"""create: a new object, or 409 if its name is taken."""

from __future__ import annotations

from typing import Any

import orjson

from torchyard.api import errors
from torchyard.api.names import generate_name, validate_metadata
from torchyard.api.resources import Resource
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.api import Api
from torchyard.apiserver.call import Call
from torchyard.apiserver.convert import from_storage, keep, to_storage
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.store import Stale
from torchyard.apiserver.verbs.apply.endpoint import endpoint_of
from torchyard.apiserver.verbs.apply.managed import record_update
from torchyard.apiserver.verbs.metadata import begin_create, check_scope, ordered

# As upstream: a generated name that collides is tried again this often before the client is told.
NAME_ATTEMPTS = 8


async def create(api: Api, call: Call, obj: dict[str, Any], *, recorded: bool = False) -> Record:
    """Create an object given in the version of the call's resource. `recorded`: its managed fields are set already."""
    obj, generated = await completed(api, call, obj, recorded=recorded)
    return await saved(api, call, obj, generated=generated)


async def completed(
    api: Api, call: Call, obj: dict[str, Any], *, recorded: bool = False
) -> tuple[dict[str, Any], bool]:
    """The object as it is to be stored, checked and admitted, and whether its name was generated."""
    resource = call.resource
    storage = api.catalog.storage(resource)
    strategy = resource.strategy
    check_scope(call, obj)
    if resource.custom is not None and f"{resource.plural}.{resource.group}" in api.terminating:
        why = "create not allowed while custom resource definition is terminating"
        raise errors.forbidden(resource.plural, resource.group, obj["metadata"].get("name", ""), why)
    obj = to_storage(resource, storage, obj)
    strategy.default(obj)
    if not recorded:
        record_managed(call, storage, None, obj)
    await api.admission.mutate(api, call, "CREATE", obj, None)
    generated = begin_create(api, call, obj)
    metadata = obj["metadata"]
    allocator = api.allocators.get((storage.group, storage.plural))
    if allocator is not None and allocator.before_validation:
        allocator.allocate(api, obj, None)
    found = validate_metadata(
        metadata,
        namespaced=resource.namespaced,
        name_rule=strategy.name_rule,
        built_in=storage.custom is None and strategy.qualified_finalizers,
    )
    if not call.trusted:
        found += strategy.validate(obj)
    if found:
        raise call.invalid(metadata["name"], found)
    for sentence in strategy.warnings(obj):
        call.warn(sentence)
    if allocator is not None and not allocator.before_validation:
        allocator.allocate(api, obj, None)
    await api.admission.validate(api, call, "CREATE", obj, None)
    keep(resource, storage, obj)
    return ordered(storage, obj), generated


async def saved(api: Api, call: Call, obj: dict[str, Any], *, generated: bool) -> Record:
    """Store a new object; a generated name that is taken makes way for another."""
    resource, metadata = call.resource, obj["metadata"]
    namespace = call.namespace if resource.namespaced else ""
    for _ in range(NAME_ATTEMPTS if generated else 1):
        key = api.key(resource, namespace, metadata["name"])
        if call.dry_run:
            if api.store.get(key) is None:
                return unsaved(key, obj)
        else:
            try:
                return await api.store.put(key, obj, expected=0)
            except Stale:
                metadata.pop("resourceVersion", None)
        if generated:
            taken = metadata["name"]
            metadata["name"] = generate_name(metadata["generateName"], api.random)
            resource.strategy.rename(obj, taken)
    raise errors.already_exists(resource.plural, resource.group, metadata["name"])


def record_managed(call: Call, storage: Resource, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    """Note in the object who set which field, by the names of the version that the client speaks."""
    resource = call.resource
    endpoint = endpoint_of(resource, call.subresource)
    if resource is not storage and resource.custom is None:
        # the metadata, where the note goes, is the same object in either version
        before = before and from_storage(resource, storage, dict(before))
        after = from_storage(resource, storage, dict(after))
    record_update(endpoint, before, after, manager=call.field_manager, now=to_rfc3339(call.now))


def unsaved(key: str, obj: dict[str, Any]) -> Record:
    """The record of a dry run: what would have been written."""
    return Record(key, 0, orjson.dumps(obj))
