"""get: one object by name."""

from __future__ import annotations

from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record


def find(registry: Registry, ctx: RequestContext) -> Record:
    """The record of the requested object; 404 if it does not exist."""
    record = registry.store.get(registry.key(ctx.resource, ctx.namespace if ctx.resource.namespaced else "", ctx.name))
    if record is None:
        raise ctx.not_found()
    return record
