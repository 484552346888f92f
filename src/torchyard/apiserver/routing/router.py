"""The API server without its sockets: authorize a request, find its handler, return the response.

An error that the client caused becomes a Status response. A defect of the server becomes a 500 Status; its traceback
goes to the log and not to the client.
"""

from __future__ import annotations

import logging
import time
from functools import partial

from multidict import MultiMapping

from torchyard.api import errors
from torchyard.api.errors import StatusError
from torchyard.api.names import path_segment_problems
from torchyard.api.objects import Object
from torchyard.api.quoting import quote
from torchyard.api.resources import Resource
from torchyard.api.selectors import parse_fields
from torchyard.api.selectors.grammar import EQUALS
from torchyard.api.trainjob import names as trainjobs
from torchyard.apiserver.access.access_control import AccessControl
from torchyard.apiserver.access.authentication import ANONYMOUS_NAME, User
from torchyard.apiserver.access.rbac import AuthorizerAttributes
from torchyard.apiserver.handlers.non_resource import NonResourceHandler
from torchyard.apiserver.handlers.resource import ResourceHandler
from torchyard.apiserver.handlers.status_reports import (
    authenticate_report,
    authorize_report,
    handle_report,
)
from torchyard.apiserver.metrics.requests import RequestMetrics
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext, document_size, read_options
from torchyard.apiserver.request.request import Query, ReceivedRequest, Request
from torchyard.apiserver.request.response import Response, error_response
from torchyard.apiserver.request.route import Route, decode_path, parse
from torchyard.apiserver.request.warnings import limited_warnings
from torchyard.apiserver.routing.aggregation import Aggregation
from torchyard.apiserver.routing.mounted_app import MountedApp
from torchyard.apiserver.routing.stored_get import StoredGets, StoredObject
from torchyard.apiserver.subresources.handlers import SUBRESOURCE_HANDLERS
from torchyard.apiserver.virtual.handlers import VIRTUAL_HANDLERS
from torchyard.apiserver.wire.negotiate import accepts_document, prefers_yaml

log = logging.getLogger(__name__)


class Router:
    def __init__(
        self,
        registry: Registry,
        access_control: AccessControl,
        non_resource: NonResourceHandler,
        metrics: RequestMetrics,
    ) -> None:
        self.registry = registry
        self.access_control = access_control
        self._non_resource = non_resource
        self._metrics = metrics
        self._resources = ResourceHandler(registry, access_control)
        self._stored_gets = StoredGets(registry, access_control)
        self._mounted: MountedApp | None = None
        self.aggregation: Aggregation | None = None

    def aggregate(self, aggregation: Aggregation | None) -> None:
        """Let extension API servers answer the requests to their groups and versions; None: there are none now.

        Every request pays for a look at it, so it is not there as long as nobody needs it.
        """
        self.aggregation = self._stored_gets.aggregation = aggregation
        self._non_resource.discovery.aggregated = tuple if aggregation is None else aggregation.served
        self.registry.catalog.notify()

    def mount(self, app: MountedApp) -> None:
        """Let an application answer everything below its prefix. It authenticates and authorizes on its own."""
        self._mounted = app

    def authenticate(self, method: str, path: str, headers: MultiMapping[str], certificate: bytes | None) -> User:
        """The user of a request: by its credentials, else by what the application at its path knows of it."""
        if method == "POST" and path.endswith("/status"):
            job = self._reported_job(path)
            if job is not None:
                return authenticate_report(self.access_control, headers, certificate, job)
        user = self.access_control.authenticate(headers, certificate)
        if self._mounted is None or user.name != ANONYMOUS_NAME or not self._mounted.serves(path):
            return user
        return self._mounted.authenticate(path, headers) or user

    def get_stored(self, path: str, user: User, accept: str) -> StoredObject | None:
        """The object at a path, in a form that needs no work; None if `handle` must answer."""
        return self._stored_gets.find(path, user, accept)

    def count_stored(self, stored: StoredObject, seconds: float) -> None:
        self._metrics.count(stored.labels, seconds)

    async def handle(self, request: Request) -> Response:
        start = time.perf_counter()
        target = request.path
        try:
            request.path = decode_path(target)
        except StatusError as error:
            return error_response(error)
        if request.received is None and (self.aggregation is not None or "/proxy" in request.path):
            # From a client in this process. A proxy passes on what was authorized: the same path, and all of the query.
            request.received = ReceivedRequest(f"{target}?{request.query.text}", "")
        route = parse(request.method, request.path, watch=request.query.flag("watch"))
        if route is None or not route.is_resource:
            if self._mounted is not None and self._mounted.serves(target):
                request.path = target  # the application decodes it
            return await self._handle_errors(request, route, None)
        resource = self.registry.catalog.find(route.group, route.version, route.plural)
        response = await self._handle_errors(request, route, resource)
        if resource is not None:  # so that the labels are not what clients make up
            self._count(route, resource, response, time.perf_counter() - start)
        return response

    def _count(self, route: Route, resource: Resource, response: Response, seconds: float) -> None:
        subresource = route.subresource if route.subresource in resource.subresources else ""
        # the duration of a watch says nothing about the server
        is_whole = isinstance(response.body, bytes) and response.events is None
        labels = (route.verb, route.group, route.version, route.plural, subresource, str(response.status))
        self._metrics.count(labels, seconds if is_whole else None)

    def authorize(self, method: str, path: str, query: Query, user: User, *, size: int = 0) -> None:
        """Raise 403 unless the user may send such a request. `handle` checks this too, with the whole request.

        `size` is that of the body, negative if it is unknown.
        """
        if self._mounted is not None and self._mounted.serves(path):
            self._mounted.authorize(method, path, query, user, size)
            return
        request = Request(method, decode_path(path), query, {}, b"", user)
        if method == "POST" and request.path.endswith("/status"):
            job = self._reported_job(request.path)
            if job is not None:
                authorize_report(self.access_control, user, job)
                return
        route = parse(method, request.path, watch=query.flag("watch"))
        if route is None or not route.is_resource:
            self._authorize_path(request)
        else:
            self._authorize(request, route)

    async def _handle_errors(self, request: Request, route: Route | None, resource: Resource | None) -> Response:
        try:
            if request.method == "POST" and request.path.endswith("/status"):
                job = self._reported_job(request.path)
                if job is not None:
                    authorize_report(self.access_control, request.user, job)
                    return handle_report(self.registry, request, job)
            if self.aggregation is not None and route is not None:
                api_service = self.aggregation.find(route.group, route.version)
                if api_service is not None:
                    return await self._forward(self.aggregation, api_service, request, route)
            return await self._handle(request, route, resource)
        except StatusError as error:
            accept = request.headers.get("Accept", "")
            return error_response(error, is_indented=not accepts_document(accept), is_yaml=prefers_yaml(accept))
        except RecursionError:
            return error_response(errors.bad_request("the document is nested too deeply"))
        except Exception:
            log.exception("request failed: method=%s path=%s", request.method, quote(request.path))
            return error_response(errors.internal("see the server's log"))

    async def _forward(self, aggregation: Aggregation, api_service: Object, request: Request, route: Route) -> Response:
        if route.is_resource:
            self._authorize(request, route)
        else:
            self._authorize_path(request)
        return await aggregation.forward(api_service, request)

    async def _handle(self, request: Request, route: Route | None, resource: Resource | None) -> Response:
        if route is None or not route.is_resource:
            if self._mounted is not None and self._mounted.serves(request.path):
                return await self._mounted.handle(request)
            self._authorize_path(request)
            return await self._non_resource.handle(request, route)
        self._authorize(request, route)
        if resource is None and not self.registry.catalog.has_built_in_group(route.group):
            raise errors.PageNotFound
        if resource is None or not route.is_canonical or route.prefix == "proxy":
            raise errors.no_such_path()
        if route.rest and route.subresource != "proxy":
            raise errors.no_such_path()
        is_proxy = route.subresource == "proxy"
        if (request.method == "HEAD" and not is_proxy) or (route.verb == "watch" and request.method != "GET"):
            raise errors.method_not_allowed()
        if route.namespace and not resource.namespaced and (route.group or route.plural != "namespaces"):
            raise errors.no_such_path()
        ctx = RequestContext(
            resource=resource,
            verb=route.verb,
            namespace=route.namespace if resource.namespaced else "",
            name=route.name,
            subresource=route.subresource,
            user=request.user,
            now=self.registry.clock(),
            query=request.query,
            user_agent=request.headers.get("User-Agent", ""),
            size=document_size(len(request.body), request.headers),
        )
        if deprecation := resource.deprecation:
            ctx.warn(deprecation)
        return await self._respond(ctx, request, route)

    async def _respond(self, ctx: RequestContext, request: Request, route: Route) -> Response:
        """The response with the warnings about the request, which an error has, too."""
        try:
            if route.verb in ("create", "update", "patch") and route.subresource != "proxy":
                read_options(ctx)
                if route.verb != "create":
                    ctx.authorize_create = partial(self._authorize_create, request, route)
            response = await self._dispatch(ctx, request)
        except StatusError as error:
            error.warnings = tuple(ctx.warnings)
            raise
        if ctx.warnings:
            response.warnings = limited_warnings((*ctx.warnings, *response.warnings))
        return response

    def _reported_job(self, path: str) -> tuple[str, str] | None:
        """The TrainJob of a POST to a status, if this plane runs TrainJobs. Callers test method and path first."""
        return trainjobs.reported_job(path) if trainjobs.SINGULAR in self.registry.controllers else None

    def _authorize_path(self, request: Request) -> None:
        attributes = AuthorizerAttributes(request.method.lower(), path=request.path)
        self.access_control.authorizer.check(request.user, attributes)

    def _authorize(self, request: Request, route: Route) -> None:
        self.access_control.authorizer.check(
            request.user,
            AuthorizerAttributes(
                route.verb,
                route.group,
                route.plural,
                subresource=route.subresource,
                namespace=route.namespace,
                name=route.name or _selected_name(request, route),
            ),
        )

    def _authorize_create(self, request: Request, route: Route) -> None:
        self._authorize(request, route._replace(verb="create"))

    async def _dispatch(self, ctx: RequestContext, request: Request) -> Response:
        resource = ctx.resource
        if ctx.subresource:
            handler = SUBRESOURCE_HANDLERS.get(
                (resource.group, resource.plural, ctx.subresource)
            ) or SUBRESOURCE_HANDLERS.get(("*", "*", ctx.subresource))
            if ctx.subresource not in resource.subresources or handler is None:
                raise errors.no_such_path()
            if ctx.subresource != "proxy" and ctx.verb not in resource.subresources[ctx.subresource].verbs:
                raise errors.method_not_allowed()
            if not ctx.name:
                raise errors.bad_request("name must be provided")
            return await handler(self._resources, ctx, request)
        if resource.namespaced and not ctx.namespace and "list" not in resource.verbs:
            raise errors.no_such_path()
        virtual = VIRTUAL_HANDLERS.get((resource.group, resource.plural))
        if virtual is not None:
            return await virtual(self._resources, ctx, request)
        verb = self._resources.verbs.get(ctx.verb)
        if verb is None or ctx.verb not in resource.verbs:
            raise errors.method_not_allowed()
        if resource.namespaced and not ctx.namespace and ctx.verb not in ("list", "watch"):
            raise errors.no_such_path() if ctx.name else errors.method_not_allowed()
        return await verb(ctx, request)


def _selected_name(request: Request, route: Route) -> str:
    """The name that a list or watch selects, so that RBAC rules for that name cover it."""
    selector = request.query.get("fieldSelector")
    if not selector or route.prefix or route.verb not in ("list", "watch"):
        return ""
    try:
        terms = parse_fields(selector).terms
    except StatusError:
        return ""  # the verb reports it, once the user is known to be allowed
    name = next((value for field, operator, value in terms if (field, operator) == ("metadata.name", EQUALS)), "")
    return "" if path_segment_problems(name) else name
