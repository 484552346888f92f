"""What the local console makes of the answers of the API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import pytest

from torchyard.api.errors import StatusError
from torchyard.console.forwarding import OWNER, ForwardingBackend
from torchyard.console.request import KubernetesRequest
from torchyard.kube.client import ApiResponse
from torchyard.kube.http import HttpTransport, OpenedStream


class _RefusingTransport:
    """An API server whose users have to sign in again."""

    async def request(self, method: str, path: str, **_: Any) -> ApiResponse:
        return ApiResponse(401, b'{"kind": "Status", "code": 401, "reason": "Unauthorized"}', {})

    async def open_stream(self, path: str, *, accept: str = "") -> OpenedStream:
        return OpenedStream(401, {}, self._chunks())

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        yield b"Unauthorized"


async def _no_history(_: object) -> list[Mapping[str, Any]]:
    return []


@pytest.mark.parametrize("query", ["", "watch=1"])
async def test_expired_credentials_of_the_kubeconfig_do_not_end_the_session(query: str) -> None:
    """A 401 would sign the pages out, and a new link would not help."""
    transport = cast(HttpTransport, _RefusingTransport())
    backend = ForwardingBackend(transport, context="prod", namespace="team", read_history=_no_history)
    request = KubernetesRequest("GET", "/api/v1/pods", query, "application/json", "", b"")
    with pytest.raises(StatusError, match="prod no longer accepts the credentials of your kubeconfig") as raised:
        await backend.kubernetes(OWNER, request)
    assert raised.value.status == 503
    with pytest.raises(StatusError, match="credentials of your kubeconfig"):
        await backend.identity(OWNER)


class _AnsweringTransport:
    async def request(self, method: str, path: str, **_: Any) -> ApiResponse:
        headers = {"date": "Thu, 01 Jan 2026 12:00:00 GMT", "set-cookie": "a=b", "content-type": "application/json"}
        return ApiResponse(200, b"{}", headers)


async def test_the_pages_learn_the_time_of_the_api_server() -> None:
    transport = cast(HttpTransport, _AnsweringTransport())
    backend = ForwardingBackend(transport, context="prod", namespace="team", read_history=_no_history)
    response = await backend.kubernetes(
        OWNER, KubernetesRequest("GET", "/api/v1/pods", "", "application/json", "", b"")
    )
    assert response.headers == {"Date": "Thu, 01 Jan 2026 12:00:00 GMT"}
