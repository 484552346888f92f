"""Requests that an extension API server answers. Headers, texts and codes are kube-aggregator's."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from urllib.parse import quote, quote_plus, unquote_to_bytes

from multidict import CIMultiDict

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.aggregation.api_services import ApiServices, ServedApi, is_available
from torchyard.apiserver.aggregation.backend import Backend, FrontProxyContexts, backend_of
from torchyard.apiserver.proxy.client_request import client_headers, is_upgrade, load_client, received_request
from torchyard.apiserver.proxy.location import ProxyTarget
from torchyard.apiserver.proxy.page_sandbox import sandbox_page
from torchyard.apiserver.proxy.url_rewriter import clean_path, escape_path
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import TEXT, Response
from torchyard.apiserver.service_network.resolver import ServiceResolver

_REMOTE = "x-remote-"
# What a header's name may contain besides letters and digits; everything else is escaped in it.
_HEADER_NAME = "!#$&'*+-.^_`|~"


class AggregationProxy:
    def __init__(self, registry: Registry, api_services: ApiServices, contexts: FrontProxyContexts) -> None:
        self._registry = registry
        self.api_services = api_services
        self._contexts = contexts
        self._resolver = ServiceResolver(registry.lookup)

    def find(self, group: str, version: str) -> Object | None:
        return self.api_services.find(group, version)

    def served(self) -> Iterator[ServedApi]:
        return self.api_services.served()

    async def forward(self, api_service: Object, request: Request) -> Response:
        """The response of the APIService's server, streamed; 503 if it is not available or cannot be reached."""
        backend = backend_of(api_service, self._registry.lookup)
        if backend is None or not is_available(api_service):
            return _unavailable("service unavailable")
        await load_client()
        try:
            context = self._contexts.verified(api_service)
            return await self._send(backend, request, context)
        except (ValueError, LookupError) as error:
            return _unavailable(f"error trying to reach service: {error}")
        except StatusError as error:
            return _unavailable(error.message)

    async def _send(self, backend: Backend, request: Request, context: ssl.SSLContext) -> Response:
        from torchyard.apiserver.proxy.reverse_proxy import ProxyRequest, forward

        received = received_request(request)
        received.ends_with_client = True
        # As upstream, the decoded path is escaped again: what the server gets is what was authorized, even with a `#`.
        path = escape_path(unquote_to_bytes(received.target.partition("?")[0].encode("utf-8", "surrogateescape")))
        question = f"?{_encoded(request.query)}" if request.query else ""
        proxy_request = ProxyRequest(
            target=ProxyTarget("https", backend.host, str(backend.port)),
            method=request.method,
            path=f"{path}{question}",
            headers=_passed_headers(request, backend),
            body=received.body_stream or request.body,
            prefix="",
            forwarded_uri=clean_path(path),
            remote=received.remote,
            tls=context,
            server_name=backend.server_name,
            own_headers=_own_headers(request, backend),
        )

        async def dial(_host: str, _port: int) -> socket.socket:
            """Connect to a pod of the Service: this process is not in the pods' network."""
            address, port = await self._resolver.resolve(backend.namespace, backend.name, backend.port)
            return await self._registry.dial(address, port)

        if is_upgrade(request) and request.incoming is not None:
            from torchyard.apiserver.proxy.upgrade_proxy import forward_upgrade

            return await forward_upgrade(proxy_request, dial, request.incoming)
        return sandbox_page(request, await forward(proxy_request, dial))


def _unavailable(text: str) -> Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(503, f"{text}\n".encode(), TEXT, is_raw=True, headers=headers)


def _passed_headers(request: Request, backend: Backend) -> CIMultiDict[str]:
    """The client's headers without its credentials, and without those that name a user."""
    headers = client_headers(request)
    for name in {name for name in headers if name.lower().startswith(_REMOTE)}:
        headers.popall(name, None)
    headers["Host"] = backend.netloc
    return headers


def _own_headers(request: Request, backend: Backend) -> tuple[tuple[str, str], ...]:
    forwarded = (("X-Forwarded-Host", backend.netloc), ("X-Forwarded-Proto", "https"))
    return (*remote_headers(request.user), *forwarded)


def remote_headers(user: User) -> list[tuple[str, str]]:
    """The headers by which an extension API server knows the user (upstream's SetAuthProxyHeaders)."""
    headers = [("X-Remote-User", user.name)]
    if user.uid:
        headers.append(("X-Remote-Uid", user.uid))
    headers += [("X-Remote-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        headers += [(f"X-Remote-Extra-{quote(key, safe=_HEADER_NAME)}", value) for value in values]
    return headers


def _encoded(query: Query) -> str:
    """The query as Go's url.Values.Encode writes it: sorted by name."""
    return "&".join(
        f"{quote_plus(name, safe='~')}={quote_plus(value, safe='~')}"
        for name in sorted(query.names())
        for value in query.all(name)
    )
