"""The coordinator over real sockets, with scripted workers instead of training ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from torchyard.elastic import wire
from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.coordinator.server import Coordinator, CoordinatorConfig
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

ORDER = StepSampler(records=100, micro_size=5, micro_batches=4)
CONFIG: dict[str, Any] = {"order": asdict(ORDER), "mode": "strict", "threads": 1}


class Script:
    """A worker that says what the test tells it to."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.standing = WorkerProgress()

    async def connect(self, **changes: Any) -> Script:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.say(Hello(**({"job": "j", "token": "t", "name": self.name, "config": CONFIG} | changes)))
        return self

    def say(self, message: Message) -> None:
        self.writer.write(wire.encode(message))

    async def hear(self) -> Message:
        async with asyncio.timeout(120):
            return await wire.receive(self.reader)

    async def until(self, kind: type[Any]) -> Any:
        while not isinstance(message := await self.hear(), kind):
            pass
        return message

    async def take_place(self) -> StartWorld:
        """Answer every call to re-form until a world has begun."""
        while True:
            message = await self.hear()
            if isinstance(message, StartRendezvous):
                self.say(ReportProgress(message.fence, self.standing))
            elif isinstance(message, StartWorld):
                self.standing = WorkerProgress(message.fence, message.step, live=True)
                return message

    async def leave(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0

    async def open(self, *, want: int = 1, lease: float = 30.0) -> None:
        limits = WorldLimits(want=want, most=4)
        settings = CoordinatorConfig(
            "j", "t", self.folder / "ledger.db", port=self.port, limits=limits, lease=lease, return_within=300
        )
        self.coordinator = Coordinator(settings)
        self.port = await self.coordinator.start()

    async def worker(self, name: str, **changes: Any) -> Script:
        return await Script(name, self.port).connect(**changes)

    async def reached(self, step: int) -> dict[str, Any]:
        """The status, once it tells of this step."""
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
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    await stage.coordinator.close()


async def test_two_workers_form_a_world_and_are_relayed_to_each_other(stage: Stage) -> None:
    await stage.open(want=2)
    first, second = await stage.worker("a"), await stage.worker("b")
    (go, same) = await asyncio.gather(first.take_place(), second.take_place())
    assert go == same
    assert go.members == ("a", "b")
    first.say(wire.StoreValue(go.fence, "0", "dmFsdWU="))
    assert (await second.until(wire.StoreValue)).value == "dmFsdWU="
    await first.leave()
    await second.leave()


async def test_a_closed_connection_is_a_death_and_the_survivor_goes_on(stage: Stage) -> None:
    await stage.open(want=2)
    first, second = await stage.worker("a"), await stage.worker("b")
    await asyncio.gather(first.take_place(), second.take_place())
    first.standing = WorkerProgress(first.standing.fence, 7, live=True)
    await second.leave()
    go = await first.take_place()
    assert (go.members, go.step) == (("a",), 7)
    await first.leave()


async def test_a_worker_that_its_agent_saw_end_is_lost_though_its_connection_is_open(stage: Stage) -> None:
    await stage.open(want=2)
    agent = await Script("node", stage.port).connect(role="agent", node="node")
    first, second = await stage.worker("node-0"), await stage.worker("node-1")
    await asyncio.gather(first.take_place(), second.take_place())
    agent.say(wire.WorkerExiting("node-1"))
    agent.say(wire.WorkerExiting("node-1"))
    assert (await first.take_place()).members == ("node-0",)
    lost = [event for event in (await stage.http("GET /events"))[1] if event["reason"] == "WorkerLost"]
    assert [event["message"] for event in lost] == ["node-1 died (its agent saw it end)"]
    for script in (agent, first, second):
        await script.leave()


async def test_where_the_time_of_a_recovery_went_is_told_from_detection_to_the_first_step(stage: Stage) -> None:
    await stage.open(want=2)
    first, second = await stage.worker("a"), await stage.worker("b")
    await asyncio.gather(first.take_place(), second.take_place())
    await second.leave()
    go = await first.take_place()
    first.say(wire.WorldFormed(go.fence, {"agree_ms": 2.0, "form_ms": 3.0, "total_ms": 5.0}))
    first.say(StepsApplied(go.fence, ((1, 0.5, ""),)))
    while not (told := [e for e in (await stage.http("GET /events"))[1] if e["reason"] == "WorldFormed"]):
        await asyncio.sleep(0.01)
    assert list(told[0]["facts"]) == ["detect_ms", "agree_ms", "form_ms", "total_ms"]
    await first.leave()


async def test_silence_longer_than_the_lease_is_a_death(stage: Stage) -> None:
    await stage.open(want=1, lease=0.3)
    hung = await stage.worker("a")
    await hung.take_place()
    stop = await hung.until(Stop)
    assert stop.why == "expelled"
    await hung.leave()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token": "guess"}, "BadToken"),
        ({"job": "other"}, "OtherJob"),
        ({"version": 99}, "OtherVersion"),
        ({"config": CONFIG | {"mode": "fast"}}, "ConfigChanged"),
        (
            {"config": CONFIG | {"order": asdict(StepSampler(records=99, micro_size=5, micro_batches=4))}},
            "OrderChanged",
        ),
    ],
)
async def test_a_worker_that_does_not_belong_is_refused_with_advice(
    stage: Stage, changes: dict[str, Any], code: str
) -> None:
    await stage.open()
    rightful = await stage.worker("a")
    await rightful.take_place()
    stranger = await stage.worker("b", **changes)
    refusal = await stranger.until(Rejection)
    assert refusal.code == code
    assert refusal.hint
    await rightful.leave()
    await stranger.leave()


async def test_a_restarted_coordinator_adopts_the_world_and_fills_the_ledger(stage: Stage) -> None:
    await stage.open()
    worker = await stage.worker("a")
    go = await worker.take_place()
    worker.say(StepsApplied(go.fence, ((1, 0.5, ""),)))
    await stage.reached(1)
    await stage.coordinator.close()
    await worker.leave()
    await stage.open()
    back = await stage.worker("a", standing=WorkerProgress(go.fence, 3, live=True), running=True, members=("a",))
    assert isinstance(await back.hear(), Welcome)
    back.say(StepsApplied(go.fence, ((2, 0.4, ""), (3, 0.3, ""))))
    body = await stage.reached(3)
    assert (body["phase"], body["step"], body["incarnation"]) == ("Running", 3, 2)
    back.say(wire.TrainingDone(ORDER.steps, "d"))
    assert (await back.until(Stop)).why == "finished"
    rows = (await stage.http("GET /ledger"))[1]
    assert [row["step"] for row in rows] == list(range(1, ORDER.steps + 1))
    await back.leave()


async def test_rows_of_an_older_world_are_ignored(stage: Stage) -> None:
    await stage.open()
    worker = await stage.worker("a")
    await worker.take_place()
    worker.say(StepsApplied(Fence(0, 9), ((1, 0.5, ""),)))
    worker.say(wire.LeaveRequest("to show that what came before was heard"))
    while "WorkerLeaving" not in [event["reason"] for event in (await stage.http("GET /events"))[1]]:
        await asyncio.sleep(0.01)
    stage.coordinator.scribe.flush()
    assert (await stage.http("GET /ledger"))[1] == []
    assert (await stage.http("GET /status"))[1]["step"] == 0
    await worker.leave()


async def test_the_same_records_failing_on_two_workers_fail_the_job(stage: Stage) -> None:
    await stage.open(want=2)
    first, second = await stage.worker("a"), await stage.worker("b")
    await asyncio.gather(first.take_place(), second.take_place())
    failed = wire.ProgramFailed(1, 2, (40, 41), "ValueError: spoilt", "Traceback ...")
    first.say(failed)
    await first.leave()
    await second.take_place()
    second.say(failed)
    stop = await second.until(Stop)
    assert stop.why == "failed"
    assert "ValueError: spoilt on a and b" in stop.message
    assert "[40, 41]" in stop.message
    await second.leave()


async def test_http_tells_scales_and_refuses(stage: Stage) -> None:
    await stage.open()
    assert await stage.http("GET /healthz") == (200, "ok\n")
    assert (await stage.http("POST /scale", '{"workers": 3}'))[1] == {"workers": 3}
    assert (await stage.http("POST /scale", '{"workers": 3}', token="guess"))[0] == 403
    status, body = await stage.http("POST /scale", '{"workers": 9}')
    assert (status, body["hint"]) == (422, "choose 1 to 4, in multiples of 1")
    assert (await stage.http("GET /nowhere"))[0] == 404
    for nonsense in ("nonsense", "{}", "[]", '{"workers": "three"}', '{"workers": true}'):
        assert (await stage.http("POST /scale", nonsense))[0] == 400, nonsense
    metrics = (await stage.http("GET /metrics"))[1]
    assert 'torchyard_elastic_workers_wanted{job="j"} 3' in metrics
    events = (await stage.http("GET /events"))[1]
    assert [event["reason"] for event in events] == ["Scaled"]
