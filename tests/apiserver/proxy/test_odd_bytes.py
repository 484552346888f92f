"""Paths, headers and host names with unusual bytes are passed on, or refused, as Kubernetes 1.34 does."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.apiserver.proxy.pods import create_pod_with_address

from torchyard.apiserver.service_network.dialer import dial_machine_network
from torchyard.node.network.addresses import NetworkSettings
from torchyard.node.network.dialer import ClusterDialer
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

POD = "/api/v1/namespaces/default/pods/web:80/proxy"
# (path below the proxy, Location of the pod's answer, status, request line, X-Forwarded-Uri, Location)
# Recorded; but Kubernetes sends the bytes of X-Forwarded-Uri that are not UTF-8 as they are.
CASES: list[tuple[bytes, bytes, int, bytes, bytes, bytes]] = [
    (b"/%ff", b"", 200, b"/%FF", b"/%FF", b""),
    (b"/%ff/", b"", 200, b"/%FF/", b"/%FF/", b""),
    (b"/%ff//", b"", 200, b"/%FF/", b"/%FF/%FF/", b""),
    (b"/%ff//b", b"", 200, b"/%FF/b", b"/%FF/b/%FF/b", b""),
    (b"/%ff/../b", b"", 200, b"/b", b"/b", b""),
    (b"/a/%ff//?x=%ff", b"", 200, b"/a/%FF/?x=%ff", b"/a/%FF/a/%FF/", b""),
    (b"/a/%ff//", b"/there", 302, b"/a/%FF/", b"/a/%FF/a/%FF/", b"/a/%FF/there"),
    (b"/a/%ff//", b"/%ff", 302, b"/a/%FF/", b"/a/%FF/a/%FF/", b"/a/%FF/%FF"),
    (b"/%ff", b"/BYTE", 302, b"/%FF", b"/%FF", b"/%FF"),
    (b"/%c3%a9//", b"/there", 302, b"/%C3%A9/", b"/\xc3\xa9/%C3%A9/", b"/%C3%A9/there"),
    (b"/a%20b//", b"/x", 302, b"/a%20b/", b"/a b/a%20b/", b"/a%20b/x"),
    (b"/a%0db//", b"", 503, b"", b"", b""),
]


async def answer_as_pod(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with what came, and with a header that is not UTF-8."""
    head = await reader.readuntil(b"\r\n\r\n")
    location = _header(head, b"X-To").replace(b"BYTE", b"\xff")
    body = b"\n".join((head.split(b" ")[1], _header(head, b"X-Forwarded-Uri")))
    status = b"302 Found\r\nLocation: " + location if location else b"200 OK"
    lines = (b"HTTP/1.1 " + status, b"X-Own: \xff", b"Content-Type: text/plain", b"Content-Length: %d" % len(body))
    writer.write(b"\r\n".join((*lines, b"Connection: close\r\n\r\n")) + body)
    writer.close()


def _header(head: bytes, name: bytes) -> bytes:
    match = re.search(rb"(?i)\r\n" + name + rb": ([^\r]*)", head)
    return match[1] if match else b""


async def fetch(url: str, token: str, path: bytes, location: bytes) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    try:
        head = b"GET %s HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer %s\r\n" % (path, token.encode())
        writer.write(head + b"X-To: %s\r\nConnection: close\r\n\r\n" % location)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_paths_that_are_not_text_are_proxied_as_kubernetes_does(tmp_path: Path) -> None:
    settings = PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)
    pod_server = await asyncio.start_server(answer_as_pod, "127.0.0.1", 0)
    address = pod_server.sockets[0].getsockname()
    async with pod_server, Plane(settings) as plane:
        plane.registry.dialer = lambda _host, _port: dial_machine_network(*address)
        await create_pod_with_address(plane.client("test"))
        token = await asyncio.to_thread((tmp_path / "state" / "admin.token").read_text)
        for path, to, status, sent, forwarded, location in CASES:
            response = await fetch(plane.url, token.strip(), POD.encode() + path, to)
            head, _, body = response.partition(b"\r\n\r\n")
            assert int(head.split(b" ")[1]) == status, response
            if status == 503:
                assert b'invalid header field value for \\"X-Forwarded-Uri\\"' in body
                continue
            assert (body, _header(head, b"X-Own")) == (sent + b"\n" + POD.encode() + forwarded, b"\xff"), path
            assert _header(head, b"Location") == (POD.encode() + location if location else b"")


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example.invalid", "xn--\udcff"])
async def test_a_host_name_that_no_resolver_takes_is_an_unknown_host(host: str) -> None:
    dialer = ClusterDialer(None, NetworkSettings(), resolves=True)
    for dial in (dial_machine_network, dialer.connect):
        with pytest.raises(socket.gaierror):
            await dial(host, 80)
