"""The plane is killed again and again while workloads pass through its queues: no quota leaks, nothing runs twice."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import queues
from tests.support.effort import FULL, rounds
from tests.support.yard import Yard

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600 if FULL else 300)]

Object = dict[str, Any]
ROOT = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{ROOT}/namespaces/default/workloads"
QUEUES, QUOTA = 6, 4


def test_kills_neither_leak_quota_nor_admit_twice(tmp_path: Path) -> None:
    total = rounds(60, 1500)
    kills = rounds(3, 100)
    yard = Yard(tmp_path, controllers="kueue,namespace-controller,job-controller")
    server = yard.start()
    try:
        _prepare(server.admin, total)
        ends: dict[str, int] = {}
        pause = random.Random(7)
        deadline = time.monotonic() + (3000 if FULL else 240)
        done = 0
        while len(ends) < total:
            assert time.monotonic() < deadline, f"{len(ends)} of {total} finished"
            _finish_some(server.admin, ends, most=max(1, total // kills))
            if done < kills and len(ends) * kills >= done * total:
                yard.kill()
                server = yard.start()
                done += 1
            time.sleep(pause.random() * 0.05)
        assert done == kills
        assert max(ends.values()) == 1, "something was finished twice"
        used = {one["metadata"]["name"]: one for one in _list(server.admin, f"{ROOT}/clusterqueues")}
        deadline = time.monotonic() + 60
        while any(_in_use(one) for one in used.values()):
            assert time.monotonic() < deadline, "quota is still in use"
            time.sleep(0.1)
            used = {one["metadata"]["name"]: one for one in _list(server.admin, f"{ROOT}/clusterqueues")}
    finally:
        yard.stop()


def _in_use(queue: Object) -> bool:
    status = queue.get("status") or {}
    totals = [one["total"] for each in status.get("flavorsReservation") or () for one in each["resources"]]
    return bool(status.get("reservingWorkloads") or status.get("pendingWorkloads") or any(one != "0" for one in totals))


def _prepare(admin: Any, total: int) -> None:
    def make(kind: str, path: str, obj: Object) -> None:
        answer = admin.post(f"{ROOT}{path}", {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj})
        assert answer.status == 201, answer

    make("ResourceFlavor", "/resourceflavors", queues.flavor())
    for index in range(QUEUES):
        make("ClusterQueue", "/clusterqueues", queues.queue(f"q{index}", cpu=QUOTA, cohort="all"))
        make("LocalQueue", "/namespaces/default/localqueues", queues.local(f"q{index}", f"q{index}"))
    for index in range(total):
        obj = queues.workload(f"w{index}", queue=f"q{index % QUEUES}", cpu=1 + index % 2)
        metadata = {"name": obj["metadata"]["name"], "namespace": "default"}
        make("Workload", "/namespaces/default/workloads", {"metadata": metadata, "spec": obj["spec"]})


def _list(admin: Any, path: str) -> list[Object]:
    found: list[Object] = admin.get(path).json["items"]
    return found


def _finish_some(admin: Any, ends: dict[str, int], *, most: int) -> None:
    """End some of what is admitted, and check that all of it together is within the quota."""
    held = 0
    for one in _list(admin, WORKLOADS):
        status = one.get("status") or {}
        conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        if conditions.get("Finished") == "True":
            continue
        name = one["metadata"]["name"]
        if conditions.get("QuotaReserved") != "True":
            continue
        assert name not in ends, f"{name} was admitted again after its end"
        held += sum(int(each["resourceUsage"]["cpu"]) for each in status["admission"]["podSetAssignments"])
        end = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        patch = {
            "metadata": {"resourceVersion": one["metadata"]["resourceVersion"]},
            "status": {"conditions": [*status["conditions"], end]},
        }
        if most > 0 and admin.patch(f"{WORKLOADS}/{name}/status", patch).status == 200:
            ends[name] = ends.get(name, 0) + 1
            most -= 1
    assert held <= QUEUES * QUOTA, f"{held} cpus are held of {QUEUES * QUOTA}"
