"""HTTP probes: redirects are followed as the kubelet does; a probe that cannot be run is not counted."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from tests.node.test_https_probe import Loopback

from torchyard.api.objects import Object
from torchyard.node.pod import handlers, probes
from torchyard.node.pod.handlers import HandlerResult, UnknownPort, http_get
from torchyard.node.shim.client import ShimClient

RESPONSES = {
    "/ok": b"200 OK\r\nContent-Length: 4\r\n\r\nfine",
    "/?a=b%20c": b"200 OK\r\n\r\nquery",
    "/broken": b"500 Oops\r\n\r\n",
    "/to-ok": b"302 Found\r\nLocation: /ok\r\n\r\n",
    "/to-broken": b"307 Found\r\nlocation:   broken  \r\n\r\n",
    "/away": b"301 Moved\r\nLocation: http://example.com/\r\nContent-Length: 4\r\n\r\nbye\n",
    "/nowhere": b"303 See\r\n\r\n",
    "/cached": b"304 Same\r\nLocation: /broken\r\n\r\n",
    "/loop": b"302 Found\r\nLocation: /loop#again\r\n\r\n",
    "/odd": b"302 Found\r\nLocation: ftp://127.0.0.1/\r\n\r\n",
    "/no-port": b"302 Found\r\nLocation: http://127.0.0.1:x/\r\n\r\n",
    "/closed": b"302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    "/no-headers": b"200 OK",
}


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    path = request.split()[1].decode()
    writer.write(b"HTTP/1.1 " + RESPONSES.get(path, b"404 Not Found\r\n\r\n"))
    writer.close()


async def probe(path: str) -> tuple[HandlerResult, int]:
    async with await asyncio.start_server(_serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        shim = cast(ShimClient, Loopback())
        return await http_get(shim, {"path": path}, host="127.0.0.1", port=port, seconds=30), port


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/ok", HandlerResult(True, "fine")),
        ("ok", HandlerResult(True, "fine")),
        ("/?a=b c", HandlerResult(True, "query")),
        ("/o\r\nk", HandlerResult(False, "HTTP probe failed with statuscode: 404")),
        ("/to-ok", HandlerResult(True, "fine")),
        ("/to-broken", HandlerResult(False, "HTTP probe failed with statuscode: 500")),
        ("/away", HandlerResult(True, "Probe terminated redirects, Response body: bye\n", is_warning=True)),
        ("/nowhere", HandlerResult(True, "Probe terminated redirects, Response body: ", is_warning=True)),
        ("/cached", HandlerResult(True, "Probe terminated redirects, Response body: ", is_warning=True)),
        ("/no-headers", HandlerResult(True, "")),
    ],
)
async def test_redirects_to_the_same_host_are_followed(path: str, expected: HandlerResult) -> None:
    assert (await probe(path))[0] == expected


@pytest.mark.parametrize(
    ("path", "url", "error"),
    [
        ("/loop", "/loop", "stopped after 10 redirects"),
        ("/odd", "ftp://127.0.0.1/", 'unsupported protocol scheme "ftp"'),
    ],
)
async def test_redirects_that_cannot_be_followed_fail(path: str, url: str, error: str) -> None:
    result, port = await probe(path)
    assert result == (False, f'Get "{url if "://" in url else f"http://127.0.0.1:{port}{url}"}": {error}', False)


@pytest.mark.parametrize("path", ["/no-port", "/closed"])
async def test_redirects_to_ports_without_a_server_fail(path: str) -> None:
    assert not (await probe(path))[0].passed


async def test_hooks_take_any_status_and_follow_no_redirects() -> None:
    async with await asyncio.start_server(_serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        shim = cast(ShimClient, Loopback())
        action = {"path": "/to-broken"}
        assert (await http_get(shim, action, host="127.0.0.1", port=port, seconds=30, any_status=True)).passed


class Reports(list[tuple[str, str]]):
    """What a worker reports, until there are three."""

    def __init__(self) -> None:
        self.enough = asyncio.Event()

    def add(self, reason: str, message: str) -> None:
        self.append((reason, message))
        if len(self) == 3:
            self.enough.set()


async def _reports(container: Object) -> tuple[Reports, list[str]]:
    reports, killed = Reports(), list[str]()
    worker = probes.ProbeWorker(
        cast(ShimClient, Loopback()),
        {"name": "c", **container},
        host="127.0.0.1",
        changed=lambda: None,
        report=reports.add,
        kill=killed.append,
    )
    async with asyncio.timeout(60):
        await reports.enough.wait()
    await worker.close()
    return reports, killed


async def test_a_probe_of_an_unknown_port_is_reported_and_not_counted() -> None:
    with pytest.raises(UnknownPort):
        handlers.port_number({"name": "c"}, "web")
    action = {"httpGet": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 1}
    reports, killed = await _reports({"livenessProbe": action})
    message = "Liveness probe errored and resulted in unknown state: container c has no port named 'web'"
    assert (reports, killed) == ([("Unhealthy", message)] * 3, [])


async def test_a_redirect_to_another_host_passes_with_an_event() -> None:
    async with await asyncio.start_server(_serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        action = {"httpGet": {"port": port, "path": "/nowhere"}, "periodSeconds": 1}
        reports, killed = await _reports({"livenessProbe": action})
    message = "Liveness probe warning: Probe terminated redirects, Response body: "
    assert (reports, killed) == ([("ProbeWarning", message)] * 3, [])
