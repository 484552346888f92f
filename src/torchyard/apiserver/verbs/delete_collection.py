"""deletecollection: delete what a list with the same selectors returns."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from torchyard.api.errors import StatusError
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.verbs.delete import DeleteOptions, delete
from torchyard.apiserver.verbs.list import Page, list_records

_YIELD_INTERVAL = 50


async def delete_collection(registry: Registry, ctx: RequestContext, options: DeleteOptions) -> Page:
    """Delete each selected object; one that is gone already counts as deleted. Returns the selected objects."""
    page = await list_records(registry, ctx)
    for number, record in enumerate(page.records, 1):
        if number % _YIELD_INTERVAL == 0:
            await asyncio.sleep(0)  # a dry run does not wait for the store
        namespace, name = record.key.rsplit("/", 2)[1:]
        single = replace(ctx, namespace=namespace, name=name)
        try:
            await delete(registry, single, options)
        except StatusError as error:
            if error.status != 404:
                raise
    return page
