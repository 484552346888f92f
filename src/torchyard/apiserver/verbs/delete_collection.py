"""deletecollection: delete what a list with the same selectors would show."""

from __future__ import annotations

from dataclasses import replace

from torchyard.api.errors import StatusError
from torchyard.apiserver.api import Api
from torchyard.apiserver.call import Call
from torchyard.apiserver.verbs.delete import DeleteOptions, delete
from torchyard.apiserver.verbs.list import Page, list_records


async def delete_collection(api: Api, call: Call, options: DeleteOptions) -> Page:
    """Delete each selected object; one that is gone meanwhile is as good as deleted. Answers what was there."""
    page = list_records(api, call)
    for record in page.records:
        namespace, name = record.key.rsplit("/", 2)[1:]
        one = replace(call, namespace=namespace, name=name)
        try:
            await delete(api, one, options)
        except StatusError as error:
            if error.status != 404:
                raise
    return page
