"""Leader election on an embedded server: one candidate leads, the next takes over, none leads without the lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from torchyard.api.gvr import LEASES
from torchyard.kube.client import Client
from torchyard.kube.leader_election import LeaderElectionConfig, LeaderElector
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

CONFIG = LeaderElectionConfig(duration=1.0, deadline=0.7, renew=0.1, retry=0.05)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)) as plane:
        yield plane.client("test")


def elector(client: Client, identity: str) -> LeaderElector:
    return LeaderElector(client, name="lease", namespace="default", identity=identity, config=CONFIG)


class Candidate:
    """`leading` is set while it leads, `stopped` once it has stopped leading."""

    def __init__(self, client: Client, identity: str) -> None:
        self.elector = elector(client, identity)
        self.leading, self.stopped = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self.elector.run(self._lead))

    async def _lead(self) -> None:
        self.leading.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.leading.clear()
            self.stopped.set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_the_next_candidate_leads_after_the_leader_releases_the_lease(client: Client) -> None:
    first = Candidate(client, "first")
    await first.leading.wait()
    second = Candidate(client, "second")
    while second.elector.leader != "first":
        await asyncio.sleep(CONFIG.retry / 10)
    assert not second.leading.is_set()
    await first.stop()
    await second.leading.wait()
    lease = await client.get(LEASES, "lease", "default")
    assert lease["spec"]["holderIdentity"] == "second" and lease["spec"]["leaseTransitions"] == 1
    await second.stop()


async def test_an_expired_leader_is_replaced(client: Client) -> None:
    await elector(client, "crashed")._acquire_or_renew()
    successor = Candidate(client, "successor")
    await successor.leading.wait()
    assert successor.elector.is_leader
    await successor.stop()


async def test_a_leader_that_lost_its_lease_stops(client: Client) -> None:
    leader = Candidate(client, "leader")
    await leader.leading.wait()
    while True:
        lease = await client.get(LEASES, "lease", "default")
        lease["spec"]["holderIdentity"] = "other"
        try:
            await client.update(LEASES, lease)
        except Exception as error:  # the leader renewed just then
            assert getattr(error, "status", 0) == 409
            continue
        break
    await leader.stopped.wait()
    assert leader.elector.leader == "other" and not leader.leading.is_set()
    await leader.leading.wait()  # the other holder does not renew
    await leader.stop()


async def test_a_leader_that_cannot_renew_in_time_stops(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Candidate(client, "leader")
    await leader.leading.wait()

    async def silence(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as broken:
        broken.setattr(client, "find", silence)
        broken.setattr(client, "update", silence)
        await leader.stopped.wait()
    assert not leader.elector.is_leader
    await leader.stop()


async def test_an_error_of_the_leader_is_raised_and_the_lease_is_released(client: Client) -> None:
    async def fails() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await elector(client, "only").run(fails)
    assert (await client.get(LEASES, "lease", "default"))["spec"]["holderIdentity"] == ""
