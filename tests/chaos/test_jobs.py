"""`kill -9` of the plane while jobs run: each ends as it would have, no pod is made twice, events stay few."""

from __future__ import annotations

import http.client
import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.chaos.forked import ForkedYard
from tests.chaos.kubelet import Kubelet, Plan
from tests.support import jobs, pytorchjobs
from tests.support.effort import rounds
from tests.support.http import Client
from tests.support.process import free_port
from tests.support.waiting import eventually

from torchyard.api.pytorchjob import names

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

Object = dict[str, Any]
KILLS = rounds(6, 200)
EACH = rounds(8, 25)  # Jobs, and as many PyTorchJobs
JOBS = "/apis/batch/v1/namespaces/default/jobs"
TRAININGS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


def _job(number: int) -> tuple[Object, Plan]:
    doomed = number % 5 == 4
    spec: Object = {"completions": 1 + number % 3, "parallelism": 1 + number % 2, "backoffLimit": 6}
    if number % 4 == 3:
        spec["completionMode"] = "Indexed"
    if doomed:
        spec = {"completions": 1, "backoffLimit": 1}
    return jobs.manifest(f"job-{number}", **spec), Plan(failures=2 if doomed else number % 3, code=1)


def _training(number: int) -> tuple[Object, Plan]:
    doomed = number % 5 == 4
    made = pytorchjobs.job(f"training-{number}", worker=1 + number % 2, policy=names.EXIT_CODE)
    del made["metadata"]["uid"]
    return made, Plan(failures=1 if doomed else number % 2, code=1 if doomed else 137)


def _send(client: Client, path: str, obj: Object) -> bool:
    """Whether the server has it: an answer that was lost in a crash is asked for again."""
    try:
        return client.once("POST", path, obj).status in (201, 409)
    except (OSError, http.client.HTTPException):
        return False


def _get(client: Client, path: str) -> list[Object]:
    found: list[Object] = client.get(path).json["items"]
    return found


def test_jobs_end_as_they_would_have_however_often_the_plane_dies(tmp_path: Path) -> None:
    rng = Random(11)
    made = [(JOBS, *_job(number)) for number in range(EACH)] + [
        (TRAININGS, *_training(number)) for number in range(EACH)
    ]
    plans = {job["metadata"]["name"]: plan for _, job, plan in made}
    yard = ForkedYard(tmp_path, controllers="*", port=free_port())
    server = yard.start()
    kubelet = Kubelet(server.admin, plans, rng)
    kubelet.start()
    waiting = [(path, job) for path, job, _ in made]
    try:
        for _ in range(KILLS):
            waiting = [one for one in waiting if not _send(server.admin, *one)]
            kubelet.allow(1 + 5 * EACH // KILLS)
            time.sleep(rng.uniform(0.01, 0.4))
            yard.kill()
            server = yard.start()
            assert not kubelet.fault, kubelet.fault
        waiting = [one for one in waiting if not _send(server.admin, *one)]
        assert not waiting
        kubelet.allow(10**6)
        eventually(lambda: _are_over(server.admin), "the end of all jobs", seconds=120)
        time.sleep(1)  # the last events are written after the last status
        for job in _get(server.admin, JOBS):
            _judge_job(job, plans[job["metadata"]["name"]])
        for training in _get(server.admin, TRAININGS):
            _judge_training(training, plans[training["metadata"]["name"]])
        _judge_events(_get(server.admin, "/api/v1/namespaces/default/events"), plans)
    finally:
        kubelet.stopping.set()
        kubelet.join(30)
        yard.stop()


def _conditions(job: Object) -> set[str]:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return {one["type"] for one in conditions if one["status"] == "True"}


def _are_over(client: Client) -> bool:
    every = _get(client, JOBS) + _get(client, TRAININGS)
    return all(_conditions(job) & {"Complete", "Failed", "Succeeded"} for job in every)


def _judge_job(job: Object, plan: Plan) -> None:
    spec, status, name = job["spec"], job["status"], job["metadata"]["name"]
    fails = plan.failures > spec["backoffLimit"]
    assert ("Failed" if fails else "Complete") in _conditions(job), name
    wanted = (0, plan.failures) if fails else (spec["completions"], plan.failures)
    assert (status.get("succeeded") or 0, status.get("failed") or 0) == wanted, name
    assert len(plan.pods) == sum(wanted), f"{name}: {len(plan.pods)} pods were made, {sum(wanted)} were needed"


def _judge_training(training: Object, plan: Plan) -> None:
    name = training["metadata"]["name"]
    fails = plan.code == 1 and plan.failures > 0
    assert ("Failed" if fails else "Succeeded") in _conditions(training), name
    made = Counter(plan.pods.values())
    assert made.pop(f"{name}-master-0") == (1 if fails else 1 + plan.failures), name
    assert set(made.values()) <= {1}, f"{name}: {made}"
    if not fails:
        memory = json.loads((training["metadata"].get("annotations") or {}).get(names.RESTARTS, '{"count": 0}'))
        assert memory["count"] == plan.failures, name


def _judge_events(events: list[Object], plans: dict[str, Plan]) -> None:
    """What is told about a job depends on its pods, not on how often the plane died."""
    told: Counter[str] = Counter()
    for one in events:
        told[one["involvedObject"]["name"]] += one.get("count") or 1
    for name, plan in plans.items():
        most = 8 + 6 * len(plan.pods)
        assert told[name] <= most, f"{name}: {told[name]} events, {most} would do"
