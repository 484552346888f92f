"""The API server without its sockets: a request in, a response out.

Decides who may ask (access), what is asked (route), and which verb answers. Every refusal becomes a Status; a defect of
ours becomes a 500 Status, with its traceback in the log and not with the client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.objects import Object
from torchyard.api.printing import IncludeObject, include_object
from torchyard.api.resources import Resource
from torchyard.api.selectors import parse_fields
from torchyard.apiserver.access.guard import Guard
from torchyard.apiserver.access.rbac import Access
from torchyard.apiserver.handlers.missing_controllers import warn_if_no_controller
from torchyard.apiserver.handlers.non_resource import NonResourceHandler
from torchyard.apiserver.metrics.requests import RequestMetrics
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext, read_options
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import JSON, Response
from torchyard.apiserver.routing.route import Route, parse
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.subresources import SUBRESOURCES
from torchyard.apiserver.verbs.create import create
from torchyard.apiserver.verbs.delete import Deleted, delete, read_delete_options
from torchyard.apiserver.verbs.delete_collection import delete_collection
from torchyard.apiserver.verbs.get import find
from torchyard.apiserver.verbs.list import list_records
from torchyard.apiserver.verbs.patch import patch
from torchyard.apiserver.verbs.pod_template_cache import PodTemplateCache
from torchyard.apiserver.verbs.update import update
from torchyard.apiserver.verbs.watch import watch
from torchyard.apiserver.virtual.handlers import VIRTUAL_HANDLERS
from torchyard.apiserver.wire import body as bodies
from torchyard.apiserver.wire.encode import ObjectEncoder
from torchyard.apiserver.wire.in_process import InProcessEncoder
from torchyard.apiserver.wire.negotiate import Format, negotiate

log = logging.getLogger(__name__)


DELETE_OPTIONS = GroupVersionKind("", "v1", "DeleteOptions")
POD = GroupVersionKind("", "v1", "Pod")


class Router:
    """Answers requests. `paths` serves what is no resource: discovery, OpenAPI, health, metrics."""

    def __init__(self, registry: Registry, guard: Guard, paths: NonResourceHandler, metrics: RequestMetrics) -> None:
        self.metrics = metrics
        self.registry = registry
        self.guard: Guard = guard
        self.paths = paths
        self._stencils = PodTemplateCache(registry)
        self._encoders: dict[tuple[Any, ...], ObjectEncoder] = {}
        self._verbs: dict[str, Callable[[RequestContext, Request], Awaitable[Response]]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        registry.catalog.on_change(self._encoders.clear)

    async def handle(self, request: Request) -> Response:
        start = time.perf_counter()
        route = parse(request.method, request.path, watch=request.query.flag("watch"))
        response = await self._answered(request, route)
        if route is not None and route.plural and not (response.status == 404 and not self._is_served(route)):
            # how long a watch lasts says nothing about the server
            is_whole = isinstance(response.body, bytes) and response.events is None
            labels = (route.verb, route.group, route.version, route.plural, route.subresource, str(response.status))
            self.metrics.count(labels, time.perf_counter() - start if is_whole else None)
        return response

    def _is_served(self, route: Route) -> bool:
        return self.registry.catalog.find(route.group, route.version, route.plural) is not None

    async def _answered(self, request: Request, route: Route | None) -> Response:
        try:
            return await self._handle(request, route)
        except StatusError as error:
            return refusal(error)
        except RecursionError:
            return refusal(errors.bad_request("the document is nested too deeply"))
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return refusal(errors.internal("see the server's log"))

    async def _handle(self, request: Request, route: Route | None) -> Response:
        query = request.query
        if route is None or not route.plural:
            self.guard.authorizer.check(request.user, Access(request.method.lower(), path=request.path))
            return await self.paths.answer(request, route)
        resource = self.registry.catalog.find(route.group, route.version, route.plural)
        if resource is None:
            self._authorize(request, route)
            raise errors.no_such_path()
        self._authorize(request, route)
        if request.method == "HEAD":
            raise errors.method_not_allowed()
        if route.namespace and not resource.namespaced and route.plural != "namespaces":
            raise errors.no_such_path()
        ctx = RequestContext(
            resource=resource,
            verb=route.verb,
            namespace=route.namespace if resource.namespaced else "",
            name=route.name,
            subresource=route.subresource,
            user=request.user,
            now=self.registry.clock(),
            query=query,
            user_agent=request.headers.get("User-Agent", ""),
        )
        if resource.custom is not None and resource.custom.deprecation:
            ctx.warn(resource.custom.deprecation)
        if route.verb in ("create", "update", "patch"):
            read_options(ctx)
        response = await self._dispatch(ctx, request, route)
        if ctx.warnings:
            response.warnings = [*ctx.warnings, *response.warnings]
        return response

    def _authorize(self, request: Request, route: Route) -> None:
        self.guard.authorizer.check(
            request.user,
            Access(
                route.verb or request.method.lower(),
                route.group,
                route.plural,
                subresource=route.subresource,
                namespace=route.namespace,
                name=route.name or _selected_name(request, route),
            ),
        )

    def verb(self, name: str) -> Callable[[RequestContext, Request], Awaitable[Response]]:
        return self._verbs[name]

    async def _dispatch(self, ctx: RequestContext, request: Request, route: Route) -> Response:
        resource = ctx.resource
        if ctx.subresource:
            handler = SUBRESOURCES.get((resource.group, resource.plural, ctx.subresource)) or SUBRESOURCES.get(
                ("*", "*", ctx.subresource)
            )
            if ctx.subresource not in resource.subresources or handler is None:
                raise errors.no_such_path()
            return await handler(self, ctx, request, route)
        virtual = VIRTUAL_HANDLERS.get((resource.group, resource.plural))
        if virtual is not None:
            return await virtual(self, ctx, request)
        verb = self._verbs.get(ctx.verb)
        if verb is None or ctx.verb not in resource.verbs:
            raise errors.method_not_allowed()
        if resource.namespaced and not ctx.namespace and ctx.verb not in ("list", "watch"):
            if ctx.verb == "create":
                raise errors.bad_request("an empty namespace may not be set during creation")
            raise errors.method_not_allowed()
        return await verb(ctx, request)

    async def _get(self, ctx: RequestContext, request: Request) -> Response:
        return self.answer(ctx, request, find(self.registry, ctx))

    async def _list(self, ctx: RequestContext, request: Request) -> Response:
        encoder = self.encoder(ctx, request)
        page = list_records(self.registry, ctx)
        metadata: Object = {"resourceVersion": str(page.revision)}
        if page.token:
            metadata["continue"] = page.token
            if page.remaining is not None:
                metadata["remainingItemCount"] = page.remaining
        return Response(200, encoder.listing(page.records, metadata), encoder.content_type)

    async def _watch(self, ctx: RequestContext, request: Request) -> Response:
        if "watch" not in ctx.resource.verbs:
            raise errors.method_not_allowed()
        encoder = self.encoder(ctx, request)
        if request.takes_objects:
            return Response(200, events=watch(self.registry, ctx, InProcessEncoder(encoder)))
        return Response(200, watch(self.registry, ctx, encoder), encoder.content_type)

    async def _create(self, ctx: RequestContext, request: Request) -> Response:
        if ctx.name:
            raise errors.method_not_allowed()
        encoder = self.encoder(ctx, request)
        content_type = request.headers.get("Content-Type", "")
        if ctx.resource.gvk == POD and bodies.media_type(content_type) == bodies.JSON:
            return _shown(encoder, await self._stencils.create(ctx, request.body), is_new=True)
        obj = bodies.read_object(ctx, request.body, content_type)
        warn_if_no_controller(self.registry, ctx)
        return _shown(encoder, await create(self.registry, ctx, obj), is_new=True)

    async def _update(self, ctx: RequestContext, request: Request) -> Response:
        if not ctx.name:
            raise errors.method_not_allowed()
        encoder = self.encoder(ctx, request)
        obj = bodies.read_object(ctx, request.body, request.headers.get("Content-Type", ""))
        record, is_new = await update(self.registry, ctx, obj)
        return _shown(encoder, record, is_new=is_new)

    async def _patch(self, ctx: RequestContext, request: Request) -> Response:
        if not ctx.name:
            raise errors.method_not_allowed()
        encoder = self.encoder(ctx, request)
        record, is_new = await patch(self.registry, ctx, request.body, request.headers.get("Content-Type", ""))
        return _shown(encoder, record, is_new=is_new)

    async def _delete(self, ctx: RequestContext, request: Request) -> Response:
        options = read_delete_options(self.options_body(request), request.query)
        if not options.policy and options.orphan_dependents is None:
            for sentence in ctx.resource.strategy.delete_warnings():
                ctx.warn(sentence)
        response = self.deleted(ctx, request, outcome := await delete(self.registry, ctx, options))
        if options.orphan_dependents is False and not outcome.gone:
            response.status = 202  # as upstream: to those who ask in the old way, deletion is a request
        return response

    async def _delete_collection(self, ctx: RequestContext, request: Request) -> Response:
        options = read_delete_options(self.options_body(request), request.query)
        page = await delete_collection(self.registry, ctx, options)
        encoder = self.encoder(ctx, request)
        metadata = {"resourceVersion": str(page.revision)}
        return Response(200, encoder.listing(page.records, metadata), encoder.content_type)

    def options_body(self, request: Request) -> Object | None:
        if not request.body:
            return None
        return bodies.parse(request.body, request.headers.get("Content-Type", ""), DELETE_OPTIONS)

    def deleted(self, ctx: RequestContext, request: Request, outcome: Deleted) -> Response:
        """The object while it is still there (and for some kinds after), a Status when it is gone."""
        if not outcome.gone or ctx.resource.strategy.returns_deleted:
            return self.answer(ctx, request, outcome.record)
        details: Object = {"name": ctx.name, "kind": ctx.resource.plural}
        if ctx.resource.group:
            details["group"] = ctx.resource.group
        details["uid"] = outcome.record.object()["metadata"]["uid"]
        return Response(200, orjson.dumps(success(details)))

    def encoder(self, ctx: RequestContext, request: Request) -> ObjectEncoder:
        """The encoder for what the client accepts; 406 if that is nothing we have."""
        format = negotiate(request.headers.get("Accept", ""))
        include: IncludeObject = "Metadata"
        if format.form == "table":
            include = include_object(request.query.get("includeObject"))
        return self.encoder_for(ctx.resource, format, include)

    def encoder_for(self, resource: Resource, format: Format, include: IncludeObject = "Metadata") -> ObjectEncoder:
        key = (resource.group, resource.version, resource.plural, format, include)
        found = self._encoders.get(key)
        if found is None:
            storage = self.registry.catalog.storage(resource)
            found = ObjectEncoder(
                resource,
                storage,
                format,
                include=include,
                clock=self.registry.clock,
                schema_revision=self.registry.catalog.schema_revision(resource),
            )
            self._encoders[key] = found
        return found

    def answer(self, ctx: RequestContext, request: Request, record: Record) -> Response:
        return _shown(self.encoder(ctx, request), record)


def _shown(encoder: ObjectEncoder, record: Record, *, is_new: bool = False) -> Response:
    return Response(201 if is_new else 200, encoder.object(record), encoder.content_type)


def success(details: Object) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def refusal(error: StatusError) -> Response:
    return Response(error.status, orjson.dumps(error.body()), JSON, headers=dict(error.headers))


def _selected_name(request: Request, route: Route) -> str:
    """The one object a list, watch or deletion is about, so that rules for that name cover it."""
    said = request.query.get("fieldSelector")
    if not said or route.verb not in ("list", "watch", "deletecollection"):
        return ""
    try:
        return parse_fields(said).equalities.get("metadata.name", "")
    except StatusError:
        return ""  # told after it is known that the user may ask at all
