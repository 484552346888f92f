"""Election by a Lease, on a server of our own: one acts, the next takes over, nobody acts without the lease."""

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

TERMS = LeaderElectionConfig(duration=1.0, deadline=0.7, renew=0.1, retry=0.05)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False)) as plane:
        yield plane.client("test")


def election(client: Client, identity: str) -> LeaderElector:
    return LeaderElector(client, name="boss", namespace="default", identity=identity, terms=TERMS)


class Copy:
    """One contender: `acts` is set while it leads."""

    def __init__(self, client: Client, identity: str) -> None:
        self.election = election(client, identity)
        self.acts, self.idle = asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self.election.run(self._lead))

    async def _lead(self) -> None:
        self.acts.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.acts.clear()
            self.idle.set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_one_leads_and_the_next_begins_when_it_gives_the_lease_back(client: Client) -> None:
    first = Copy(client, "first")
    await first.acts.wait()
    second = Copy(client, "second")
    await asyncio.sleep(5 * TERMS.retry)
    assert not second.acts.is_set() and second.election.leader == "first"
    await first.stop()
    await second.acts.wait()
    lease = await client.get(LEASES, "boss", "default")
    assert lease["spec"]["holderIdentity"] == "second" and lease["spec"]["leaseTransitions"] == 1
    await second.stop()


async def test_a_leader_that_is_heard_of_no_more_is_replaced(client: Client) -> None:
    await election(client, "dead")._take()
    heir = Copy(client, "heir")
    await heir.acts.wait()
    assert heir.election.is_leader
    await heir.stop()


async def test_a_leader_whose_lease_is_taken_stops_acting(client: Client) -> None:
    leader = Copy(client, "leader")
    await leader.acts.wait()
    while True:
        lease = await client.get(LEASES, "boss", "default")
        lease["spec"]["holderIdentity"] = "usurper"
        try:
            await client.update(LEASES, lease)
        except Exception as error:  # the leader renewed just then
            assert getattr(error, "status", 0) == 409
            continue
        break
    await leader.idle.wait()
    assert leader.election.leader == "usurper" and not leader.acts.is_set()
    await leader.acts.wait()  # the usurper is never heard of again
    await leader.stop()


async def test_a_leader_that_cannot_renew_in_time_stops_acting(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Copy(client, "leader")
    await leader.acts.wait()

    async def silence(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as broken:
        broken.setattr(client, "find", silence)
        broken.setattr(client, "update", silence)
        await leader.idle.wait()
    assert not leader.election.is_leader
    await leader.stop()


async def test_an_error_of_the_work_is_the_elections_and_the_lease_is_given_back(client: Client) -> None:
    async def fails() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await election(client, "one").run(fails)
    assert (await client.get(LEASES, "boss", "default"))["spec"]["holderIdentity"] == ""
