"""Checks the tokens of reporting pods: TokenReviews for the audience of their job, whose results are kept for a while.

The API server checks signature, expiry and audience, and whether the pod of the token still exists.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.kube.client import Client

T = TypeVar("T")

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCOUNT_PREFIX = "system:serviceaccount:"
_POD_NAME = "authentication.kubernetes.io/pod-name"
_VALID_SECONDS, _INVALID_SECONDS = 120.0, 10.0
_MAX_VALID, _MAX_INVALID, _MAX_TOKEN = 16384, 1024, 16384
_MAX_REVIEWS = 8  # at the same time
_MAX_WAITING = 64  # for each audience, so that the tokens of one job do not delay those of others for long


@dataclass(frozen=True, slots=True)
class ServiceAccountToken:
    """Whose token it is. `pod` is empty if the token is not bound to a pod."""

    namespace: str
    pod: str = ""


class TooManyReviews(StatusError):
    def __init__(self) -> None:
        super().__init__(
            503, "ServiceUnavailable", "too many tokens of this job wait for their review; try again later"
        )


class TokenReviewer:
    """`review` a token. Raises `YardError` if the API server does not answer.

    `client` is for reviews only: nothing else waits if the API server rejects many of them.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # By the digests of tokens. Any number of invalid ones evicts no valid one.
        self._valid: OrderedDict[bytes, tuple[float, ServiceAccountToken]] = OrderedDict()
        self._invalid: OrderedDict[bytes, float] = OrderedDict()
        self._waiting: Counter[str] = Counter()  # by audience
        self._slots = asyncio.Semaphore(_MAX_REVIEWS)

    async def review(self, token: str, audience: str) -> ServiceAccountToken | None:
        """The account of a token that is valid for this audience; None for any other."""
        if len(token) > _MAX_TOKEN or not token.isascii() or not _is_for(token, audience):
            return None  # without a request
        digest = hashlib.sha256(f"{audience}\n{token}".encode()).digest()
        until, known = self._valid.get(digest, (0.0, None))
        if time.monotonic() < until:
            return known
        if time.monotonic() < self._invalid.get(digest, 0.0):
            return None
        result = await self._ask_in_turn(token, audience)
        if result is not None:
            _keep(self._valid, digest, (time.monotonic() + _VALID_SECONDS, result), _MAX_VALID)
        else:
            _keep(self._invalid, digest, time.monotonic() + _INVALID_SECONDS, _MAX_INVALID)
        return result

    async def _ask_in_turn(self, token: str, audience: str) -> ServiceAccountToken | None:
        if self._waiting[audience] >= _MAX_WAITING:
            raise TooManyReviews
        self._waiting[audience] += 1
        try:
            async with self._slots:
                return await self._ask(token, audience)
        finally:
            self._waiting[audience] -= 1
            if not self._waiting[audience]:
                del self._waiting[audience]

    async def _ask(self, token: str, audience: str) -> ServiceAccountToken | None:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        status: Object = (await self._client.raw("POST", _PATH, review)).get("status") or {}
        if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
            return None
        user: Object = status.get("user") or {}
        name = str(user.get("username") or "")
        if not name.startswith(_ACCOUNT_PREFIX):
            return None
        pods = (user.get("extra") or {}).get(_POD_NAME) or [""]
        return ServiceAccountToken(name.removeprefix(_ACCOUNT_PREFIX).partition(":")[0], pods[0])


def _keep(results: OrderedDict[bytes, T], digest: bytes, result: T, limit: int) -> None:
    results[digest] = result
    results.move_to_end(digest)
    while len(results) > limit:
        results.popitem(last=False)


def _is_for(token: str, audience: str) -> bool:
    """Whether a token claims this audience and has not expired. Its signature is not checked."""
    claims = _claims(token)
    audiences, expiry = claims.get("aud"), claims.get("exp")
    claimed = audiences if isinstance(audiences, list) else [audiences]
    return audience in claimed and isinstance(expiry, int | float) and time.time() < expiry


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}
