"""deletecollection: delete what a list with the same selectors returns."""

from __future__ import annotations

from dataclasses import replace

from torchyard.api.errors import StatusError
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.verbs.delete import DeleteOptions, delete
from torchyard.apiserver.verbs.list import Page, list_records


async def delete_collection(registry: Registry, ctx: RequestContext, options: DeleteOptions) -> Page:
    """Delete each selected object; one that is gone already counts as deleted. Returns the selected objects."""
    page = list_records(registry, ctx)
    for record in page.records:
        namespace, name = record.key.rsplit("/", 2)[1:]
        single = replace(ctx, namespace=namespace, name=name)
        try:
            await delete(registry, single, options)
        except StatusError as error:
            if error.status != 404:
                raise
    return page
