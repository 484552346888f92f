"""Things a node does to a running container and waits for: run a command in it, ask it over HTTP, knock on a port.

Probes and lifecycle hooks are made of these.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Any, NamedTuple

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.node.pipes import ReadEnd
from torchyard.node.shim.client import ShimClient, ShimRequestError

_OUTPUT_LIMIT = 10 * 1024


class HandlerResult(NamedTuple):
    passed: bool
    message: str


async def run_command(shim: ShimClient, container: str, command: list[str], *, seconds: float) -> HandlerResult:
    """The command's exit code decides; its output is the message."""
    null = os.open("/dev/null", os.O_RDONLY)
    out_read, out_write = os.pipe()
    reading = asyncio.create_task(_read_output(ReadEnd(out_read)))
    try:
        async with await shim.channel() as channel:
            request = {"op": "exec", "container": container, "argv": command, "tty": False}
            channel.send(request, [null, out_write, out_write])
            os.close(out_write)
            out_write = -1
            try:
                async with asyncio.timeout(seconds):
                    return await _exit_of(channel, reading)
            except TimeoutError:
                return HandlerResult(False, f"command timed out: {' '.join(command)!r} timed out after {seconds:g}s")
    finally:
        os.close(null)
        if out_write >= 0:
            os.close(out_write)
        reading.cancel()


async def _exit_of(channel: Any, reading: asyncio.Task[bytes]) -> HandlerResult:
    answer, _ = await channel.receive()
    if "started" not in answer:
        said = answer.get("failed", {}).get("message") or answer.get("error", "")
        return HandlerResult(False, said)
    answer, _ = await channel.receive()
    code = answer["exited"]
    # a child left in the background may hold the pipe open: what is there by now is the output
    await asyncio.wait([reading], timeout=0.2)
    output = reading.result() if reading.done() else b""
    text = output.decode(errors="replace")
    return HandlerResult(code == 0, text if text or code == 0 else f"command exited with code {code}")


async def _read_output(end: ReadEnd) -> bytes:
    output = b""
    try:
        async for data in end.pieces():
            output = (output + data)[:_OUTPUT_LIMIT]
    finally:
        end.close()
    return output


async def knock(shim: ShimClient, host: str, port: int, *, seconds: float) -> HandlerResult:
    try:
        async with asyncio.timeout(seconds):
            link = await shim.connect(host, port)
    except ShimRequestError as refused:
        return HandlerResult(False, f"dial tcp {host}:{port}: connect: {refused.message}")
    except TimeoutError:
        return HandlerResult(False, f"dial tcp {host}:{port}: i/o timeout")
    link.close()
    return HandlerResult(True, "")


async def ask_http(shim: ShimClient, action: Object, *, host: str, port: int, seconds: float) -> HandlerResult:
    """Passes on any status from 200 to 399, as the kubelet's HTTP prober does."""
    scheme = (action.get("scheme") or "HTTP").upper()
    url = f"{scheme.lower()}://{host}:{port}{action.get('path') or '/'}"
    try:
        async with asyncio.timeout(seconds):
            link = await shim.connect(host, port)
            status, body = await _get(link, action, host=host, port=port, secure=scheme == "HTTPS")
    except ShimRequestError as refused:
        return HandlerResult(False, f'Get "{url}": dial tcp {host}:{port}: connect: {refused.message}')
    except TimeoutError:
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return HandlerResult(False, f'Get "{url}": {late}')
    except (OSError, ValueError, YardError) as failed:
        return HandlerResult(False, f'Get "{url}": {failed}')
    if 200 <= status < 400:
        return HandlerResult(True, body)
    return HandlerResult(False, f"HTTP probe failed with statuscode: {status}")


async def _get(link: socket.socket, action: Object, *, host: str, port: int, secure: bool) -> tuple[int, str]:
    context = None
    if secure:
        # like the kubelet: a probe asks whether somebody answers, not who
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(sock=link, ssl=context, server_hostname=host if secure else None)
    try:
        headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.34", "Accept": "*/*", "Connection": "close"}
        for header in action.get("httpHeaders") or ():
            headers[header["name"]] = header["value"]
        lines = [f"GET {action.get('path') or '/'} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = await reader.readline()
        body = await reader.read(_OUTPUT_LIMIT)
    finally:
        writer.close()
    words = head.split()
    if len(words) < 2 or not words[1].isdigit():
        raise ValueError(f"malformed HTTP response {head[:50]!r}")
    return int(words[1]), body.decode(errors="replace")


def port_of(container: Object, port: int | str) -> int:
    """A port number, or the number of the container's port of that name."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for one in container.get("ports") or ():
        if one.get("name") == port:
            return int(one["containerPort"])
    raise YardError(f"container {container['name']} has no port named {port!r}")


async def act(shim: ShimClient, container: Object, action: Object, *, host: str, seconds: float) -> HandlerResult:
    """Carry out an exec, httpGet, tcpSocket or sleep action."""
    if action.get("exec"):
        return await run_command(shim, container["name"], list(action["exec"].get("command") or ()), seconds=seconds)
    if action.get("httpGet"):
        asked = action["httpGet"]
        port = port_of(container, asked["port"])
        return await ask_http(shim, asked, host=asked.get("host") or host, port=port, seconds=seconds)
    if action.get("tcpSocket"):
        asked = action["tcpSocket"]
        return await knock(shim, asked.get("host") or host, port_of(container, asked["port"]), seconds=seconds)
    if action.get("sleep"):
        await asyncio.sleep(min(float(action["sleep"]["seconds"]), seconds))
        return HandlerResult(True, "")
    return HandlerResult(False, f"{', '.join(sorted(action))} is not served by this node")
