"""The plane is killed again and again while workloads pass through its queues: no quota leaks, nothing runs twice."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import queues
from tests.support.effort import FULL, rounds
from tests.support.yard import Yard

from torchyard.api.conditions import has_true_condition, is_true
from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.controllers.queue.gvr import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, WORKLOADS
from torchyard.kube.client import Client, Unreachable
from torchyard.kube.http import HttpTransport
from torchyard.kube.informer import Informer
from torchyard.kube.kubeconfig import load as connection_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200 if FULL else 300)]

Object = dict[str, Any]
QUEUES, QUOTA = 6, 40
AT_ONCE = 16
# As Kueue's own test has them: many small, some medium, few large.
SIZES = (1, 1, 1, 1, 1, 1, 1, 5, 5, 20)


class Load:
    """Creates workloads, ends each as soon as it is admitted, and watches that all of them stay within the quota."""

    def __init__(self, client: Client, total: int) -> None:
        self.client, self.total = client, total
        self.held: dict[str, int] = {}
        self.ended: set[str] = set()
        self.problems: list[str] = []
        self.over = asyncio.Event()
        self._to_end: asyncio.Queue[str] = asyncio.Queue()
        self.informer = Informer(client, WORKLOADS, namespace="default")
        self.informer.on_change(self._changed)

    def _changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        name = obj["metadata"]["name"]
        conditions = (obj.get("status") or {}).get("conditions") or ()
        if is_true(conditions, "Finished"):
            self.ended.add(name)
            self.held.pop(name, None)
            if len(self.ended) == self.total:
                self.over.set()
        elif is_true(conditions, "QuotaReserved"):
            if name in self.ended:
                self.problems.append(f"{name} was admitted again after its end")
            if name not in self.held:
                self.held[name] = held_by(obj)
                self._to_end.put_nowait(name)
                self._check()
        elif name in self.held:
            self.problems.append(f"{name} lost its quota without having been evicted")

    def _check(self) -> None:
        if sum(self.held.values()) > QUEUES * QUOTA:
            self.problems.append(f"{sum(self.held.values())} cpus are held of {QUEUES * QUOTA}")

    async def make(self, ref: GroupVersionResource, kind: str, obj: Object) -> None:
        await self.client.create(ref, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj})

    async def prepare(self) -> None:
        await self.make(FLAVORS, "ResourceFlavor", queues.flavor())
        for index in range(QUEUES):
            await self.make(
                CLUSTER_QUEUES, "ClusterQueue", queues.queue(f"q{index}", cpu=QUOTA, cohort="all", borrowingLimit=60)
            )
            await self.make(LOCAL_QUEUES, "LocalQueue", queues.local(f"q{index}", f"q{index}", stopPolicy="Hold"))
        numbers = iter(range(self.total))

        async def some() -> None:
            for index in numbers:
                size = SIZES[index // QUEUES % len(SIZES)]
                obj = queues.workload(f"w{index}", queue=f"q{index % QUEUES}", cpu=size, priority=size)
                metadata = {"name": obj["metadata"]["name"], "namespace": "default"}
                await self.make(WORKLOADS, "Workload", {"metadata": metadata, "spec": obj["spec"]})

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        for index in range(QUEUES):
            await self.client.patch(LOCAL_QUEUES, f"q{index}", {"spec": {"stopPolicy": "None"}}, "default")

    async def end_what_is_admitted(self) -> None:
        await asyncio.gather(*(self._end_some() for _ in range(AT_ONCE)))

    async def _end_some(self) -> None:
        while True:
            name = await self._to_end.get()
            while name in self.held:
                try:
                    await self._end(name)
                    break
                except YardError as error:
                    is_gone = isinstance(error, Unreachable) or (isinstance(error, StatusError) and error.status >= 500)
                    if not is_gone and not (isinstance(error, StatusError) and error.status == 409):
                        self.problems.append(f"{name}: {error}")
                        return
                    await asyncio.sleep(0.1)

    async def _end(self, name: str) -> None:
        obj = await self.client.get(WORKLOADS, name, "default")
        if has_true_condition(obj, "Finished"):
            return  # the answer to the write was lost in a kill
        end = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        conditions = [*obj["status"]["conditions"], {**end, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        patch = {
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "status": {"conditions": conditions},
        }
        await self.client.patch(WORKLOADS, name, patch, "default", subresource="status")


def held_by(obj: Object) -> int:
    return sum(int(each["resourceUsage"]["cpu"]) for each in obj["status"]["admission"]["podSetAssignments"])


async def _look_at_all(client: Client) -> int:
    """What a plane that has just come back holds, by its own word."""
    found = (await client.list(WORKLOADS, "default")).items
    return sum(
        held_by(one)
        for one in found
        if has_true_condition(one, "QuotaReserved") and not has_true_condition(one, "Finished")
    )


async def _kill(yard: Yard, load: Load, kills: int) -> None:
    for number in range(kills):
        while len(load.ended) * (kills + 1) < (number + 1) * load.total:
            await asyncio.sleep(0.02)
        await asyncio.to_thread(yard.kill)
        await asyncio.to_thread(yard.start)
        held = await _look_at_all(load.client)
        if held > QUEUES * QUOTA:
            load.problems.append(f"{held} cpus are held of {QUEUES * QUOTA} after kill {number + 1}")


def _in_use(queue: Object) -> bool:
    status = queue.get("status") or {}
    totals = [one["total"] for each in status.get("flavorsReservation") or () for one in each["resources"]]
    return bool(status.get("reservingWorkloads") or status.get("pendingWorkloads") or any(one != "0" for one in totals))


async def _until_empty(client: Client) -> None:
    deadline = time.monotonic() + 120
    while any(_in_use(one) for one in (await client.list(CLUSTER_QUEUES)).items):
        assert time.monotonic() < deadline, "quota is still in use"
        await asyncio.sleep(0.1)


async def test_kills_neither_leak_quota_nor_admit_twice(tmp_path: Path) -> None:
    total, kills = rounds(120, 15_000), rounds(3, 100)
    yard = Yard(tmp_path, controllers="kueue,namespace-controller,job-controller")
    await asyncio.to_thread(yard.start)
    client = Client(HttpTransport(connection_of(yard.kubeconfig), user_agent="test"), manager="test")
    load = Load(client, total)
    tasks: list[asyncio.Task[None]] = []
    try:
        await load.prepare()
        tasks = [asyncio.create_task(one) for one in (load.informer.run(), load.end_what_is_admitted())]
        killer = asyncio.create_task(_kill(yard, load, kills))
        tasks.append(killer)
        async with asyncio.timeout(6000 if FULL else 240):
            await load.over.wait()
            await killer
        assert load.problems == []
        assert len(load.ended) == total
        await _until_empty(client)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()
        await asyncio.to_thread(yard.stop)
