"""What strangers, broken peers and careless clients send to a coordinator never changes or ends its job."""

from __future__ import annotations

import asyncio
import json
import random
import resource
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from torchyard.elastic import wire
from torchyard.elastic.coordinator.coordinator import CoordinatorConfig
from torchyard.elastic.coordinator.handshakes import Handshakes
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.coordinator.server import CoordinatorServer
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.sampler import StepSampler

TOKEN = "the-secret"
CONFIG: dict[str, Any] = {"sampler": asdict(StepSampler(records=100, micro_size=5, micro_batches=4)), "mode": "strict"}
PROOF = wire.Authentication("j", TOKEN, "w")


class Service:
    """A coordinator whose job must go on."""

    def __init__(self, server: CoordinatorServer, port: int) -> None:
        self.server, self.port = server, port

    async def exchange(self, data: bytes, *, seconds: float = 60) -> bytes:
        """Send bytes on a new connection, and return the whole response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(seconds):
                writer.write(data)
                writer.write_eof()
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def http(self, line: str, *headers: str, body: str = "", token: str | None = TOKEN) -> tuple[int, str]:
        lines = [f"{line} HTTP/1.1", *headers]
        lines += [f"Authorization: Bearer {token}"] if token is not None else []
        lines += [f"Content-Length: {len(body)}"] if body else []
        response = await self.exchange("\r\n".join([*lines, "", body]).encode())
        head, _, content = response.decode().partition("\r\n\r\n")
        return int(head.split()[1]), content

    async def check_alive(self) -> None:
        """The job has not ended, its ledger works, and a worker can join."""
        coordinator = self.server.coordinator
        coordinator.ledger_writer.flush()
        await asyncio.wrap_future(coordinator.ledger_writer.read(lambda: None))
        assert coordinator.outcome is None
        assert coordinator.ledger_writer.failure is None
        assert not any(task.done() for task in self.server._tasks), "a timer has ended"
        reply = await self.exchange(wire.encode_opening(PROOF, wire.Hello("w", config=CONFIG)))
        assert b'"welcome"' in reply
        assert b"rejection" not in reply


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    limits = WorldLimits(target_workers=1, max_workers=4)
    server = CoordinatorServer(CoordinatorConfig("j", TOKEN, tmp_path / "ledger.db", limits=limits, lease=600))
    service = Service(server, await server.start())
    yield service
    await server.close()


NUMBERS = ["99999999999999999999", "-1", "1e3", "NaN", "inf", "٣", "%D9%A3", "", "+1", "0x1", "1_0", "1" * 5000, " 1"]


@pytest.mark.parametrize("target", ["/ledger?stop=", "/ledger?start=", "/events?after="])
async def test_a_parameter_that_is_not_a_number_is_refused_and_does_not_fail_the_job(
    service: Service, target: str
) -> None:
    for number in NUMBERS:
        code, body = await service.http(f"GET {target}{number.replace(' ', '%20')}")
        assert code == 400, (number, body)
        assert "must be a number from 0" in json.loads(body)["error"] or not number
    await service.check_alive()


async def test_repeated_and_unknown_parameters_are_refused(service: Service) -> None:
    for query in ("stop=1&stop=2", "limit=1", "stop", "&&", "start=1&" * 50):
        assert (await service.http(f"GET /ledger?{query}"))[0] == 400, query
    assert (await service.http("GET /ledger?start=1&stop=4611686018427387903"))[0] == 200
    await service.check_alive()


PATHS = ["/", "/status", "/events", "/ledger", "/runtime.zip", "/scale", "/stop", "/nowhere"]


@pytest.mark.parametrize("token", [None, "", "the-secreT", "the-secret2", "ö"])
async def test_every_path_but_health_and_metrics_needs_the_token(service: Service, token: str | None) -> None:
    for path in PATHS:
        for method in ("GET", "POST", "DELETE"):
            code, body = await service.http(f"{method} {path}", body='{"workers": 3}', token=token)
            assert code == 403, (method, path)
            assert TOKEN not in body
    assert await service.http("GET /healthz", token=token) == (200, "ok\n")
    code, body = await service.http("GET /metrics", token=token)
    assert code == 200 and TOKEN not in body
    for method in ("POST", "DELETE"):
        assert (await service.http(f"{method} /metrics", token=token))[0] in (403, 405)
    assert service.server.coordinator.membership.limits.target_workers == 1
    await service.check_alive()


async def test_a_change_needs_post(service: Service) -> None:
    for path in ("/scale", "/stop"):
        assert (await service.http(f"GET {path}"))[0] == 405
        assert (await service.http(f"PUT {path}", body='{"workers": 3}'))[0] == 405
    assert (await service.http("POST /status"))[0] == 405
    assert service.server.coordinator.membership.limits.target_workers == 1
    await service.check_alive()


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        (["Content-Length: -5"], 400),
        (["Content-Length: ٥"], 400),
        (["Content-Length: 2", "Content-Length: 3"], 400),
        (["Content-Length: 99999999999"], 413),
        (["Transfer-Encoding: chunked"], 501),
        ([f"Authorization: Bearer {TOKEN}"], 400),
        (["no colon"], 400),
        ([f"X-Large: {'x' * 40_000}"], 431),
    ],
)
async def test_a_head_that_is_not_valid_is_refused(service: Service, headers: list[str], code: int) -> None:
    assert (await service.http("POST /scale", *headers))[0] == code
    await service.check_alive()


@pytest.mark.parametrize(
    "body", ["[" * 60_000, '{"workers": 1e999}', '{"workers": ' + "9" * 5000 + "}", "null", "\x00"]
)
async def test_a_body_that_is_not_valid_is_refused(service: Service, body: str) -> None:
    assert (await service.http("POST /scale", body=body))[0] == 400
    await service.check_alive()


async def test_the_body_of_a_stranger_is_not_read(service: Service) -> None:
    """The response comes although the body, which the head announces, never does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"POST /scale HTTP/1.1\r\nContent-Length: 60000\r\n\r\n")
    async with asyncio.timeout(60):
        assert b" 403 " in await reader.readline()
    writer.close()


async def test_large_frames_of_strangers_are_refused_before_they_are_read(service: Service) -> None:
    """Forty frames of 16 MB must not take 640 MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frame = (16 << 20).to_bytes(4, "big") + b"x" * (1 << 20)
    replies = await asyncio.gather(*[service.exchange(frame) for _ in range(40)])
    assert all(reply == b"" or b"larger than 4096" in reply for reply in replies)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    assert len(service.server._handshakes) == 0
    await service.check_alive()


async def test_refusals_of_strangers_do_not_fill_the_ledger(service: Service) -> None:
    stranger = wire.encode(wire.Authentication("j", "guess", "n" * 3000))
    for _ in range(50):
        assert b"BadToken" in await service.exchange(stranger)
    events = [event for event in service.server.coordinator.ledger_writer.events if event["reason"] == "Refused"]
    assert len(events) == 1
    assert len(events[0]["message"]) < 1000
    await service.check_alive()


async def test_a_name_that_cannot_be_stored_is_refused_and_does_not_fail_the_job(service: Service) -> None:
    body = json.dumps({"kind": "authentication", "job": "j", "token": "x", "name": "\ud800"}).encode()
    assert b"BadMessage" in await service.exchange(wire.LENGTH.pack(len(body)) + body)
    body = json.dumps({"kind": "hello", "name": "a\ud800", "config": CONFIG}).encode()
    assert b"BadMessage" in await service.exchange(wire.encode(PROOF) + wire.LENGTH.pack(len(body)) + body)
    await service.check_alive()


async def test_silent_connections_make_room_for_a_worker(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.server._handshakes = Handshakes(limit=5)
    monkeypatch.setattr("torchyard.elastic.coordinator.handshakes.GRACE", 0.0)
    silent = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(12)]
    while len(service.server._handshakes) < 5:
        await asyncio.sleep(0.01)
    await service.check_alive()
    async with asyncio.timeout(60):
        assert await silent[0][0].read() == b""
    for _, writer in silent:
        writer.close()


async def test_a_connection_that_does_not_authenticate_in_time_is_closed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard.elastic.coordinator.handshakes.DEADLINE", 0.05)
    for begin in (b"", b"\0", b"\0\0\0\x09part", b"GET /sta"):
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(begin)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
    monkeypatch.undo()
    await service.check_alive()


def mutate(frame: bytes, rng: random.Random) -> bytes:
    """A frame that is slightly wrong: bytes changed, values of other types, fields missing."""
    body = frame[wire.LENGTH.size :]
    if rng.random() < 0.3:
        changed = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        body = bytes(changed)
    else:
        content = json.loads(body)
        key = rng.choice(list(content))
        values: list[Any] = [None, True, -1, 1 << 63, 1 << 80, 0.5, float("nan"), float("inf"), "", "x\ud800", [], {}]
        values += [[[]], [1], [1, 2], [1, 2, 3], {"step": -1}, [["a"]], {"a": 1}, [[1 << 62, 1.0, ""]], "A" * 70_000]
        if key == "kind":
            values = list(wire._MESSAGES)
        if rng.random() < 0.1:
            del content[key]
        else:
            content[key] = rng.choice(values)
        body = json.dumps(content).encode()
    length = len(body) if rng.random() < 0.9 else rng.randrange(1 << 32)
    return wire.LENGTH.pack(length) + body


FENCE = wire.Fence(1, 1)
SAMPLES: list[wire.Message] = [
    wire.Heartbeat(1, wire.WorkerPhase.COMPUTING, 0.1),
    wire.StepsApplied(FENCE, ((1, 0.5, ""),)),
    wire.ReportProgress(FENCE, wire.WorkerProgress()),
    wire.StoreValue(FENCE, "k", "eA=="),
    wire.WorldFormed(FENCE, {"total_ms": 1.0}),
    wire.GroupFailed(FENCE, "r"),
    wire.LeaveRequest("r"),
    wire.CheckpointSaved(FENCE, 1, "p", "s"),
    wire.TrainingDone(1, "d"),
    wire.AgentEvent("Note", "m"),
    wire.WorkerExiting("w"),
    wire.Hello("w", config=CONFIG, members=("a",)),
]


@pytest.mark.parametrize("seed", range(4))
async def test_malformed_frames_end_only_their_own_connection(service: Service, seed: int) -> None:
    """With the token and without it: a frame of each kind, changed at random."""
    rng = random.Random(seed)
    for number in range(500):
        role: wire.Role = "worker" if rng.random() < 0.5 else "agent"
        hello = wire.Hello(f"w{number % 3}", role, config=CONFIG)
        opening = wire.encode_opening(PROOF, hello)
        frames = [wire.encode(message) for message in rng.sample(SAMPLES, 3)]
        match rng.randrange(4):
            case 0:
                data = mutate(wire.encode(PROOF), rng) + wire.encode(hello)
            case 1:
                data = wire.encode(PROOF) + mutate(wire.encode(hello), rng)
            case 2:
                data = opening + b"".join(mutate(frame, rng) for frame in frames)
            case _:
                data = rng.randbytes(rng.randint(0, 200))
        await service.exchange(data)
    coordinator = service.server.coordinator
    assert coordinator.ledger_writer.failure is None
    if coordinator.outcome is not None:  # "TrainingDone" of the only worker is a message like any other
        assert coordinator.outcome.cause == "finished"
        return
    await service.check_alive()


def test_a_decoded_message_has_the_types_of_its_class() -> None:
    rng = random.Random(5)
    for _ in range(20_000):
        frame = mutate(wire.encode(rng.choice([*SAMPLES, PROOF])), rng)
        try:
            message = wire.decode(frame[wire.LENGTH.size :])
        except ElasticError as error:
            assert error.code == "BadMessage"
            error.message.encode()
        else:
            assert wire.decode(wire.encode(message)[wire.LENGTH.size :]) == message


@pytest.mark.parametrize(
    "sampler", [None, [], {}, {"records": 1}, {"records": "x", "micro_size": 1}, {"records": 1 << 90, "micro_size": 1}]
)
async def test_a_worker_without_a_valid_sampler_is_refused(service: Service, sampler: Any) -> None:
    hello = wire.Hello("w", config={"sampler": sampler, "mode": "strict"})
    assert b"rejection" in await service.exchange(wire.encode_opening(PROOF, hello))
    await service.check_alive()


async def test_a_step_that_the_job_does_not_have_is_refused(service: Service) -> None:
    """The ledger would count up to it, which takes for ever."""
    progress = wire.WorkerProgress(FENCE, 1 << 40, live=True)
    hello = wire.Hello("w", config=CONFIG, progress=progress)
    assert b"rejection" in await service.exchange(wire.encode_opening(PROOF, hello))
    opening = wire.encode_opening(PROOF, wire.Hello("w", config=CONFIG))
    for message in (
        wire.StepsApplied(wire.NO_FENCE, ((1 << 40, 0.0, ""),)),
        wire.ReportProgress(FENCE, progress),
        wire.TrainingDone(1 << 40, "d"),
    ):
        await service.exchange(opening + wire.encode(message))
    refused = [event for event in service.server.coordinator.ledger_writer.events if event["reason"] == "Refused"]
    assert [event["facts"]["code"] for event in refused] == ["BadMessage"] * 4
    assert service.server.coordinator.membership.step == 0
    await service.check_alive()


async def test_long_names_and_reasons_do_not_reach_the_other_workers(service: Service) -> None:
    """A message to all workers that none of them accepts would end the job."""
    for hello in (wire.Hello("w" * 300, config=CONFIG), wire.Hello("w", config=CONFIG, members=("m" * 300,))):
        assert b"characters, not 253" in await service.exchange(wire.encode_opening(PROOF, hello))
    opening = wire.encode_opening(PROOF, wire.Hello("w", config=CONFIG))
    await service.exchange(opening + wire.encode(wire.LeaveRequest("r" * 60_000)))
    events = service.server.coordinator.ledger_writer.events
    assert max(len(event["message"]) for event in events if event["reason"] == "WorkerLeaving") < 1000
    await service.check_alive()


def test_a_job_without_a_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ElasticError, match="has no token"):
        CoordinatorServer(CoordinatorConfig("j", "", tmp_path / "ledger.db"))


def test_the_token_is_not_part_of_what_is_printed(tmp_path: Path) -> None:
    settings = CoordinatorConfig("j", TOKEN, tmp_path / "ledger.db")
    assert TOKEN not in repr(settings)
    assert TOKEN not in repr(PROOF)
