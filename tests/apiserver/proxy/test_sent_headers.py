"""The headers of a request that a proxy passes on."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from multidict import CIMultiDict

from torchyard.api.errors import StatusError
from torchyard.apiserver.proxy.location import ProxyTarget
from torchyard.apiserver.proxy.reverse_proxy import ProxyRequest
from torchyard.apiserver.proxy.upgrade_proxy import forward_upgrade


def proxy_request(headers: dict[str, str], *own_headers: tuple[str, str]) -> ProxyRequest:
    target = ProxyTarget("http", "10.0.0.1", "80")
    return ProxyRequest(target, "GET", "/", CIMultiDict(headers), b"", "", "/", "", own_headers=own_headers)


def test_a_client_removes_its_own_headers_only() -> None:
    client = {"Host": "h", "Connection": "close, X-Own, X-Other, Host", "X-Own": "client", "X-Other": "client"}
    headers = proxy_request(client, ("X-Own", "1"), ("X-Own", "2")).sent_headers()
    assert list(headers.items()) == [("Host", "h"), ("X-Forwarded-Uri", "/"), ("X-Own", "1"), ("X-Own", "2")]


@pytest.mark.parametrize("value", ["a\r\nX-Remote-Group: b", "a\nb", "a\rb", "a\0", "a\x7f"])
async def test_a_value_that_would_end_its_line_is_not_sent(value: str) -> None:
    async def dial(host: str, port: int) -> socket.socket:
        raise AssertionError(f"a connection to {host}:{port}")

    incoming: Any = None
    with pytest.raises(StatusError, match='invalid header field value for "X-Remote-User"') as refused:
        await forward_upgrade(proxy_request({"Upgrade": "x"}, ("X-Remote-User", value)), dial, incoming)
    assert refused.value.status == 503
