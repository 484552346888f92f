"""Uses a Kueue that serves only v1beta1 as if it served v1beta2: paths and objects are converted on the way.

It sits between a client and its transport, so no other code depends on the version.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.api.queue.conversion import CONVERSIONS
from torchyard.kube.client import JSON, ApiResponse, Transport

_STORED_PATH, _OLD_PATH = (f"/apis/{names.GROUP}/{version}/" for version in (names.STORED, names.OLD))
_API_VERSIONS = {names.STORED: names.API_VERSION, names.OLD: f"{names.GROUP}/{names.OLD}"}


class KueueV1Beta1Transport:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse:
        plural = _plural(path)
        if not plural:
            return await self._transport.request(method, path, body=body, content_type=content_type, accept=accept)
        if body and method != "DELETE":
            body = orjson.dumps(_convert(orjson.loads(body), plural, names.OLD))
        response = await self._transport.request(
            method, path.replace(_STORED_PATH, _OLD_PATH, 1), body=body, content_type=content_type, accept=accept
        )
        if response.status >= 400 or not response.body:
            return response
        return response._replace(body=orjson.dumps(_convert(orjson.loads(response.body), plural, names.STORED)))

    def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        return self._transport.stream(path, accept=accept)

    async def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[Object], None]:
        plural = _plural(path)
        async with aclosing(self._transport.watch(path.replace(_STORED_PATH, _OLD_PATH, 1), accept=accept)) as batches:
            async for events in batches:
                for event in events if plural else ():
                    if event["type"] != "ERROR":
                        event["object"] = _convert(event["object"], plural, names.STORED)
                yield events

    async def close(self) -> None:
        await self._transport.close()


def _plural(path: str) -> str:
    """The queue resource in a path; empty if the path is not about one."""
    if not path.startswith(_STORED_PATH):
        return ""
    parts = path[len(_STORED_PATH) :].partition("?")[0].split("/")
    return parts[2] if parts[0] == "namespaces" and len(parts) > 2 else parts[0]


def _convert(obj: Object, plural: str, version: str) -> Object:
    """Converts an object, a list of objects, or the part of one in a merge patch."""
    convert = CONVERSIONS[plural][0 if version == names.STORED else 1]
    if obj.get("kind") == "Status":
        return obj
    if isinstance(obj.get("items"), list):
        obj["items"] = [convert(item) for item in obj["items"]]
        for item in obj["items"]:
            item["apiVersion"] = _API_VERSIONS[version]
    else:
        obj = convert(obj)
    if "apiVersion" in obj:
        obj["apiVersion"] = _API_VERSIONS[version]
    return obj
