"""A Kueue that serves only v1beta1, spoken to as if it served v1beta2: paths and objects are translated on the way.

Stands between a client and its transport, so that nothing else has to know.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.queue.conversion import CONVERSIONS
from torchyard.kube.client import JSON, ApiResponse, Transport

_NEWER, _OLDER = (f"/apis/{names.GROUP}/{version}/" for version in (names.STORED, names.OLD))
_API_VERSIONS = {names.STORED: names.API_VERSION, names.OLD: f"{names.GROUP}/{names.OLD}"}


class OlderKueue:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse:
        plural = _plural(path)
        if not plural:
            return await self._transport.request(method, path, body=body, content_type=content_type, accept=accept)
        if body and method != "DELETE":
            body = orjson.dumps(_translated(orjson.loads(body), plural, names.OLD))
        answer = await self._transport.request(
            method, path.replace(_NEWER, _OLDER, 1), body=body, content_type=content_type, accept=accept
        )
        if answer.status >= 400 or not answer.body:
            return answer
        return answer._replace(body=orjson.dumps(_translated(orjson.loads(answer.body), plural, names.STORED)))

    def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        return self._transport.stream(path, accept=accept)

    async def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[Object], None]:
        plural = _plural(path)
        async with aclosing(self._transport.watch(path.replace(_NEWER, _OLDER, 1), accept=accept)) as told:
            async for events in told:
                for event in events if plural else ():
                    if event["type"] != "ERROR":
                        event["object"] = _translated(event["object"], plural, names.STORED)
                yield events

    async def close(self) -> None:
        await self._transport.close()


def _plural(path: str) -> str:
    """The queue kind that a path is about; empty if it is about none."""
    if not path.startswith(_NEWER):
        return ""
    parts = path[len(_NEWER) :].partition("?")[0].split("/")
    return parts[2] if parts[0] == "namespaces" and len(parts) > 2 else parts[0]


def _translated(obj: Object, plural: str, version: str) -> Object:
    """An object, a part of one in a merge patch, or a list of them."""
    convert = CONVERSIONS[plural][0 if version == names.STORED else 1]
    if obj.get("kind") == "Status":
        return obj
    if isinstance(obj.get("items"), list):
        obj["items"] = [convert(one) for one in obj["items"]]
        for one in obj["items"]:
            one["apiVersion"] = _API_VERSIONS[version]
    else:
        obj = convert(obj)
    if "apiVersion" in obj:
        obj["apiVersion"] = _API_VERSIONS[version]
    return obj
