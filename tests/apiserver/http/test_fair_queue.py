"""Whose request runs next. Slices have no length here, so that one request runs in each and the rest wait in order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from tests.apiserver.http.test_http_server import Peer

from torchyard.apiserver.access.authentication import MASTERS, User
from torchyard.apiserver.http.fair_queue import ConnectionShare, FairQueue, Flow, QueueFull
from torchyard.apiserver.http.limits import HttpLimits
from torchyard.apiserver.http.server import HttpServer
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response

WITHIN = 30.0
LIMITS = HttpLimits(slice_seconds=0.0)
FLOOD = 200


class Clients:
    """Sends requests of several users to a queue, and records the order in which they run."""

    def __init__(self, limits: HttpLimits = LIMITS) -> None:
        self.queue = FairQueue(limits)
        self.order: list[str] = []

    def flow(self, name: str, *groups: str) -> Flow:
        flow = self.queue.flow(User(name, groups=groups))
        flow.estimate = 0.01  # not so cheap that it runs although the slice is over
        return flow

    def send(
        self, name: str, flow: Flow, connections: int = 1, *, each: int = 1, seconds: float = 0.01
    ) -> asyncio.Task[None]:
        """Requests on so many connections, on each of them one after the other."""

        async def connection() -> None:
            share = ConnectionShare()
            for _ in range(each):
                if not self.queue.start(flow, share, time.monotonic()):
                    await self.queue.wait(flow, share)
                self.order.append(name)
                self.queue.finish(flow, share, seconds)

        async def requests() -> None:
            await asyncio.gather(*[connection() for _ in range(connections)])

        return asyncio.create_task(requests())

    async def finish(self, *tasks: asyncio.Task[None]) -> None:
        async with asyncio.timeout(WITHIN):
            await asyncio.gather(*tasks)

    async def until_waiting(self, count: int) -> None:
        async with asyncio.timeout(WITHIN):
            while self.queue.waiting < count:
                await asyncio.sleep(0)


async def test_a_user_who_asks_rarely_goes_before_the_flood_of_another() -> None:
    clients = Clients()
    flooding, asking = clients.flow("flood"), clients.flow("victim")
    flood = clients.send("flood", flooding, FLOOD)
    await clients.until_waiting(FLOOD - 10)
    for _ in range(3):
        before = len(clients.order)
        await clients.finish(clients.send("victim", asking))
        assert clients.order.index("victim", before) - before <= 10  # of two hundred
    await clients.finish(flood)
    assert Counter(clients.order) == {"flood": FLOOD, "victim": 3}


async def test_users_share_time_and_not_the_number_of_requests() -> None:
    clients = Clients()
    slow = clients.send("slow", clients.flow("slow"), 100, seconds=0.1)
    quick = clients.send("quick", clients.flow("quick"), 100, seconds=0.01)
    await clients.finish(quick)
    assert 5 <= clients.order.count("slow") <= 20  # a tenth, once the costs are known
    await clients.finish(slow)


async def test_a_connection_that_asks_rarely_goes_before_the_other_connections_of_its_user() -> None:
    clients = Clients()
    flow = clients.flow("user")
    flood = clients.send("flood", flow, 20, each=50)
    await clients.until_waiting(19)
    for _ in range(3):
        before = len(clients.order)
        await clients.finish(clients.send("victim", flow))
        assert clients.order.index("victim", before) - before <= 30  # after about one of each connection
    await clients.finish(flood)


async def test_users_whose_requests_fill_a_slice_each_take_turns() -> None:
    clients = Clients()
    names = ("a", "b", "c")
    await clients.finish(*[clients.send(name, clients.flow(name), 20) for name in names])
    for start in range(0, 60, 15):
        assert all(3 <= clients.order[start : start + 15].count(name) <= 7 for name in names), clients.order


async def test_administrators_get_eight_times_the_share_of_others_and_not_all() -> None:
    clients = Clients()
    admin = clients.send("admin", clients.flow("admin", MASTERS), 400)
    other = clients.send("other", clients.flow("other"), 100)
    await clients.finish(admin)
    assert 40 <= clients.order.count("other") <= 60
    await clients.finish(other)


async def test_idle_time_is_no_credit() -> None:
    clients = Clients()
    busy, idle = clients.flow("busy"), clients.flow("idle")
    await clients.finish(clients.send("busy", busy, 300))
    clients.order.clear()
    both = [clients.send("busy", busy, 100), clients.send("idle", idle, 100)]
    await clients.finish(*both)
    assert 40 <= clients.order[:100].count("idle") <= 60


async def test_too_many_waiting_requests_of_one_user_are_rejected_and_those_of_others_are_not() -> None:
    clients = Clients(HttpLimits(slice_seconds=0.0, queue_length=10))
    flooding, asking = clients.flow("flood"), clients.flow("victim")
    flood = clients.send("flood", flooding, 50)
    await clients.finish(clients.send("victim", asking))
    with pytest.raises(QueueFull):
        await clients.finish(flood)
    assert "victim" in clients.order
    assert clients.queue.rejected == {"queue-full": 50 - 10 - 1}


async def test_a_request_that_waits_for_too_long_is_rejected() -> None:
    clients = Clients()
    flow = clients.flow("flood")
    flood = clients.send("flood", flow, 50)
    await clients.until_waiting(40)
    clients.queue.expire(1e18)
    assert clients.queue.waiting == 0
    with pytest.raises(QueueFull):
        await clients.finish(flood)


class SlowRouter:
    """A router whose requests take the whole slice; the user is the bearer token. Records whose requests it handles."""

    def __init__(self) -> None:
        self.access_control = SimpleNamespace(
            authenticate=lambda headers, _: self._user(headers), static_user=lambda headers, _: self._user(headers)
        )
        self.aggregation = None
        self._users: dict[str, User] = {}
        self.order: list[str] = []

    def _user(self, headers: Mapping[str, str]) -> User:
        name = headers["Authorization"].removeprefix("Bearer ")
        return self._users.setdefault(name, User(name))

    def authenticate(self, _method: str, _path: str, headers: Mapping[str, str], _certificate: bytes | None) -> User:
        return self._user(headers)

    def get_stored(self, path: str, user: User, accept: str) -> None:
        return None

    async def handle(self, request: Request) -> Response:
        self.order.append(request.user.name)
        time.sleep(0.001)
        return Response(body=b"x")


async def test_the_server_answers_a_user_before_the_flood_of_another() -> None:
    router = SlowRouter()
    server = HttpServer(router, LIMITS)  # type: ignore[arg-type]
    port = await server.start("127.0.0.1", 0, None)
    peers = [Peer(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(FLOOD)]
    victim = Peer(*await asyncio.open_connection("127.0.0.1", port))
    try:
        request = b"GET /a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n"
        for peer in peers:
            await peer.send((request % b"flood") * 50)
        async with asyncio.timeout(WITHIN):
            while server.queue.waiting < FLOOD // 2:
                await asyncio.sleep(0)
        for _ in range(5):
            await victim.send(request % b"victim")
            before = len(router.order)
            assert (await victim.response())[0] == 200
            assert router.order.index("victim", before) - before < FLOOD // 4  # those that ran while it was on its way
        assert len(router.order) < FLOOD * 50, "the flood is over"
    finally:
        for peer in (*peers, victim):
            peer.close()
        await server.stop()
