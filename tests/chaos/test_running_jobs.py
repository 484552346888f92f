"""`kill -9` of the plane while real pods of its jobs run: none is lost or started twice, all end as planned."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.chaos import expected_results
from tests.chaos.expected_results import Plan
from tests.chaos.forked import ForkedYard
from tests.node.support import need_network
from tests.support.effort import rounds
from tests.support.http import Client
from tests.support.process import free_port
from tests.support.waiting import eventually

from torchyard.api.pytorchjob import names
from torchyard.node.shutdown import stop_pods

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(rounds(300, 5400))]

Object = dict[str, Any]
KILLS = rounds(4, 200)
EACH = rounds(3, 25)  # Jobs, and as many PyTorchJobs
QUIET_SECONDS = 3.0


def program(job: str, plan: Plan) -> str:
    """Leaves a file, and ends when its job is released. The first pods fail: each claims a directory."""
    fails = "".join(
        f'if mkdir "/marks/failed.{job}.{number}" 2>/dev/null; then exit {plan.code}; fi\n'
        for number in range(plan.failures)
    )
    return (
        f'touch "/marks/{job}.$HOSTNAME.$(cat /proc/sys/kernel/random/uuid)"\n'
        f'until [ -e "/marks/go.{job}" ]; do sleep 2; done\n'
        f"case $HOSTNAME in *-worker-*) exit 0;; esac\n{fails}exit 0\n"
    )


def some_writes(client: Client, count: int) -> None:
    """Wait until the plane has written this often, or has nothing to write: time says little on a busy machine."""
    begun, deadline = revision(client), time.monotonic() + QUIET_SECONDS
    while revision(client) < begun + count and time.monotonic() < deadline:
        time.sleep(0.02)


def revision(client: Client) -> int:
    return int(client.get("/api/v1/namespaces/default/pods?limit=1").json["metadata"]["resourceVersion"])


def with_program(job: Object, plan: Plan, marks: Path) -> Object:
    """The job with its containers replaced by the program."""
    name, spec = job["metadata"]["name"], job["spec"]
    replicas = spec.get("pytorchReplicaSpecs")
    for template in [replica["template"] for replica in replicas.values()] if replicas else [spec["template"]]:
        container = {
            **template["spec"]["containers"][0],
            "image": "busybox",
            "command": ["sh", "-c", program(name, plan)],
            "volumeMounts": [{"name": "marks", "mountPath": "/marks"}],
        }
        template["spec"] |= {
            "containers": [container],
            "volumes": [{"name": "marks", "hostPath": {"path": str(marks)}}],
            "automountServiceAccountToken": False,
        }
    if replicas:
        job["metadata"]["annotations"] = {names.INIT_CONTAINER: "off"}
    return job


def test_killing_the_plane_repeatedly_does_not_change_how_running_jobs_end(tmp_path: Path) -> None:
    need_network()
    rng, marks = Random(12), tmp_path / "marks"
    marks.mkdir(mode=0o777)
    planned_jobs = [(expected_results.JOBS, *expected_results.job(number)) for number in range(EACH)]
    planned_jobs += [(expected_results.TRAININGS, *expected_results.training(number)) for number in range(EACH)]
    plans = {job["metadata"]["name"]: plan for _, job, plan in planned_jobs}
    waiting = [(path, with_program(job, plan, marks)) for path, job, plan in planned_jobs]
    yard = ForkedYard(tmp_path, controllers="*", port=free_port(), flags=("--node",))
    server = yard.start()
    begun = time.monotonic()
    try:
        held = sorted(plans, key=lambda _: rng.random())
        for number in range(KILLS):
            waiting = [item for item in waiting if not expected_results.send(server.admin, *item)]
            # the last quarter of the kills hits jobs that have ended or are ending
            while held and len(held) > len(plans) * (1 - number / (0.75 * KILLS)):
                (marks / f"go.{held.pop()}").touch()
            some_writes(server.admin, rng.randint(0, 30))
            yard.kill()
            server = yard.start()
        waiting = [item for item in waiting if not expected_results.send(server.admin, *item)]
        assert not waiting
        for name in held:
            (marks / f"go.{name}").touch()
        eventually(lambda: expected_results.are_over(server.admin), "the end of all jobs", seconds=600)
        time.sleep(1)  # the last events are written after the last status
        for mark in marks.glob("*.*.*-*-*-*-*"):
            name, pod, uuid = mark.name.split(".")
            plans[name].pods[uuid] = pod
        expected_results.judge(server.admin, plans)
        pods = sum(len(plan.pods) for plan in plans.values())
        print(f"{KILLS} kills, {len(plans)} jobs, {pods} pods, {time.monotonic() - begun:.0f} s")
    finally:
        yard.stop()
        asyncio.run(stop_pods(yard.state / "node"))
