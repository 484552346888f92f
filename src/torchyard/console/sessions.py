"""One-time codes, and the sessions that they begin. Both are in memory only: a restart signs everyone out."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Generic, NamedTuple, TypeVar

from torchyard.api.errors import StatusError, too_many_requests

CODE_SECONDS = 120.0
SESSION_SECONDS = 12 * 3600.0
# Of one user: nobody can sign others out, or keep them from signing in.
MAX_CODES = 64
MAX_SESSIONS = 64
COOKIE_PATH = "/console"
PROOF_HEADER = "X-Torchyard-Console-Proof"
KEY_HEADER = "X-Torchyard-Console-Key"
_PROOF_TEXT = b"torchyard console"

CredentialT = TypeVar("CredentialT")


@dataclass(slots=True, eq=False)
class ConsoleSession(Generic[CredentialT]):
    """A browser that has signed in. `credential` is the backend's: whose rights its requests have."""

    credential: CredentialT
    expires: float
    proof: bytes = field(repr=False)  # the digest of what a page of the session sends in a header
    _streams: set[asyncio.Task[object]] = field(default_factory=set)

    async def stream(self, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Chunks of a response, which ends with the session."""
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        timer = asyncio.get_running_loop().call_later(max(0.0, self.expires - time.time()), task.cancel)
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
        finally:
            timer.cancel()
            self._streams.discard(task)

    def end_streams(self) -> None:
        for task in self._streams:
            task.cancel()


class SignedIn(NamedTuple):
    """What a browser gets: the Set-Cookie header, and the key with which its pages compute their proof."""

    cookie: str
    key: str


class ConsoleSessions(Generic[CredentialT]):
    """Codes and sessions by the digests of their secrets, so that neither appears in memory or in a dump of it.

    A look-up by digest takes a time that says nothing about other secrets.
    """

    def __init__(
        self,
        cookie: str,
        *,
        clock: Callable[[], float] = time.time,
        user_of: Callable[[CredentialT], object] = lambda credential: credential,
    ) -> None:
        self._cookie, self._clock, self._user_of = cookie, clock, user_of
        self._codes: dict[bytes, tuple[float, CredentialT]] = {}
        self._sessions: dict[bytes, ConsoleSession[CredentialT]] = {}

    def issue_code(self, credential: CredentialT) -> str:
        """A code that begins one session with this credential, for a short time."""
        now = self._clock()
        self._codes = {digest: code for digest, code in self._codes.items() if code[0] > now}
        user = self._user_of(credential)
        if sum(self._user_of(other) == user for _, other in self._codes.values()) >= MAX_CODES:
            raise too_many_requests("too many one-time codes are unused", retry_after=int(CODE_SECONDS))
        code = secrets.token_urlsafe(32)
        self._codes[_digest(code)] = now + CODE_SECONDS, credential
        return code

    def sign_in(self, code: str, *, is_tls: bool) -> SignedIn:
        """Begin a session. Raises 401 if the code is unknown, used or too old."""
        now = self._clock()
        expires, credential = self._codes.pop(_digest(code), (0.0, None))
        if credential is None or expires <= now:
            raise StatusError(401, "Unauthorized", "the one-time code was used or is too old; run `yard console` again")
        for digest in [digest for digest, session in self._sessions.items() if session.expires <= now]:
            self._end(digest)
        user = self._user_of(credential)
        own = [digest for digest, session in self._sessions.items() if self._user_of(session.credential) == user]
        if len(own) >= MAX_SESSIONS:
            self._end(own[0])  # the oldest
        secret, key = secrets.token_urlsafe(32), secrets.token_hex(32)
        session = ConsoleSession(credential, now + SESSION_SECONDS, _digest(proof_of(key)))
        self._sessions[_digest(secret)] = session
        return SignedIn(self._set_cookie(secret, int(SESSION_SECONDS), is_tls=is_tls), key)

    def authenticate(self, cookies: str, proof: str) -> ConsoleSession[CredentialT] | None:
        """The session of a Cookie header, if the proof of its pages comes with it.

        Browsers send a cookie to every port of a machine, so another program on the machine may have received it. The
        key of the proof is bound to the origin of the console, with its port, and never sent.
        """
        session = self.find(cookies)
        is_proven = session is not None and secrets.compare_digest(session.proof, _digest(proof))
        return session if is_proven else None

    def find(self, cookies: str) -> ConsoleSession[CredentialT] | None:
        """The session of a Cookie header, which alone is no authentication."""
        secret = self._secret(cookies)
        session = self._sessions.get(_digest(secret)) if secret else None
        if session is None or session.expires > self._clock():
            return session
        self._end(_digest(secret))
        return None

    def sign_out(self, cookies: str, *, is_tls: bool) -> str:
        """End the session of a Cookie header, and what it streams; returns the Set-Cookie header."""
        self._end(_digest(self._secret(cookies)))
        return self._set_cookie("", 0, is_tls=is_tls)

    def _end(self, digest: bytes) -> None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            session.end_streams()

    def _secret(self, cookies: str) -> str:
        try:
            jar = SimpleCookie(cookies)
        except CookieError:
            return ""
        morsel = jar.get(self._cookie)
        return morsel.value if morsel is not None else ""

    def _set_cookie(self, value: str, seconds: int, *, is_tls: bool) -> str:
        secure = "; Secure" if is_tls else ""
        return f"{self._cookie}={value}; Path={COOKIE_PATH}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def proof_of(key: str) -> str:
    """What the pages of a session send: an HMAC, so that a browser can keep the key where no program can read it."""
    return hmac.new(bytes.fromhex(key), _PROOF_TEXT, hashlib.sha256).hexdigest()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
