"""The non-resource URLs: discovery, OpenAPI, version, health, metrics, token keys."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import orjson

from torchyard import __version__
from torchyard.api import errors
from torchyard.apiserver.access.service_account_tokens import ServiceAccountTokens
from torchyard.apiserver.handlers.discovery import DiscoveryHandler
from torchyard.apiserver.metrics.requests import RequestMetrics
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.computation import LARGE_BYTES, compute
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import JSON, TEXT, Response
from torchyard.apiserver.request.route import Route

# A health check returns what is wrong with a part of the server, or an empty text.
Check = Callable[[], str | Awaitable[str]]

# The version of Kubernetes whose API this server implements.
MAJOR, MINOR = "1", "34"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
VERSION = {
    "major": MAJOR,
    "minor": MINOR,
    "emulationMajor": MAJOR,
    "emulationMinor": MINOR,
    "minCompatibilityMajor": MAJOR,
    "minCompatibilityMinor": "33",
    "gitVersion": f"v{MAJOR}.{MINOR}.4+torchyard.{__version__}",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go0",
    "compiler": "cpython",
    "platform": f"linux/{_MACHINES.get(os.uname().machine, os.uname().machine)}",
}
_HEALTH = ("/healthz", "/livez", "/readyz")


class NonResourceHandler:
    def __init__(self, registry: Registry, accounts: ServiceAccountTokens, metrics: RequestMetrics) -> None:
        self._accounts = accounts
        self._registry = registry
        self._metrics = metrics
        self.discovery = DiscoveryHandler(registry.catalog)
        self._checks: dict[str, Check] = {"ping": lambda: "", "store": registry.store.write_error}
        self._reports: dict[str, Callable[[], bytes]] = {}

    def add_check(self, name: str, check: Check) -> None:
        """Add a check to /healthz, /livez and /readyz."""
        self._checks[name] = check

    def add_report(self, path: str, report: Callable[[], bytes]) -> None:
        """Serve a JSON document at a path of its own."""
        self._reports[path] = report

    async def handle(self, request: Request, route: Route | None) -> Response:
        response = await self._get(request, route)
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        return response

    async def _get(self, request: Request, route: Route | None) -> Response:
        path = request.path.rstrip("/") or "/"
        is_discovery = route is not None or path in ("/api", "/apis") or path.startswith("/apis/")
        if "//" in request.path or (request.path != path and not is_discovery and path != "/version"):
            raise errors.PageNotFound
        if is_discovery:
            return self.discovery.discovery(path, request)
        if path.startswith("/openapi/"):
            return await self.discovery.openapi(path, request)
        for root in _HEALTH:
            if path == root or path.startswith(f"{root}/"):
                return await self._health(root, path.removeprefix(root).strip("/"), request)
        if path == "/metrics":
            requests = await compute(LARGE_BYTES + 1, _expose, self._metrics)
            text = b"".join((requests, *(source() for source in self._registry.metrics_sources)))
            return Response(200, text, "text/plain; version=0.0.4; charset=utf-8")
        return self._document(path, request)

    def _document(self, path: str, request: Request) -> Response:
        """A document at a path of its own."""
        if path in self._reports:
            return Response(200, self._reports[path](), JSON)
        match path:
            case "/version":
                return _raw(VERSION)
            case "/openid/v1/jwks":
                return Response(200, orjson.dumps(self._accounts.key_set()), "application/jwk-set+json")
            case "/.well-known/openid-configuration":
                server = f"https://{request.headers.get('Host', '')}"
                return Response(200, orjson.dumps(self._accounts.discovery(server)), JSON, is_raw=True)
            case "/":
                return _raw({"paths": self._roots()})
        raise errors.PageNotFound

    def _roots(self) -> list[str]:
        documents = ("/.well-known/openid-configuration", "/openid/v1/jwks", "/version")
        fixed = ("/api", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", *documents)
        return sorted([*fixed, *_HEALTH, *self._reports, *self.discovery.roots()])

    async def _health(self, root: str, single: str, request: Request) -> Response:
        """`ok`, or the failed checks; `?verbose` lists all checks, `?exclude=` omits one."""
        excluded = set(request.query.all("exclude"))
        if single:
            if single not in self._checks:
                raise errors.PageNotFound
            checks = {single: self._checks[single]}
        else:
            checks = {name: check for name, check in self._checks.items() if name not in excluded}
        results = {name: await _run_check(check) for name, check in checks.items()}
        lines = [f"[-]{name} failed: {reason}" if reason else f"[+]{name} ok" for name, reason in results.items()]
        name = root.strip("/")
        if any(results.values()):
            text = "\n".join([*lines, f"{name} check failed", ""])
            return Response(500, text.encode(), TEXT)
        text = "\n".join([*lines, f"{name} check passed", ""]) if "verbose" in request.query else "ok"
        return Response(200, text.encode(), TEXT)


def _raw(document: object) -> Response:
    """A document that is always indented."""
    return Response(200, orjson.dumps(document, option=orjson.OPT_INDENT_2), JSON, is_raw=True)


def _expose(metrics: RequestMetrics) -> bytes:
    from torchyard.apiserver.metrics.exposition import expose  # loads prometheus_client, on first use

    return expose(metrics)


async def _run_check(check: Check) -> str:
    result = check()
    return result if isinstance(result, str) else await result
