"""Requests of the console and their responses without their transport, and what the console needs of a cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypedDict, TypeVar

import orjson

from torchyard.api.errors import StatusError

JSON = "application/json"
CallerT_contra = TypeVar("CallerT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class ConsoleRequest:
    method: str
    path: str  # below `/console`, begins with a slash, still with its escapes
    query: str
    headers: Mapping[str, str]  # case-insensitive
    body: bytes
    is_tls: bool


@dataclass(slots=True)
class ConsoleResponse:
    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""  # whole, or in chunks
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # sentences of the API server


class KubernetesRequest(NamedTuple):
    """A request to the Kubernetes API. Nothing of the browser's request but this reaches the API server."""

    method: str
    path: str
    query: str
    accept: str
    content_type: str
    body: bytes


class ConsoleIdentity(TypedDict):
    user: str
    groups: list[str]
    context: str
    plane: bool
    version: str
    namespace: str  # what the pages show to those who may not list namespaces


class SampleQuery(NamedTuple):
    """Which samples: those of a job after a time. The resource is `pytorchjobs.kubeflow.org`, or `pods`."""

    namespace: str
    resource: str
    name: str
    since: float


class ConsoleBackend(Protocol[CallerT_contra]):
    """A cluster. It authorizes every request of a caller, who is authenticated."""

    async def identity(self, caller: CallerT_contra) -> ConsoleIdentity: ...

    async def kubernetes(self, caller: CallerT_contra, request: KubernetesRequest) -> ConsoleResponse: ...

    async def samples(self, caller: CallerT_contra, query: SampleQuery) -> dict[str, Any]: ...

    async def history(self, caller: CallerT_contra) -> list[Mapping[str, Any]]:
        """The jobs that have ended, deleted ones included; the last ended first."""
        ...


def json_response(document: object, status: int = 200) -> ConsoleResponse:
    return ConsoleResponse(status, orjson.dumps(document))


def status_response(error: StatusError) -> ConsoleResponse:
    return ConsoleResponse(error.status, orjson.dumps(error.body()), headers=dict(error.headers))
