"""Handlers of probes and hooks: a command, an HTTP GET, a TCP connection, a gRPC health check, a sleep."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, quote, urldefrag, urljoin, urlsplit

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.node.pipes import ReadEnd
from torchyard.node.pod import grpc_probe
from torchyard.node.shim.client import Channel, ExecFailed, ShimClient, ShimNotRunning, ShimRequestError, ShimTimeout

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import ExecRequest

log = logging.getLogger(__name__)

_OUTPUT_LIMIT = 10 * 1024
_HEADER_LIMIT = 1 << 20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 10
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


class HandlerResult(NamedTuple):
    passed: bool
    message: str
    is_warning: bool = False  # passed, and the message should be seen


class UnknownPort(YardError):
    """A handler names a port that the container does not have, so it cannot be run."""


class _Response(NamedTuple):
    status: int
    location: str
    body: str


def is_own_failure(error: Exception) -> bool:
    """Whether an error says nothing about the container: no open files or memory are left, or the shim is stopped."""
    return isinstance(error, ShimTimeout) or (isinstance(error, OSError) and error.errno in _OUT_OF_RESOURCES)


async def run_command(shim: ShimClient, container: str, command: list[str], *, seconds: float) -> HandlerResult:
    """The command's exit code decides; its output is the message."""
    null = os.open("/dev/null", os.O_RDONLY)
    out_read, out_write = os.pipe()
    end = ReadEnd(out_read)
    reader = asyncio.create_task(_read_output(end))
    reader.add_done_callback(lambda _: end.close())  # also if it is cancelled before it begins
    try:
        request: ExecRequest = {"op": "exec", "container": container, "argv": command, "tty": False}
        async with await shim.exec_channel(request, [null, out_write, out_write]) as channel:
            os.close(out_write)
            out_write = -1
            try:
                async with asyncio.timeout(seconds):
                    return await _command_result(channel, reader)
            except TimeoutError:
                return HandlerResult(False, messages.command_timed_out(command, seconds))
    finally:
        os.close(null)
        if out_write >= 0:
            os.close(out_write)
        reader.cancel()


async def _command_result(channel: Channel, reader: asyncio.Task[bytes]) -> HandlerResult:
    try:
        await channel.exec_started()
    except ExecFailed as error:
        return HandlerResult(False, error.message)
    code = await channel.exec_exited()
    # A child left in the background may hold the pipe open: what was read by now is the output.
    await asyncio.wait([reader], timeout=0.2)
    output = reader.result() if reader.done() else b""
    text = output.decode(errors="replace")
    return HandlerResult(code == 0, text if text or code == 0 else messages.command_exited(code))


async def _read_output(end: ReadEnd) -> bytes:
    output = b""
    async for data in end.pieces():
        output = (output + data)[:_OUTPUT_LIMIT]
    return output


async def dial_tcp(shim: ShimClient, host: str, port: int, *, seconds: float) -> HandlerResult:
    try:
        async with asyncio.timeout(seconds):
            connection = await shim.connect(host, port)
    except ShimRequestError as error:
        return HandlerResult(False, messages.dial_failed(host, port, error.message))
    except TimeoutError:
        return HandlerResult(False, messages.dial_timed_out(host, port))
    connection.close()
    return HandlerResult(True, "")


async def grpc_check(shim: ShimClient, action: Object, *, host: str, port: int, seconds: float) -> HandlerResult:
    """Passes if the service reports SERVING, as the kubelet's gRPC prober."""
    authority = f"{host}:{port}"
    try:
        async with asyncio.timeout(seconds):
            connection = await shim.connect(host, port)
            status = await grpc_probe.check(connection, authority=authority, service=action.get("service") or "")
    except ShimRequestError:
        return HandlerResult(False, messages.grpc_not_connected(authority, seconds))
    except TimeoutError:
        return HandlerResult(False, messages.grpc_timed_out(seconds))
    except (OSError, grpc_probe.HealthCheckFailed) as error:
        if is_own_failure(error):
            raise
        return HandlerResult(False, messages.grpc_failed(error))
    return HandlerResult(status == "SERVING", "" if status == "SERVING" else messages.grpc_unhealthy(status))


async def http_get(
    shim: ShimClient, action: Object, *, host: str, port: int, seconds: float, any_status: bool = False
) -> HandlerResult:
    """Passes on a status from 200 to 399, as the kubelet's HTTP prober does, or on any.

    As there, redirects to the same host are followed; one to another host passes with a warning.
    """
    scheme, address = (action.get("scheme") or "HTTP").lower(), f"[{host}]" if ":" in host else host
    url = _escaped(f"{scheme}://{address}:{port}/{(action.get('path') or '').removeprefix('/')}")
    try:
        async with asyncio.timeout(seconds):
            for _ in range(_MAX_REDIRECTS):
                response = await _get(shim, action, url)
                target = None if any_status else _same_host(url, response)
                if target is None:
                    break
                url = target
            else:
                raise ValueError(messages.TOO_MANY_REDIRECTS)
    except ShimRequestError as error:
        port = _port(urlsplit(url))
        return HandlerResult(False, messages.get_failed(url, messages.dial_failed(host, port, error.message)))
    except TimeoutError:
        return HandlerResult(False, messages.get_failed(url, messages.GET_TIMED_OUT))
    except (OSError, ValueError, YardError) as error:
        if is_own_failure(error):
            raise
        return HandlerResult(False, messages.get_failed(url, error))
    if any_status or 200 <= response.status < 300:
        return HandlerResult(True, response.body)
    if 300 <= response.status < 400:
        return HandlerResult(True, messages.redirect_not_followed(response.body), is_warning=True)
    return HandlerResult(False, messages.http_status(response.status))


def _same_host(url: str, response: _Response) -> str | None:
    """Where a response redirects to, if that is on the same host."""
    if response.status not in _REDIRECTS or not response.location:
        return None
    target = _escaped(urldefrag(urljoin(url, response.location)).url)
    return target if urlsplit(target).hostname == urlsplit(url).hostname else None


def _escaped(url: str) -> str:
    return quote(url, safe="!$%&'()*+,/:;=?@[]~")


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


@cache
def _unverified_context() -> ssl.SSLContext:
    """Like the kubelet: a probe checks that a server replies, not its certificate.

    Without the machine's authorities, which take 70 ms to load.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _get(shim: ShimClient, action: Object, url: str) -> _Response:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(messages.unsupported_scheme(parts.scheme))
    host = parts.hostname or ""
    connection = await shim.connect(host, _port(parts))
    secure = parts.scheme == "https"
    context = _unverified_context() if secure else None
    reader, writer = await asyncio.open_connection(
        sock=connection, ssl=context, server_hostname=host if secure else None
    )
    try:
        headers = {"Host": parts.netloc, "User-Agent": "kube-probe/1.34", "Accept": "*/*", "Connection": "close"}
        for header in action.get("httpHeaders") or ():
            headers[header["name"]] = header["value"]
        path = f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}"
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        return await _read_response(reader)
    finally:
        writer.close()


async def _read_response(reader: asyncio.StreamReader) -> _Response:
    head = await reader.readline()
    words = head.split()
    if len(words) < 2 or len(words[1]) != 3 or not words[1].isdigit():
        raise ValueError(messages.malformed_response(head[:50]))
    location, read = "", 0
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"location":
            location = value.strip().decode("utf-8", "replace")
        read += len(line)
        if read > _HEADER_LIMIT:
            raise ValueError(messages.HEADERS_TOO_LARGE)
    body = await reader.read(_OUTPUT_LIMIT)
    return _Response(int(words[1]), location, body.decode(errors="replace"))


def port_number(container: Object, port: int | str) -> int:
    """A port number, or the number of the container's port of that name."""
    if isinstance(port, int) or (port.isascii() and port.isdigit()):
        return int(port)
    for container_port in container.get("ports") or ():
        if container_port.get("name") == port:
            return int(container_port["containerPort"])
    raise UnknownPort(messages.no_such_port(container["name"], port))


async def run_handler(
    shim: ShimClient, container: Object, handler: Object, *, host: str, seconds: float, any_status: bool = False
) -> HandlerResult:
    """Run an exec, httpGet, tcpSocket, grpc or sleep handler."""
    if handler.get("exec"):
        return await run_command(shim, container["name"], list(handler["exec"].get("command") or ()), seconds=seconds)
    if action := handler.get("httpGet"):
        port = port_number(container, action["port"])
        address = action.get("host") or host
        return await http_get(shim, action, host=address, port=port, seconds=seconds, any_status=any_status)
    if action := handler.get("tcpSocket"):
        port = port_number(container, action["port"])
        return await dial_tcp(shim, action.get("host") or host, port, seconds=seconds)
    if action := handler.get("grpc"):
        return await grpc_check(shim, action, host=host, port=int(action["port"]), seconds=seconds)
    if handler.get("sleep"):
        await asyncio.sleep(min(float(handler["sleep"]["seconds"]), seconds))
        return HandlerResult(True, "")
    return HandlerResult(False, messages.handler_unsupported(handler))


async def run_hook(shim: ShimClient, container: Object, hook: Object, *, host: str, seconds: float) -> HandlerResult:
    """Run a postStart or preStop hook. Whatever goes wrong is its failure, except that the shim has ended.

    As the kubelet, a GET passes with any status.
    """
    try:
        return await run_handler(shim, container, hook, host=host, seconds=seconds, any_status=True)
    except ShimNotRunning:
        raise
    except (YardError, OSError) as error:
        return HandlerResult(False, str(error))
    except Exception as error:  # what a container sends must not keep it from being stopped
        log.exception("hook failed: container=%s", container["name"])
        return HandlerResult(False, f"{type(error).__name__}: {error}")
