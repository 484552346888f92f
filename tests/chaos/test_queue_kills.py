"""The plane is killed repeatedly while workloads pass through its queues: no quota leaks, nothing is admitted twice."""

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
CONCURRENCY = 16
# The sizes of Kueue's own test: many small, some medium, few large.
SIZES = (1, 1, 1, 1, 1, 1, 1, 5, 5, 20)


class WorkloadLoad:
    """Creates workloads, finishes each as soon as it is admitted, and checks that all of them stay within the quota."""

    def __init__(self, client: Client, total: int) -> None:
        self.client, self.total = client, total
        self.reserved: dict[str, int] = {}
        self.finished: set[str] = set()
        self.problems: list[str] = []
        self.all_finished = asyncio.Event()
        self._to_finish: asyncio.Queue[str] = asyncio.Queue()
        self.informer = Informer(client, WORKLOADS, namespace="default")
        self.informer.on_change(self._changed)

    def _changed(self, _change: str, obj: Object, _before: Object | None) -> None:
        name = obj["metadata"]["name"]
        conditions = (obj.get("status") or {}).get("conditions") or ()
        if is_true(conditions, "Finished"):
            self.finished.add(name)
            self.reserved.pop(name, None)
            if len(self.finished) == self.total:
                self.all_finished.set()
        elif is_true(conditions, "QuotaReserved"):
            if name in self.finished:
                self.problems.append(f"{name} was admitted again after it finished")
            if name not in self.reserved:
                self.reserved[name] = admitted_cpus(obj)
                self._to_finish.put_nowait(name)
                self._check()
        elif name in self.reserved:
            self.problems.append(f"{name} lost its quota without an eviction")

    def _check(self) -> None:
        if sum(self.reserved.values()) > QUEUES * QUOTA:
            self.problems.append(f"{sum(self.reserved.values())} cpus are reserved of {QUEUES * QUOTA}")

    async def create(self, gvr: GroupVersionResource, kind: str, obj: Object) -> None:
        await self.client.create(gvr, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj})

    async def prepare(self) -> None:
        await self.create(FLAVORS, "ResourceFlavor", queues.flavor())
        for index in range(QUEUES):
            await self.create(
                CLUSTER_QUEUES, "ClusterQueue", queues.queue(f"q{index}", cpu=QUOTA, cohort="all", borrowingLimit=60)
            )
            await self.create(LOCAL_QUEUES, "LocalQueue", queues.local(f"q{index}", f"q{index}", stopPolicy="Hold"))
        numbers = iter(range(self.total))

        async def create_workloads() -> None:
            for index in numbers:
                size = SIZES[index // QUEUES % len(SIZES)]
                obj = queues.workload(f"w{index}", queue=f"q{index % QUEUES}", cpu=size, priority=size)
                metadata = {"name": obj["metadata"]["name"], "namespace": "default"}
                await self.create(WORKLOADS, "Workload", {"metadata": metadata, "spec": obj["spec"]})

        await asyncio.gather(*(create_workloads() for _ in range(CONCURRENCY)))
        for index in range(QUEUES):
            await self.client.patch(LOCAL_QUEUES, f"q{index}", {"spec": {"stopPolicy": "None"}}, "default")

    async def finish_admitted(self) -> None:
        await asyncio.gather(*(self._finish_some() for _ in range(CONCURRENCY)))

    async def _finish_some(self) -> None:
        while True:
            name = await self._to_finish.get()
            while name in self.reserved:
                try:
                    await self._finish(name)
                    break
                except YardError as error:
                    is_down = isinstance(error, Unreachable) or (isinstance(error, StatusError) and error.status >= 500)
                    if not is_down and not (isinstance(error, StatusError) and error.status == 409):
                        self.problems.append(f"{name}: {error}")
                        return
                    await asyncio.sleep(0.1)

    async def _finish(self, name: str) -> None:
        obj = await self.client.get(WORKLOADS, name, "default")
        if has_true_condition(obj, "Finished"):
            return  # the response to the write was lost in a kill
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        conditions = [*obj["status"]["conditions"], {**finished, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        patch = {
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "status": {"conditions": conditions},
        }
        await self.client.patch(WORKLOADS, name, patch, "default", subresource="status")


def admitted_cpus(obj: Object) -> int:
    return sum(
        int(assignment["resourceUsage"]["cpu"]) for assignment in obj["status"]["admission"]["podSetAssignments"]
    )


async def _reserved_cpus(client: Client) -> int:
    """How many cpus are reserved by the stored workloads."""
    workloads = (await client.list(WORKLOADS, "default")).items
    return sum(
        admitted_cpus(obj)
        for obj in workloads
        if has_true_condition(obj, "QuotaReserved") and not has_true_condition(obj, "Finished")
    )


async def _kill(yard: Yard, load: WorkloadLoad, kills: int) -> None:
    for number in range(kills):
        while len(load.finished) * (kills + 1) < (number + 1) * load.total:
            await asyncio.sleep(0.02)
        await asyncio.to_thread(yard.kill)
        await asyncio.to_thread(yard.start)
        reserved = await _reserved_cpus(load.client)
        if reserved > QUEUES * QUOTA:
            load.problems.append(f"{reserved} cpus are reserved of {QUEUES * QUOTA} after kill {number + 1}")


def _in_use(queue: Object) -> bool:
    status = queue.get("status") or {}
    totals = [
        resource["total"] for flavor in status.get("flavorsReservation") or () for resource in flavor["resources"]
    ]
    return bool(
        status.get("reservingWorkloads") or status.get("pendingWorkloads") or any(total != "0" for total in totals)
    )


async def _wait_until_empty(client: Client) -> None:
    deadline = time.monotonic() + 120
    while any(_in_use(queue) for queue in (await client.list(CLUSTER_QUEUES)).items):
        assert time.monotonic() < deadline, "quota is still in use"
        await asyncio.sleep(0.1)


async def test_kills_neither_leak_quota_nor_admit_twice(tmp_path: Path) -> None:
    total, kills = rounds(120, 15_000), rounds(3, 100)
    yard = Yard(tmp_path, controllers="kueue,namespace-controller,job-controller")
    await asyncio.to_thread(yard.start)
    client = Client(HttpTransport(connection_of(yard.kubeconfig), user_agent="test"), manager="test")
    load = WorkloadLoad(client, total)
    tasks: list[asyncio.Task[None]] = []
    try:
        await load.prepare()
        tasks = [asyncio.create_task(work) for work in (load.informer.run(), load.finish_admitted())]
        killer = asyncio.create_task(_kill(yard, load, kills))
        tasks.append(killer)
        async with asyncio.timeout(6000 if FULL else 240):
            await load.all_finished.wait()
            await killer
        assert load.problems == []
        assert len(load.finished) == total
        await _wait_until_empty(client)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()
        await asyncio.to_thread(yard.stop)
