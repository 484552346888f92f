"""What pods cost that send reports without a valid token, or open connections and send nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import aiohttp
import orjson
import pytest

from torchyard.api.objects import Object
from torchyard.api.trainjob import names
from torchyard.core.progress.reports import ProgressReport
from torchyard.kube.client import Client
from torchyard.operator import token_reviews
from torchyard.operator.connections import LIMITS, listen
from torchyard.operator.status_reports import StatusReports
from torchyard.operator.token_reviews import TokenReviewer

EXPIRY = time.time() + 3600
AUDIENCE = names.status_audience("team", "mnist")


def token(signature: str, audience: str = AUDIENCE) -> str:
    claims = orjson.dumps({"aud": [audience], "exp": EXPIRY})
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.{signature}"


class Reviews:
    """Stands for a client: it reviews tokens, of which those with the signature `valid` are valid."""

    def __init__(self) -> None:
        self.count = 0
        self.answering = asyncio.Event()
        self.answering.set()

    async def raw(self, _method: str, _path: str, review: Object) -> Object:
        self.count += 1
        await self.answering.wait()
        if not review["spec"]["token"].endswith(".valid"):
            return {"status": {"authenticated": False}}
        user = {"username": "system:serviceaccount:team:default"}
        return {"status": {"authenticated": True, "audiences": review["spec"]["audiences"], "user": user}}


def reviewer(reviews: Reviews) -> TokenReviewer:
    return TokenReviewer(cast(Client, reviews))


async def test_invalid_tokens_do_not_displace_valid_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_MAX_RESULTS", "_MAX_VALID", "_MAX_INVALID"):
        monkeypatch.setattr(token_reviews, limit, 4, raising=False)
    reviews = Reviews()
    tokens = reviewer(reviews)
    assert await tokens.review(token("valid"), AUDIENCE) is not None
    for number in range(8):
        assert await tokens.review(token(f"x{number}"), AUDIENCE) is None
    assert reviews.count == 9
    assert await tokens.review(token("valid"), AUDIENCE) is not None
    assert await tokens.review(token("x7"), AUDIENCE) is None
    assert reviews.count == 9  # both are known


async def test_the_reviews_that_wait_are_limited_for_each_job() -> None:
    reviews = Reviews()
    reviews.answering.clear()
    tokens = reviewer(reviews)
    waiting = [asyncio.ensure_future(tokens.review(token(f"x{number}"), AUDIENCE)) for number in range(200)]
    other = names.status_audience("team", "other")
    valid = asyncio.ensure_future(tokens.review(token("valid", other), other))
    await asyncio.sleep(0)  # all have begun
    reviews.answering.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    errors = [result for result in results if result is not None]
    assert {getattr(error, "status", None) for error in errors} == {503}
    assert reviews.count == 200 - len(errors) + 1
    assert (await valid) is not None
    assert await tokens.review(token("y"), AUDIENCE) is None  # there is room again


@contextlib.asynccontextmanager
async def endpoint(reviews: Reviews, **limits: Any) -> AsyncIterator[int]:
    """The endpoint of an operator that runs the job team/mnist, on a port without TLS."""
    job = {"metadata": {"uid": "1"}}
    published: list[ProgressReport] = []
    reports = StatusReports(
        reviewer(reviews),
        lambda namespace, name: job if (namespace, name) == ("team", "mnist") else None,
        published.append,
        lambda: datetime.now(UTC),
    )
    async with contextlib.AsyncExitStack() as closing:
        changed = dataclasses.replace(LIMITS, **limits)
        yield await listen(reports.app(), "127.0.0.1", 0, closing=closing, limits=changed)


async def report(session: aiohttp.ClientSession, port: int, name: str, bearer: str) -> int:
    url = f"http://127.0.0.1:{port}{names.status_path('team', name)}"
    async with session.post(url, json={}, headers={"Authorization": f"Bearer {bearer}"}) as response:
        return response.status


async def test_reports_of_unknown_jobs_cost_no_review() -> None:
    reviews = Reviews()
    async with endpoint(reviews) as port, aiohttp.ClientSession() as session:
        unknown = names.status_audience("team", "unknown")
        assert await report(session, port, "unknown", token("valid", unknown)) == 403
        assert reviews.count == 0
        assert await report(session, port, "mnist", token("forged")) == 403
        assert await report(session, port, "mnist", token("valid")) == 200
        assert reviews.count == 2
        assert await report(session, port, "mnist", token("ä")) == 403
        assert reviews.count == 2


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_connection_without_a_whole_head_is_closed(sent: bytes) -> None:
    async with endpoint(Reviews(), head_seconds=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_a_connection_with_half_of_another_request_is_closed() -> None:
    async with endpoint(Reviews(), idle_seconds=0.5) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n")
        async with asyncio.timeout(10):
            assert (await reader.read()).count(b"HTTP/1.1 404") == 1
        writer.close()
        await writer.wait_closed()


async def test_idle_connections_make_room_and_requests_under_way_stay() -> None:
    reviews = Reviews()
    reviews.answering.clear()
    async with contextlib.AsyncExitStack() as closing:
        port = await closing.enter_async_context(endpoint(reviews, connections=4, unauthenticated_connections=4))
        session = await closing.enter_async_context(aiohttp.ClientSession())
        under_way = asyncio.ensure_future(report(session, port, "mnist", token("valid")))
        async with asyncio.timeout(10):
            while not reviews.count:
                await asyncio.sleep(0.01)
        peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(16)]
        async with asyncio.timeout(10):
            for reader, _ in peers[:12]:
                assert await reader.read() == b""  # closed
        reviews.answering.set()
        assert await under_way == 200
        assert await report(session, port, "mnist", token("forged")) == 403
        for _, writer in peers:
            writer.close()
