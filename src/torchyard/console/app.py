"""Which handler gets a request below `/console`.

| path | who | answer |
| --- | --- | --- |
| `GET /` and the other pages | everyone | the built pages: they hold no data |
| `POST /codes` | credentials of the API server, never a cookie | a one-time code |
| `POST /login` | a one-time code | the cookie of a session, and the key of its pages |
| `POST /logout` | a session | ends it |
| `GET /session`, `/samples/…`, `/history` | a session, or credentials | JSON |
| `/k8s/…` | a session, or credentials | what the Kubernetes API answers this user |
| `/streams`, `/streams/ID` | a session, or credentials | many watches and logs in one response |

Everything but the pages needs the header `X-Torchyard-Console: 1`, and with a cookie also `X-Torchyard-Console-Proof`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Collection
from typing import Generic, TypeVar
from urllib.parse import parse_qs, unquote

import orjson

from torchyard.api import errors
from torchyard.api.errors import StatusError, YardError
from torchyard.console.kubernetes_path import check_kubernetes_path
from torchyard.console.multiplex import StreamHub
from torchyard.console.origin import SECURITY_HEADERS, check_host, check_own_request
from torchyard.console.pages import ConsolePages, PagesMissing
from torchyard.console.request import (
    ConsoleBackend,
    ConsoleRequest,
    ConsoleResponse,
    KubernetesRequest,
    SampleQuery,
    json_response,
    status_response,
)
from torchyard.console.sessions import CODE_SECONDS, KEY_HEADER, PROOF_HEADER, ConsoleSession, ConsoleSessions

MAX_LOGIN_BYTES = 1024
_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))
KUBERNETES = "/k8s/"
_STREAMS = "/streams"
_SAMPLES = "/samples/"
_PLAIN_TEXT = "text/plain; charset=utf-8"

CallerT = TypeVar("CallerT")
CredentialT = TypeVar("CredentialT")


class ConsoleApp(Generic[CallerT, CredentialT]):
    """The transport authenticates: `handle` gets the caller, and the credential that a code would stand for."""

    def __init__(
        self,
        backend: ConsoleBackend[CallerT],
        sessions: ConsoleSessions[CredentialT],
        *,
        hosts: Collection[str],
        pages: ConsolePages | None = None,
        user_of: Callable[[CallerT], object] = lambda caller: caller,
    ) -> None:
        self.sessions = sessions
        self._backend, self._hosts = backend, frozenset(hosts)
        self._pages = pages or ConsolePages()
        self._hub = StreamHub(backend, user_of)

    def session_of(self, request: ConsoleRequest) -> ConsoleSession[CredentialT] | None:
        """The session whose cookie and proof a request has, if a page of the console sent it."""
        cookies = request.headers.get("Cookie", "")
        if not cookies:
            return None
        check_host(request, self._hosts)
        check_own_request(request)
        return self.sessions.authenticate(cookies, request.headers.get(PROOF_HEADER, ""))

    async def handle(
        self, request: ConsoleRequest, caller: CallerT | None, credential: CredentialT | None = None
    ) -> ConsoleResponse:
        """`credential` is None for a caller who has signed in with a cookie."""
        try:
            response = await self._route(request, caller, credential)
        except StatusError as error:
            response = status_response(error)
        except YardError as error:  # the API server does not respond, or does not accept our credentials
            response = status_response(
                errors.unavailable(f"{error.message}; {error.hint}" if error.hint else error.message)
            )
        response.headers = {"Cache-Control": "no-store", **response.headers, **SECURITY_HEADERS}
        return response

    async def _route(
        self, request: ConsoleRequest, caller: CallerT | None, credential: CredentialT | None
    ) -> ConsoleResponse:
        check_host(request, self._hosts)
        path = request.path
        if path == "":
            return ConsoleResponse(308, b"", _PLAIN_TEXT, {"Location": "/console/"})
        if path in ("/codes", "/login", "/logout"):
            return self._sign_in_or_out(request, credential)
        if path.startswith((KUBERNETES, _SAMPLES, f"{_STREAMS}/")) or path in ("/session", "/history", _STREAMS):
            check_own_request(request)
            if caller is None:
                raise StatusError(401, "Unauthorized", "the session has ended; run `yard console` again")
            return await self._answer(request, caller)
        return self._page(request)

    def _page(self, request: ConsoleRequest) -> ConsoleResponse:
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        try:
            page = self._pages.find(request)
        except PagesMissing as error:
            if request.path != "/":
                raise errors.no_such_path() from error
            return ConsoleResponse(503, f"{error.message}: {error.hint}\n".encode(), _PLAIN_TEXT)
        if page is None:
            raise errors.no_such_path()
        return page

    def _sign_in_or_out(self, request: ConsoleRequest, credential: CredentialT | None) -> ConsoleResponse:
        check_own_request(request)
        if request.method != "POST":
            raise errors.method_not_allowed()
        if request.path == "/codes":
            if credential is None:
                raise errors.unauthorized()
            return json_response({"code": self.sessions.issue_code(credential), "expiresInSeconds": int(CODE_SECONDS)})
        if request.path == "/login":
            cookie, key = self.sessions.sign_in(_code(request.body), is_tls=request.is_tls)
            return ConsoleResponse(204, headers={"Set-Cookie": cookie, KEY_HEADER: key})
        cookie = self.sessions.sign_out(request.headers.get("Cookie", ""), is_tls=request.is_tls)
        return ConsoleResponse(204, headers={"Set-Cookie": cookie})

    async def _answer(self, request: ConsoleRequest, caller: CallerT) -> ConsoleResponse:
        path = request.path
        if path.startswith(KUBERNETES):
            return self._with_session(request, await self._backend.kubernetes(caller, kubernetes_request(request)))
        if path.startswith(_STREAMS):
            return self._with_session(request, await self._hub.handle(request, caller))
        if request.method != "GET":
            raise errors.method_not_allowed()
        if path == "/session":
            return json_response(await self._backend.identity(caller))
        if path == "/history":
            return json_response({"items": await self._backend.history(caller)})
        return json_response(await self._backend.samples(caller, _sample_query(request)))

    def _with_session(self, request: ConsoleRequest, response: ConsoleResponse) -> ConsoleResponse:
        """A stream ends with the session whose cookie asked for it."""
        session = self.sessions.find(request.headers.get("Cookie", ""))
        if isinstance(response.body, AsyncGenerator) and session is not None:
            response.body = session.stream(response.body)
        return response


def kubernetes_request(request: ConsoleRequest) -> KubernetesRequest:
    """The request to the Kubernetes API that a request below `/k8s/` stands for."""
    if request.method not in _METHODS:
        raise errors.method_not_allowed()
    path = request.path.removeprefix(KUBERNETES.rstrip("/"))
    check_kubernetes_path(path, request.query)
    headers = request.headers
    return KubernetesRequest(
        request.method,
        path,
        request.query,
        headers.get("Accept", "application/json"),
        headers.get("Content-Type", ""),
        request.body,
    )


def _code(body: bytes) -> str:
    if len(body) > MAX_LOGIN_BYTES:
        raise errors.too_large(MAX_LOGIN_BYTES)
    try:
        document = orjson.loads(body)
        code = document["code"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        raise errors.bad_request('the body must be {"code": "…"}') from None
    if not isinstance(code, str):
        raise errors.bad_request("code must be a string")
    return code


def _sample_query(request: ConsoleRequest) -> SampleQuery:
    parts = [unquote(part) for part in request.path.removeprefix(_SAMPLES).split("/")]
    if len(parts) != 3 or not all(parts):
        raise errors.bad_request("the path must be /console/samples/{namespace}/{resource.group}/{name}")
    text = parse_qs(request.query).get("since", ["0"])[0]
    try:
        since = float(text)
    except ValueError:
        since = math.nan
    if not math.isfinite(since):
        raise errors.bad_request(f"since is not a number of seconds since 1970: {text!r}")
    return SampleQuery(parts[0], parts[1], parts[2], since)
