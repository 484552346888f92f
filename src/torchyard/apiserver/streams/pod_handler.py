"""Handles log, exec, attach and portforward of a pod; the error messages are the real server's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from torchyard.api import errors
from torchyard.api.objects import Object
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.streams import spdy_handlers, websocket_channels
from torchyard.apiserver.streams.interfaces import ContainerProcess, PodBackend
from torchyard.apiserver.streams.log_options import log_options

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

PORT_TUNNEL = "SPDY/3.1+portforward.k8s.io"
_COMMAND_PROTOCOLS = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
TEXT_PLAIN = "text/plain"
_MAX_PORT = 65535
_MAX_FORWARDED_PORTS = 64  # each takes two channels of one byte


class PodStreamHandler:
    """Serves a pod's streaming subresources from its node."""

    def __init__(self, backend: PodBackend) -> None:
        self._backend = backend

    async def handle(self, ctx: RequestContext, request: Request, pod: Object) -> Response:
        if ctx.subresource == "log":
            return await self._log(request.query, pod)
        if ctx.subresource == "portforward":
            return await self._forward(request, pod)
        return await self._process(ctx.subresource, request, pod)

    async def _log(self, query: Query, pod: Object) -> Response:
        container = choose_container(pod, query.get("container"), init=True)
        options = log_options(query, pod["metadata"]["name"])
        body = await await_first_chunk(self._backend.logs(pod, container, options))
        return Response(body=body, content_type=TEXT_PLAIN)

    async def _process(self, kind: str, request: Request, pod: Object) -> Response:
        query = request.query
        container = choose_container(pod, query.get("container"), init=True)
        stdin, tty = query.flag("stdin"), query.flag("tty")
        stdout, stderr = query.flag("stdout"), query.flag("stderr") and not tty
        if not (stdin or stdout or stderr):
            raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
        command = query.all("command")
        if kind == "exec" and not command:
            raise errors.bad_request("you must specify at least one command for the container")

        async def start() -> ContainerProcess:
            if kind == "exec":
                return await self._backend.execute(pod, container, command, stdin=stdin, stderr=stderr, tty=tty)
            return await self._backend.attach(pod, container, stdin=stdin, stderr=stderr, tty=tty)

        outputs = tuple(name for name, requested in (("stdout", stdout), ("stderr", stderr)) if requested)
        incoming = _require_upgrade(request)
        from torchyard.apiserver.streams import upgrade  # needs aiohttp, which is loaded by the first upgrade

        if _upgrades_to(request, "websocket"):
            upgrade.check_websocket_handshake(incoming)
            process, failure = await _started(start)
            try:
                socket = await upgrade.upgrade_websocket(incoming, websocket_channels.PROCESS_PROTOCOLS)
            except errors.StatusError:
                if process is not None:
                    await process.close()
                raise
            protocol = socket.ws_protocol or websocket_channels.V1
            duplex = upgrade.WebSocketDuplex(socket, is_base64="base64" in protocol)
            if process is None:
                await websocket_channels.send_result(duplex, failure, protocol=protocol)
            else:
                await websocket_channels.serve_process(duplex, process, outputs=outputs, protocol=protocol)
            await socket.close()
            return Response(status=101, upgraded=socket)
        version = _negotiate_version(request.headers.get("X-Stream-Protocol-Version", ""), incoming)
        raw = upgrade.upgrade_raw(incoming, _spdy_headers(version))
        stream_types = {"error", *outputs} | ({"stdin"} if stdin else set()) | ({"resize"} if tty else set())
        await spdy_handlers.serve_process(raw, start, streams=frozenset(stream_types), outputs=outputs)
        raw.close()
        return Response(status=101, upgraded=upgrade.HijackedResponse())

    async def _forward(self, request: Request, pod: Object) -> Response:
        phase = (pod.get("status") or {}).get("phase")
        if phase not in ("Running", "Pending"):
            raise errors.bad_request(f"unable to forward port because pod is not running. Current status={phase}")
        incoming = _require_upgrade(request)
        from torchyard.apiserver.streams import upgrade  # needs aiohttp, which is loaded by the first upgrade

        async def connect(port: int) -> Any:
            return await self._backend.connect(pod, port)

        if not _upgrades_to(request, "websocket"):
            raw = upgrade.upgrade_raw(incoming, _spdy_headers("portforward.k8s.io"))
            await spdy_handlers.serve_ports(raw, connect)
            raw.close()
            return Response(status=101, upgraded=upgrade.HijackedResponse())
        upgrade.check_websocket_handshake(incoming)
        ports = [] if PORT_TUNNEL in upgrade.offered_protocols(incoming) else _ports(request.query)
        accepted = (PORT_TUNNEL, websocket_channels.V4, websocket_channels.V4_BASE64)
        socket = await upgrade.upgrade_websocket(incoming, accepted)
        duplex = upgrade.WebSocketDuplex(socket, is_base64=socket.ws_protocol == websocket_channels.V4_BASE64)
        if socket.ws_protocol == PORT_TUNNEL:
            await spdy_handlers.serve_ports(duplex, connect)
        else:
            await websocket_channels.serve_ports(duplex, ports, connect)
        await socket.close()
        return Response(status=101, upgraded=socket)


async def _started(start: Callable[[], Awaitable[ContainerProcess]]) -> tuple[ContainerProcess | None, Object]:
    """The process, or the Status of a program that cannot be started.

    As with a kubelet, the client gets that Status on the error channel, behind the upgrade; what is wrong with the
    request or the pod is an HTTP status before it.
    """
    try:
        return await start(), {}
    except errors.StatusError as error:
        if error.status != 500:
            raise
        return None, error.body()


def choose_container(pod: Object, requested: str, *, init: bool) -> str:
    """The named container, or the only one."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    mains = [container["name"] for container in spec.get("containers") or ()]
    inits = [container["name"] for container in spec.get("initContainers") or ()]
    ephemeral = [container["name"] for container in spec.get("ephemeralContainers") or ()]
    if requested:
        if requested not in [*mains, *inits, *ephemeral]:
            raise errors.bad_request(f"container {requested} is not valid for pod {name}")
        return requested
    if len(mains) == 1 and not inits and not ephemeral:
        return str(mains[0])
    if len(mains) == 1 and not (init and inits):
        return str(mains[0])
    message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(mains)}]"
    if inits:
        message += f" or one of the init containers: [{' '.join(inits)}]"
    if ephemeral:
        message += f" or one of the ephemeral containers: [{' '.join(ephemeral)}]"
    raise errors.bad_request(message)


async def await_first_chunk(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Wait for the first chunk, so that an error before it can still be an HTTP status."""
    try:
        first = await anext(chunks)
    except StopAsyncIteration:
        first = b""

    async def all_chunks() -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(chunks) as rest:
            if first:
                yield first
            async for chunk in rest:
                yield chunk

    return all_chunks()


def _upgrades_to(request: Request, protocol: str) -> bool:
    return request.headers.get("Upgrade", "").lower() == protocol


def _require_upgrade(request: Request) -> BaseRequest:
    if request.incoming is None or not (_upgrades_to(request, "websocket") or _upgrades_to(request, "spdy/3.1")):
        raise errors.bad_request("Upgrade request required")
    incoming: BaseRequest = request.incoming
    return incoming


def _ports(query: Query) -> list[int]:
    """The ports of a port-forward over channels; the messages are upstream's."""
    ports = []
    for text in [port_text for value in query.all("ports") for port_text in value.split(",")]:
        if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _MAX_PORT):
            raise errors.bad_request(f'unable to parse "{text}" as a port')
        if int(text) < 1:
            raise errors.bad_request(f'port "{text}" must be > 0')
        ports.append(int(text))
    if not ports:
        raise errors.bad_request('query parameter "ports" is required')
    if len(ports) > _MAX_FORWARDED_PORTS:
        raise errors.bad_request(f"at most {_MAX_FORWARDED_PORTS} ports can be forwarded, got {len(ports)}")
    return ports


def _negotiate_version(offered: str, incoming: BaseRequest) -> str:
    """The newest version that both sides support; a client may repeat the header."""
    headers = [offered, *incoming.headers.getall("X-Stream-Protocol-Version", [])]
    client_versions = {version_text.strip() for text in headers for version_text in text.split(",")}
    return next((version for version in _COMMAND_PROTOCOLS if version in client_versions), _COMMAND_PROTOCOLS[-1])


def _spdy_headers(version: str) -> dict[str, str]:
    return {"Upgrade": "SPDY/3.1", "Connection": "Upgrade", "X-Stream-Protocol-Version": version}
