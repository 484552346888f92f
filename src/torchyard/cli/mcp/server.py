"""The Model Context Protocol over a pair of streams: JSON-RPC 2.0, one message for each line."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from torchyard import __version__
from torchyard.api.errors import YardError
from torchyard.cli.mcp.tool import Tool

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2024-11-05")  # 2025-03-26 would need batches
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL_ERROR = -32603
MESSAGE_LIMIT = 16 << 20
INSTRUCTIONS = (
    "Torchyard runs PyTorch training as Kubernetes jobs. Start with list_jobs and explain_job. "
    "Before a long run, use check_run and smoke_test. Tools that change something exist only with --allow-write."
)
Call = Callable[[list[str], float], Awaitable[dict[str, Any]]]
_log = logging.getLogger(__name__)


class RpcError(Exception):
    """An error of the protocol, not of a tool."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Server:
    """Answers the messages of one client. Requests run at the same time; answers come as they are ready."""

    def __init__(self, tools: Sequence[Tool], cluster: list[str], call: Call, write: Callable[[str], None]) -> None:
        """`cluster` are the options that choose one; `call` runs a command; `write` sends one line."""
        self._tools = {tool.name: tool for tool in tools}
        self._cluster, self._call, self._write = cluster, call, write
        self._running: dict[str | int, asyncio.Task[None]] = {}

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Answer until the client closes its end; requests that still run are cancelled then."""
        try:
            while (line := await _read_line(reader)) != b"":
                if line is None:
                    self._refuse(INVALID_REQUEST, f"the message is longer than {MESSAGE_LIMIT >> 20} MiB")
                elif line.strip():
                    self._receive(line)
        finally:
            for task in list(self._running.values()):
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self._refuse(PARSE_ERROR, "the message is not JSON")
            return
        except RecursionError:
            self._refuse(PARSE_ERROR, "the message is nested too deeply")
            return
        if isinstance(message, dict) and "method" not in message and ("result" in message or "error" in message):
            return  # an answer; this server asks nothing
        if not _is_request(message):
            self._refuse(INVALID_REQUEST, "the message is not a request")
            return
        identifier, method, parameters = message.get("id"), message["method"], message.get("params") or {}
        if identifier is None:
            self._notified(method, parameters)
            return
        if identifier in self._running:
            self._refuse(INVALID_REQUEST, "a request with this id is still running", identifier)
            return
        task = asyncio.ensure_future(self._respond(identifier, method, parameters))
        self._running[identifier] = task
        task.add_done_callback(lambda _: self._running.pop(identifier, None))

    def _notified(self, method: str, parameters: Any) -> None:
        if method == "notifications/cancelled" and isinstance(parameters, dict):
            identifier = parameters.get("requestId")
            if _is_identifier(identifier) and identifier in self._running:
                self._running[identifier].cancel()

    async def _respond(self, identifier: str | int, method: str, parameters: Any) -> None:
        try:
            if not isinstance(parameters, dict):
                raise RpcError(INVALID_PARAMS, "params must be an object")
            self._send({"id": identifier, "result": await self._result(method, parameters)})
        except RpcError as error:
            self._refuse(error.code, error.message, identifier)
        except Exception as error:  # a request without an answer would block its client
            _log.exception("the request %r failed", method)
            self._refuse(INTERNAL_ERROR, f"internal error: {type(error).__name__}: {error}", identifier)

    def _refuse(self, code: int, message: str, identifier: str | int | None = None) -> None:
        self._send({"id": identifier, "error": {"code": code, "message": message}})

    async def _result(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                requested = parameters.get("protocolVersion")
                return {
                    "protocolVersion": requested if requested in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
                    "capabilities": {"tools": {"listChanged": False}},
                    "serverInfo": {"name": "torchyard", "version": __version__},
                    "instructions": INSTRUCTIONS,
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.definition() for tool in self._tools.values()]}
            case "tools/call":
                return await self._call_tool(parameters)
        raise RpcError(METHOD_NOT_FOUND, f"the method {method} is not known")

    async def _call_tool(self, parameters: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(str(parameters.get("name")))
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"there is no tool {parameters.get('name')}")
        arguments = parameters.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "arguments must be an object")
        try:
            return await self._call(tool.command_line(arguments, self._cluster), tool.seconds)
        except YardError as error:  # a model corrects its arguments when it sees this as the result
            return {"content": [{"type": "text", "text": f"error: {error}\ncode: {error.code}"}], "isError": True}

    def _send(self, message: dict[str, Any]) -> None:
        self._write(json.dumps({"jsonrpc": "2.0", **message}, allow_nan=False))


async def _read_line(reader: asyncio.StreamReader) -> bytes | None:
    """The next line, b"" at the end; None for a line that is longer than the reader's limit, of which nothing stays."""
    is_too_long = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError as error:
            is_too_long = True
            await reader.readexactly(error.consumed)
            continue
        return None if is_too_long else line


def _is_request(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return False
    identifier = message.get("id")
    return isinstance(message.get("method"), str) and (identifier is None or _is_identifier(identifier))


def _is_identifier(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)
