"""The endpoint where the nodes of TrainJobs report their progress (KEP-2779), with upstream's responses.

Every replica serves it, at the address that the TrainJob controller puts into the pods.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

import orjson
from aiohttp import web

from torchyard.api import errors
from torchyard.api.errors import StatusError, YardError
from torchyard.api.objects import Object
from torchyard.api.trainjob import names
from torchyard.core.progress.endpoint import MAX_BODY_BYTES, parse_report
from torchyard.core.progress.reports import JobReference, ProgressReport
from torchyard.operator.connections import LIMITS
from torchyard.operator.token_reviews import ServiceAccountToken, TokenReviewer, TooManyReviews

log = logging.getLogger(__name__)


class StatusReports:
    """`find_job` returns the TrainJob of a namespace and a name, if this operator runs it."""

    def __init__(
        self,
        tokens: TokenReviewer,
        find_job: Callable[[str, str], Object | None],
        publish: Callable[[ProgressReport], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._tokens, self._find_job, self._publish, self._clock = tokens, find_job, publish, clock

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._respond)
        return app

    async def _respond(self, request: web.Request) -> web.Response:
        try:
            answer, status = await self._handle(request), 200
        except StatusError as error:
            answer, status = error.body(), error.status
        return web.Response(body=orjson.dumps(answer), status=status, content_type="application/json")

    async def _handle(self, request: web.Request) -> Object:
        reported = names.reported_job(request.rel_url.raw_path) if request.method == "POST" else None
        if reported is None:
            raise StatusError(404, "NotFound", "Not found")
        namespace, name = reported
        # Only reports of existing jobs cost a review. Whether a job exists is not for everyone: 403, and not 404.
        if self._find_job(namespace, name) is None:
            raise _forbidden()
        token = await self._authenticate(request, namespace, name)
        body = await _read(request)
        job = self._find_job(namespace, name)
        if job is None:
            raise StatusError(404, "NotFound", "Train job not found")
        reference = JobReference(names.KIND, namespace, name, job["metadata"]["uid"])
        report, answer = parse_report(body, reference, self._clock(), replica=token.pod)
        if report is not None:
            self._publish(report)
        return answer

    async def _authenticate(self, request: web.Request, namespace: str, name: str) -> ServiceAccountToken:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        reviewed = None
        if kind.lower() == "bearer":
            try:
                reviewed = await self._tokens.review(token.strip(), names.status_audience(namespace, name))
            except TooManyReviews:
                raise
            except YardError as error:
                log.warning("token of a report not reviewed: job=%s/%s error=%s", namespace, name, error)
                message = "the API server does not answer, so the token cannot be reviewed; try again later"
                raise StatusError(503, "ServiceUnavailable", message) from None
        if reviewed is None or reviewed.namespace != namespace:
            raise _forbidden()
        return reviewed


def _forbidden() -> StatusError:
    return StatusError(403, "Forbidden", "Forbidden")


async def _read(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(LIMITS.body_seconds):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise errors.too_large(MAX_BODY_BYTES) from None
    except TimeoutError:
        raise StatusError(408, "Timeout", "the body of the report did not arrive in time; send it at once") from None
