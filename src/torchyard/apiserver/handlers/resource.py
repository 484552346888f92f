"""The verbs of stored resources as HTTP handlers: a request in, a response in the format the client accepts out.

Subresources get the same object: it holds what they share, the registry, access control and the encoders.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from torchyard.api import errors
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.printing import IncludeObject, include_object
from torchyard.api.resources import Resource
from torchyard.apiserver.access.access_control import AccessControl
from torchyard.apiserver.handlers.missing_controllers import warn_if_no_controller
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.computation import LARGE_BYTES, compute
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.verbs.converted_watch import converted_watch
from torchyard.apiserver.verbs.create import create
from torchyard.apiserver.verbs.delete import Deleted, delete, read_delete_options
from torchyard.apiserver.verbs.delete_collection import delete_collection
from torchyard.apiserver.verbs.get import check_version, find
from torchyard.apiserver.verbs.list import list_records
from torchyard.apiserver.verbs.patch import patch
from torchyard.apiserver.verbs.update import update
from torchyard.apiserver.verbs.watch import watch
from torchyard.apiserver.wire import body as bodies
from torchyard.apiserver.wire.encode import ObjectEncoder
from torchyard.apiserver.wire.in_process import InProcessEncoder
from torchyard.apiserver.wire.negotiate import Content, ResponseFormat, check_metadata, negotiate

DELETE_OPTIONS = GroupVersionKind("", "v1", "DeleteOptions")

VerbHandler = Callable[[RequestContext, Request], Awaitable[Response]]


class ResourceHandler:
    def __init__(self, registry: Registry, access_control: AccessControl) -> None:
        self.registry = registry
        self.access_control = access_control
        self.verbs: dict[str, VerbHandler] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        self._encoders: dict[tuple[Any, ...], ObjectEncoder] = {}
        registry.catalog.on_change(self._encoders.clear)

    async def _get(self, ctx: RequestContext, request: Request) -> Response:
        if "resourceVersion" in ctx.query:
            check_version(self.registry, ctx)
        record, encoder = find(self.registry, ctx), self._encoder(ctx, request)
        if ctx.resource.has_conversion_webhook:
            return await self._encoded(ctx, encoder, record)
        if encoder.cost_of(record) <= LARGE_BYTES:  # the most frequent response of all: no further call
            return Response(200, encoder.object(record), encoder.content_type)
        return await self._encoded(ctx, encoder, record)

    async def _list(self, ctx: RequestContext, request: Request) -> Response:
        encoder = self._encoder(ctx, request, "list")
        page = await list_records(self.registry, ctx)
        metadata: Object = {"resourceVersion": str(page.revision)}
        if page.token:
            metadata["continue"] = page.token
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        return Response(200, await self._encode_list(ctx, encoder, page.records, metadata), encoder.content_type)

    async def _watch(self, ctx: RequestContext, request: Request) -> Response:
        if "watch" not in ctx.resource.verbs:
            raise errors.method_not_allowed()
        encoder = self._encoder(ctx, request, None)
        start = converted_watch if ctx.resource.has_conversion_webhook else watch
        if request.in_process:
            return Response(200, events=start(self.registry, ctx, InProcessEncoder(encoder)))
        return Response(200, start(self.registry, ctx, encoder), encoder.content_type)

    async def _create(self, ctx: RequestContext, request: Request) -> Response:
        if ctx.name:
            raise errors.method_not_allowed()
        encoder = self._encoder(ctx, request)
        content_type = request.headers.get("Content-Type", "")
        templates = self.registry.template_caches.get((ctx.resource.group, ctx.resource.plural))
        if templates is not None and bodies.media_type(content_type) == bodies.JSON:
            return await self._encoded(ctx, encoder, await templates.create(ctx, request.body), is_new=True)
        obj = await ctx.compute(bodies.read_object, ctx, request.body, content_type)
        record = await create(self.registry, ctx, obj)
        warn_if_no_controller(self.registry, ctx)
        return await self._encoded(ctx, encoder, record, is_new=True)

    async def _update(self, ctx: RequestContext, request: Request) -> Response:
        if not ctx.name:
            raise errors.method_not_allowed()
        encoder = self._encoder(ctx, request)
        draft = await ctx.compute(bodies.read_draft, ctx, request.body, request.headers.get("Content-Type", ""))
        record, is_new = await update(self.registry, ctx, draft)
        return await self._encoded(ctx, encoder, record, is_new=is_new)

    async def _patch(self, ctx: RequestContext, request: Request) -> Response:
        if not ctx.name:
            raise errors.method_not_allowed()
        encoder = self._encoder(ctx, request)
        record, is_new = await patch(self.registry, ctx, request.body, request.headers.get("Content-Type", ""))
        return await self._encoded(ctx, encoder, record, is_new=is_new)

    async def _delete(self, ctx: RequestContext, request: Request) -> Response:
        options = read_delete_options(await ctx.compute(_options_body, request), request.query)
        if not options.policy and options.orphan_dependents is None:
            for sentence in ctx.resource.strategy.delete_warnings():
                ctx.warn(sentence)
        outcome = await delete(self.registry, ctx, options)
        response = await self._deleted(ctx, request, outcome)
        if options.orphan_dependents is False and not outcome.gone:
            response.status = 202  # as upstream, for clients that use the deprecated option
        return response

    async def _delete_collection(self, ctx: RequestContext, request: Request) -> Response:
        options = read_delete_options(await ctx.compute(_options_body, request), request.query)
        page = await delete_collection(self.registry, ctx, options)
        encoder = self._encoder(ctx, request, "list")
        metadata = {"resourceVersion": str(page.revision)}
        return Response(200, await self._encode_list(ctx, encoder, page.records, metadata), encoder.content_type)

    async def _deleted(self, ctx: RequestContext, request: Request, outcome: Deleted) -> Response:
        """The object while it still exists, and afterwards a Status; some kinds return the object in both cases."""
        if not outcome.gone or ctx.resource.strategy.returns_deleted:
            return await self.respond(ctx, request, outcome.record)
        details: Object = {"name": ctx.name, "kind": ctx.resource.plural}
        if ctx.resource.group:
            details["group"] = ctx.resource.group
        details["uid"] = outcome.record.object()["metadata"]["uid"]
        return Response(200, orjson.dumps(_success(details)))

    async def respond(self, ctx: RequestContext, request: Request, record: Record) -> Response:
        """200 with the object of a record."""
        return await self._encoded(ctx, self._encoder(ctx, request), record)

    async def _encoded(
        self, ctx: RequestContext, encoder: ObjectEncoder, record: Record, *, is_new: bool = False
    ) -> Response:
        if ctx.resource.has_conversion_webhook:
            record = await self.registry.in_version(ctx.resource, record)
        cost = encoder.cost_of(record)
        # not even a call of `compute` for small responses
        body = encoder.object(record) if cost <= LARGE_BYTES else await compute(cost, encoder.object, record)
        return Response(201 if is_new else 200, body, encoder.content_type)

    async def _encode_list(
        self, ctx: RequestContext, encoder: ObjectEncoder, records: list[Record], metadata: Object
    ) -> bytes:
        if ctx.resource.has_conversion_webhook:
            records = await self.registry.converter.to_version(ctx.resource, records, cached=True)
        return await compute(encoder.cost(records), encoder.encode_list, records, metadata)

    def _encoder(self, ctx: RequestContext, request: Request, content: Content | None = "object") -> ObjectEncoder:
        """The encoder for the format that the client accepts; raises 406 if none of its formats is served."""
        accept = request.headers.get("Accept", "")
        format = negotiate(accept)
        if format.form == "metadata" and content is not None:  # an event of a watch may have either form
            check_metadata(accept, content, _go_type(ctx.resource, content))
        include: IncludeObject = "Metadata"
        if format.form == "table":
            include = include_object(request.query.get("includeObject"))
        return self._encoder_for(ctx.resource, format, include)

    def _encoder_for(self, resource: Resource, format: ResponseFormat, include: IncludeObject) -> ObjectEncoder:
        key = (resource.group, resource.version, resource.plural, format, include)
        encoder = self._encoders.get(key)
        if encoder is None:
            encoder = self._encoders[key] = ObjectEncoder(
                resource,
                self.registry.catalog.storage(resource),
                format,
                include=include,
                clock=self.registry.clock,
                schema_revision=(
                    0 if resource.has_conversion_webhook else self.registry.catalog.schema_revision(resource)
                ),
            )
        return encoder


def _go_type(resource: Resource, content: Content) -> str:
    """The type in a real server's memory, which its errors name."""
    suffix = "List" if content == "list" else ""
    if resource.custom is not None:
        return f"*unstructured.Unstructured{suffix}"
    return f"*{resource.group.partition('.')[0] or 'core'}.{resource.kind}{suffix}"


def _options_body(request: Request) -> Object | None:
    if not request.body:
        return None
    return bodies.parse(request.body, request.headers.get("Content-Type", ""), DELETE_OPTIONS)


def _success(details: Object) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
