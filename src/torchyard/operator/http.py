"""The operator's HTTP servers: probes, metrics, admission reviews. Each has its own port, as upstream."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

import orjson
from aiohttp import web

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.operator.connections import LIMITS, listen
from torchyard.operator.metrics import OperatorMetrics

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.Response]]
# Answers an AdmissionReview, at once or after it has read other objects.
Answer = Callable[[Object], Object | Awaitable[Object]]
_MAX_BODY_BYTES = 8 << 20


class HealthProbes:
    """Alive as long as it responds; ready when `problem` is empty. `remark`: what does not run though it is ready."""

    def __init__(self) -> None:
        self.problem, self.remark = "starting", ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        return app

    async def _alive(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _ready(self, _: web.Request) -> web.Response:
        ready = f"ok; {self.remark}" if self.remark else "ok"
        return web.Response(text=self.problem or ready, status=503 if self.problem else 200)


def metrics_app(metrics: OperatorMetrics) -> web.Application:
    async def show(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.router.add_get("/metrics", show)
    return app


def webhook_app(answers: Mapping[str, Answer], reviewed: Callable[[str, int], None]) -> web.Application:
    """`answers` maps paths to functions that answer an AdmissionReview."""
    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    for path, answer in answers.items():
        app.router.add_post(path, _admission_handler(path, answer, reviewed))
    return app


def _admission_handler(path: str, answer: Answer, reviewed: Callable[[str, int], None]) -> Handler:
    async def review(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(LIMITS.body_seconds):
                body = await request.read()
        except TimeoutError:
            reviewed(path, 408)
            return web.Response(status=408, text="the body of the AdmissionReview did not arrive in time")
        try:
            answered = answer(orjson.loads(body))
            reviewed_object = await answered if isinstance(answered, Awaitable) else answered
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reviewed(path, 400)
            return web.Response(status=400, text=f"invalid AdmissionReview: {error}")
        except YardError as error:  # what the review depends on cannot be read
            reviewed(path, 503)
            return web.Response(status=503, text=str(error))
        reviewed(path, 200 if reviewed_object["response"]["allowed"] else 422)
        return web.Response(body=orjson.dumps(reviewed_object), content_type="application/json")

    return review


async def serve(
    app: web.Application, host: str, port: int, *, closing: AsyncExitStack, tls: ssl.SSLContext | None = None
) -> int:
    """Serve until `closing` closes; returns the port, which the system chooses for port 0."""
    try:
        return await listen(app, host, port, closing=closing, tls=tls)
    except OSError as error:
        raise YardError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", hint="choose another port", code="PortTaken"
        ) from None
