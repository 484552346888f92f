"""The coordinator over real sockets, with scripted workers instead of training ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from torchyard.elastic import wire
from torchyard.elastic.coordinator.coordinator import CoordinatorConfig
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.coordinator.server import CoordinatorServer
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.wire import (
    Fence,
    Hello,
    Message,
    Rejection,
    ReportProgress,
    StartRendezvous,
    StartWorld,
    StepsApplied,
    Stop,
    Welcome,
    WorkerProgress,
)

SAMPLER = StepSampler(records=100, micro_size=5, micro_batches=4)
CONFIG: dict[str, Any] = {"sampler": asdict(SAMPLER), "mode": "strict", "threads": 1}


class ScriptedWorker:
    """A worker that sends the messages of a test."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.progress = WorkerProgress()

    async def connect(self, **changes: Any) -> ScriptedWorker:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        proof = {"job": "j", "token": "t", "name": self.name} | changes
        self.send(
            wire.Authentication(**{key: proof[key] for key in ("job", "token", "name", "version") if key in proof})
        )
        hello = {"name": self.name, "config": CONFIG} | changes
        self.send(Hello(**{key: value for key, value in hello.items() if key not in ("job", "token", "version")}))
        return self

    def send(self, message: Message) -> None:
        self.writer.write(wire.encode(message))

    async def receive(self) -> Message:
        async with asyncio.timeout(120):
            return await wire.receive(self.reader)

    async def receive_until(self, kind: type[Any]) -> Any:
        while not isinstance(message := await self.receive(), kind):
            pass
        return message

    async def enter_world(self) -> StartWorld:
        """Report to every rendezvous until a world starts."""
        while True:
            message = await self.receive()
            if isinstance(message, StartRendezvous):
                self.send(ReportProgress(message.fence, self.progress))
            elif isinstance(message, StartWorld):
                self.progress = WorkerProgress(message.fence, message.step, live=True)
                return message

    async def leave(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


class CoordinatorFixture:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0

    async def open(self, *, target_workers: int = 1, lease: float = 30.0) -> None:
        limits = WorldLimits(target_workers=target_workers, max_workers=4)
        settings = CoordinatorConfig(
            "j", "t", self.folder / "ledger.db", port=self.port, limits=limits, lease=lease, return_within=300
        )
        self.server = CoordinatorServer(settings)
        self.port = await self.server.start()

    async def worker(self, name: str, **changes: Any) -> ScriptedWorker:
        return await ScriptedWorker(name, self.port).connect(**changes)

    async def wait_for_step(self, step: int) -> dict[str, Any]:
        """Return the status once it has this step."""
        async with asyncio.timeout(120):
            while (status := (await self.http("GET /status"))[1])["step"] < step:
                await asyncio.sleep(0.01)
        return dict(status)

    async def http(self, request: str, body: str = "", token: str = "t") -> tuple[int, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"{request} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        writer.write(head.encode())
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        top, _, content = answer.partition("\r\n\r\n")
        return int(top.split()[1]), json.loads(content) if "json" in top else content


@pytest.fixture
async def fixture(tmp_path: Path) -> AsyncIterator[CoordinatorFixture]:
    fixture = CoordinatorFixture(tmp_path)
    yield fixture
    await fixture.server.close()


async def test_two_workers_form_a_world_and_store_values_are_relayed(fixture: CoordinatorFixture) -> None:
    await fixture.open(target_workers=2)
    first, second = await fixture.worker("a"), await fixture.worker("b")
    (start, same) = await asyncio.gather(first.enter_world(), second.enter_world())
    assert start == same
    assert start.members == ("a", "b")
    first.send(wire.StoreValue(start.fence, "0", "dmFsdWU="))
    assert (await second.receive_until(wire.StoreValue)).value == "dmFsdWU="
    await first.leave()
    await second.leave()


async def test_a_closed_connection_removes_the_worker_and_the_survivor_continues(fixture: CoordinatorFixture) -> None:
    await fixture.open(target_workers=2)
    first, second = await fixture.worker("a"), await fixture.worker("b")
    await asyncio.gather(first.enter_world(), second.enter_world())
    first.progress = WorkerProgress(first.progress.fence, 4, live=True)
    await second.leave()
    start = await first.enter_world()
    assert (start.members, start.step) == (("a",), 4)
    await first.leave()


async def test_a_worker_that_its_agent_reports_as_exiting_is_lost_while_its_connection_is_open(
    fixture: CoordinatorFixture,
) -> None:
    await fixture.open(target_workers=2)
    agent = await ScriptedWorker("node", fixture.port).connect(role="agent", node="node")
    first, second = await fixture.worker("node-0"), await fixture.worker("node-1")
    await asyncio.gather(first.enter_world(), second.enter_world())
    agent.send(wire.WorkerExiting("node-1"))
    agent.send(wire.WorkerExiting("node-1"))
    assert (await first.enter_world()).members == ("node-0",)
    lost = [event for event in (await fixture.http("GET /events"))[1] if event["reason"] == "WorkerLost"]
    assert [event["message"] for event in lost] == ["node-1 died (its agent saw it end)"]
    for script in (agent, first, second):
        await script.leave()


async def test_recovery_durations_are_reported_from_detection_to_the_first_step(fixture: CoordinatorFixture) -> None:
    await fixture.open(target_workers=2)
    first, second = await fixture.worker("a"), await fixture.worker("b")
    await asyncio.gather(first.enter_world(), second.enter_world())
    await second.leave()
    start = await first.enter_world()
    first.send(wire.WorldFormed(start.fence, {"agree_ms": 2.0, "form_ms": 3.0, "total_ms": 5.0}))
    first.send(StepsApplied(start.fence, ((1, 0.5, ""),)))
    while not (events := [e for e in (await fixture.http("GET /events"))[1] if e["reason"] == "WorldFormed"]):
        await asyncio.sleep(0.01)
    assert list(events[0]["facts"]) == ["detect_ms", "agree_ms", "form_ms", "total_ms"]
    await first.leave()


async def test_a_worker_without_heartbeats_is_expelled_after_its_lease(fixture: CoordinatorFixture) -> None:
    await fixture.open(target_workers=1, lease=0.3)
    hung = await fixture.worker("a")
    await hung.enter_world()
    stop = await hung.receive_until(Stop)
    assert stop.cause == "expelled"
    await hung.leave()


async def test_a_worker_that_was_only_slow_extends_the_lease(fixture: CoordinatorFixture) -> None:
    await fixture.open(target_workers=1, lease=0.3)
    slow = await fixture.worker("a", pid=7)
    await slow.receive_until(Stop)
    await slow.leave()
    again = await fixture.worker("a", pid=7)
    await again.enter_world()
    events = (await fixture.http("GET /events"))[1]
    extended = [event["message"] for event in events if event["reason"] == "LeaseExtended"]
    assert extended == ["a was not dead but slow: the lease is now 0.6 s"]
    await again.leave()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token": "guess"}, "BadToken"),
        ({"job": "other"}, "OtherJob"),
        ({"version": 99}, "OtherVersion"),
        ({"config": CONFIG | {"mode": "fast"}}, "ConfigChanged"),
        (
            {"config": CONFIG | {"sampler": asdict(StepSampler(records=99, micro_size=5, micro_batches=4))}},
            "OrderChanged",
        ),
    ],
)
async def test_a_worker_of_another_job_or_configuration_is_refused_with_a_hint(
    fixture: CoordinatorFixture, changes: dict[str, Any], code: str
) -> None:
    await fixture.open()
    accepted = await fixture.worker("a")
    await accepted.enter_world()
    stranger = await fixture.worker("b", **changes)
    rejection = await stranger.receive_until(Rejection)
    assert rejection.code == code
    assert rejection.hint
    await accepted.leave()
    await stranger.leave()


async def test_a_restarted_coordinator_adopts_the_world_and_fills_the_ledger(fixture: CoordinatorFixture) -> None:
    await fixture.open()
    worker = await fixture.worker("a")
    start = await worker.enter_world()
    worker.send(StepsApplied(start.fence, ((1, 0.5, ""),)))
    await fixture.wait_for_step(1)
    await fixture.server.close()
    await worker.leave()
    await fixture.open()
    back = await fixture.worker("a", progress=WorkerProgress(start.fence, 3, live=True), running=True, members=("a",))
    assert isinstance(await back.receive(), Welcome)
    back.send(StepsApplied(start.fence, ((2, 0.4, ""), (3, 0.3, ""))))
    body = await fixture.wait_for_step(3)
    assert (body["phase"], body["step"], body["incarnation"]) == ("Running", 3, 2)
    back.send(wire.TrainingDone(SAMPLER.steps, "d"))
    assert (await back.receive_until(Stop)).cause == "finished"
    rows = (await fixture.http("GET /ledger"))[1]
    assert [row["step"] for row in rows] == list(range(1, SAMPLER.steps + 1))
    await back.leave()


async def test_rows_of_an_older_world_are_ignored(fixture: CoordinatorFixture) -> None:
    await fixture.open()
    worker = await fixture.worker("a")
    await worker.enter_world()
    worker.send(StepsApplied(Fence(0, 9), ((1, 0.5, ""),)))
    worker.send(wire.LeaveRequest("marks that the earlier message was handled"))
    while "WorkerLeaving" not in [event["reason"] for event in (await fixture.http("GET /events"))[1]]:
        await asyncio.sleep(0.01)
    fixture.server.coordinator.ledger_writer.flush()
    assert (await fixture.http("GET /ledger"))[1] == []
    assert (await fixture.http("GET /status"))[1]["step"] == 0
    await worker.leave()


async def test_the_same_records_failing_on_two_workers_fail_the_job(fixture: CoordinatorFixture) -> None:
    await fixture.open(target_workers=2)
    first, second = await fixture.worker("a"), await fixture.worker("b")
    await asyncio.gather(first.enter_world(), second.enter_world())
    failed = wire.ProgramFailed(1, 2, (40, 41), "ValueError: spoilt", "Traceback ...")
    first.send(failed)
    await first.leave()
    await second.enter_world()
    second.send(failed)
    stop = await second.receive_until(Stop)
    assert stop.cause == "failed"
    assert "ValueError: spoilt on a and b" in stop.message
    assert "[40, 41]" in stop.message
    await second.leave()


async def test_http_reports_status_scales_and_refuses(fixture: CoordinatorFixture) -> None:
    await fixture.open()
    assert await fixture.http("GET /healthz") == (200, "ok\n")
    assert (await fixture.http("POST /scale", '{"workers": 3}'))[1] == {"workers": 3}
    assert (await fixture.http("POST /scale", '{"workers": 3}', token="guess"))[0] == 403
    status, reply = await fixture.http("POST /scale", '{"workers": 9}')
    assert (status, reply["hint"]) == (422, "choose 1 to 4, in multiples of 1")
    assert (await fixture.http("GET /nowhere"))[0] == 404
    for body in ("nonsense", "{}", "[]", '{"workers": "three"}', '{"workers": true}'):
        assert (await fixture.http("POST /scale", body))[0] == 400, body
    metrics = (await fixture.http("GET /metrics"))[1]
    assert 'torchyard_elastic_workers_wanted{job="j"} 3' in metrics
    assert (await fixture.http("GET /metrics", token="guess"))[0] == 200, "Prometheus does not know the tokens of jobs"
    for request in ("POST /metrics", "GET /metrics/", "GET /status", "GET /events", "GET /ledger", "GET /runtime.zip"):
        assert (await fixture.http(request, token="guess"))[0] == 403, request
    events = (await fixture.http("GET /events"))[1]
    assert [event["reason"] for event in events] == ["Scaled"]


async def test_in_a_pod_events_are_lines_of_the_log(
    fixture: CoordinatorFixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await fixture.open(target_workers=1)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("TORCHYARD_ELASTIC_JOB", "default/mnist")
    worker = await fixture.worker("a")
    await worker.enter_world()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("elastic: WorkerJoined a joined [")
    begun = next(line for line in lines if line.startswith("elastic: WorldBegan 1 workers from step 0"))
    assert "[workers 1, generation 1, step 0," in begun
    await worker.leave()


async def test_a_closed_coordinator_closes_connections_that_have_not_authenticated(fixture: CoordinatorFixture) -> None:
    await fixture.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", fixture.port)
    async with asyncio.timeout(120):
        while not len(fixture.server._handshakes):
            await asyncio.sleep(0.01)
        await fixture.server.close()
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    await fixture.open()


async def test_a_connection_that_is_accepted_while_the_coordinator_closes_is_closed(
    fixture: CoordinatorFixture,
) -> None:
    """A worker connects while the event loop is busy, and the coordinator closes right after."""
    await fixture.open()
    loop = asyncio.get_running_loop()
    with socket.socket() as worker:
        worker.settimeout(30)
        closing = loop.create_future()

        def close_after_connecting() -> None:
            loop.call_soon(lambda: closing.set_result(loop.create_task(fixture.server.close())))
            worker.connect(("127.0.0.1", fixture.port))

        loop.call_soon(close_after_connecting)
        await (await closing)
        with contextlib.suppress(ConnectionResetError):  # closed, or never accepted
            assert await asyncio.to_thread(worker.recv, 1) == b""
    await fixture.open()  # the fixture closes it
