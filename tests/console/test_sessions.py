"""Codes and sessions end when they should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import pytest

from torchyard.api.errors import StatusError
from torchyard.console import multiplex
from torchyard.console import sessions as module
from torchyard.console.request import ConsoleBackend, ConsoleRequest, ConsoleResponse, KubernetesRequest
from torchyard.console.sessions import CODE_SECONDS, SESSION_SECONDS, ConsoleSessions, proof_of


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def sign_in(sessions: ConsoleSessions[str], credential: str = "alice") -> str:
    header = sessions.sign_in(sessions.issue_code(credential), is_tls=True).cookie
    return header.partition(";")[0]


def test_a_cookie_is_for_the_console_alone_and_no_script_can_read_it() -> None:
    sessions: ConsoleSessions[str] = ConsoleSessions("c")
    header = sessions.sign_in(sessions.issue_code("alice"), is_tls=True).cookie
    assert header.split("; ")[1:] == ["Path=/console", "Max-Age=43200", "HttpOnly", "SameSite=Strict", "Secure"]
    assert "Secure" not in sessions.sign_in(sessions.issue_code("alice"), is_tls=False).cookie


def test_a_cookie_without_the_proof_of_its_own_session_authenticates_nobody() -> None:
    sessions: ConsoleSessions[str] = ConsoleSessions("c")
    alice, bob = (sessions.sign_in(sessions.issue_code(name), is_tls=True) for name in ("alice", "bob"))
    cookies = [session.cookie.partition(";")[0] for session in (alice, bob)]
    assert alice.key != bob.key and len(bytes.fromhex(alice.key)) == 32
    session = sessions.authenticate(cookies[0], proof_of(alice.key))
    assert session is not None and session.credential == "alice"
    for cookie, proof in (
        (cookies[0], ""),
        (cookies[0], alice.key),
        (cookies[0], proof_of(bob.key)),
        (cookies[1], proof_of(alice.key)),
        ("", proof_of(alice.key)),
    ):
        assert sessions.authenticate(cookie, proof) is None
    assert alice.key not in repr(session) and "proof" not in repr(session)


def test_a_code_is_used_once_and_expires() -> None:
    clock = Clock()
    sessions: ConsoleSessions[str] = ConsoleSessions("c", clock=clock)
    code, late = sessions.issue_code("alice"), sessions.issue_code("alice")
    sessions.sign_in(code, is_tls=True)
    clock.now += CODE_SECONDS
    for unusable in (code, late, "", "made-up"):
        with pytest.raises(StatusError, match="one-time code") as raised:
            sessions.sign_in(unusable, is_tls=True)
        assert raised.value.status == 401


def test_unused_codes_are_limited_and_expired_ones_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CODES", 2)
    clock = Clock()
    sessions: ConsoleSessions[str] = ConsoleSessions("c", clock=clock)
    sessions.issue_code("alice")
    sessions.issue_code("alice")
    with pytest.raises(StatusError, match="too many"):
        sessions.issue_code("alice")
    sessions.issue_code("bob")  # others have their own
    clock.now += CODE_SECONDS
    sessions.issue_code("alice")


def test_a_session_ends_by_time_by_sign_out_and_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 1)
    clock = Clock()
    sessions: ConsoleSessions[str] = ConsoleSessions("c", clock=clock)
    first, second, third = sign_in(sessions), sign_in(sessions, "bob"), sign_in(sessions)
    assert sessions.find(first) is None
    session = sessions.find(f"other=1; {second}")
    assert session is not None and session.credential == "bob"
    assert sessions.sign_out(second, is_tls=False) == "c=; Path=/console; Max-Age=0; HttpOnly; SameSite=Strict"
    assert sessions.find(second) is None
    clock.now += SESSION_SECONDS
    assert sessions.find(third) is None


@pytest.mark.parametrize("cookies", ["", "c", "c=", "c=\x00", "c=1; c=2", "=;=;", "c=" + "x" * 5000])
def test_a_malformed_cookie_belongs_to_no_session(cookies: str) -> None:
    sessions: ConsoleSessions[str] = ConsoleSessions("c")
    sign_in(sessions)
    assert sessions.find(cookies) is None


async def test_what_a_session_streams_ends_with_it() -> None:
    sessions: ConsoleSessions[str] = ConsoleSessions("c")
    cookie = sign_in(sessions)
    session = sessions.find(cookie)
    assert session is not None
    is_closed = asyncio.Event()

    async def chunks() -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            is_closed.set()

    async def read() -> None:
        async for _ in session.stream(chunks()):
            has_begun.set()

    has_begun = asyncio.Event()
    reader = asyncio.create_task(read())
    await has_begun.wait()
    sessions.sign_out(cookie, is_tls=True)
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert is_closed.is_set()


async def test_one_users_pages_do_not_count_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    class Backend:
        async def kubernetes(self, caller: str, request: KubernetesRequest) -> ConsoleResponse:
            raise NotImplementedError

    monkeypatch.setattr(multiplex, "MAX_RESPONSES", 1)
    hub: multiplex.StreamHub[str] = multiplex.StreamHub(
        cast(ConsoleBackend[str], Backend()), lambda caller: caller.partition("/")[0]
    )
    request = ConsoleRequest("POST", "/streams", "", {}, b"", is_tls=True)
    body = (await hub.handle(request, "alice/1")).body
    assert not isinstance(body, bytes)
    async with aclosing(body) as chunks:
        await anext(chunks)
        with pytest.raises(StatusError, match="too many pages"):
            await hub.handle(request, "alice/2")
        assert (await hub.handle(request, "bob/1")).status == 200
