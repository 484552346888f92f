"""get: one object by name."""

from __future__ import annotations

from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.verbs.list import parse_revision, too_large_version


def check_version(registry: Registry, ctx: RequestContext) -> None:
    """A get "not older than" a version that does not exist yet must not succeed."""
    text = ctx.query.get("resourceVersion")
    if text not in ("", "0") and (requested := parse_revision(text)) > registry.store.revision:
        raise too_large_version(requested, registry.store.revision)


def find(registry: Registry, ctx: RequestContext) -> Record:
    """The record of the requested object; 404 if it does not exist."""
    record = registry.store.get(registry.key(ctx.resource, ctx.namespace if ctx.resource.namespaced else "", ctx.name))
    if record is None:
        raise ctx.not_found()
    return record
