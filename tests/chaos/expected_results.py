"""Jobs with a known end, and checks that they reached it whatever was killed in between."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.support import jobs, pytorchjobs
from tests.support.http import Client

from torchyard.api.pytorchjob import names

Object = dict[str, Any]
JOBS = "/apis/batch/v1/namespaces/default/jobs"
TRAININGS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
EVENTS = "/api/v1/namespaces/default/events"


@dataclass
class Plan:
    """What a job's pods do: `failures` of them fail with this code, the others succeed.

    For a training these are the masters.
    """

    failures: int
    code: int
    pods: dict[str, str] = field(default_factory=dict)  # uid → name of every pod that was ever observed


def job(number: int) -> tuple[Object, Plan]:
    doomed = number % 5 == 4
    spec: Object = {"completions": 1 + number % 3, "parallelism": 1 + number % 2, "backoffLimit": 6}
    if number % 4 == 3:
        spec["completionMode"] = "Indexed"
    if doomed:
        spec = {"completions": 1, "backoffLimit": 1}
    return jobs.manifest(f"job-{number}", **spec), Plan(failures=2 if doomed else number % 3, code=1)


def training(number: int) -> tuple[Object, Plan]:
    doomed = number % 5 == 4
    manifest = pytorchjobs.job(f"training-{number}", worker=1 + number % 2, policy=names.EXIT_CODE)
    del manifest["metadata"]["uid"]
    return manifest, Plan(failures=1 if doomed else number % 2, code=1 if doomed else 137)


def send(client: Client, path: str, obj: Object) -> bool:
    """Whether the server has the object. A request whose response was lost in a crash is sent again."""
    try:
        return client.once("POST", path, obj).status in (201, 409)
    except (OSError, http.client.HTTPException):
        return False


def listed(client: Client, path: str) -> list[Object]:
    items: list[Object] = client.get(path).json["items"]
    return items


def are_over(client: Client) -> bool:
    every = listed(client, JOBS) + listed(client, TRAININGS)
    return all(_conditions(item) & {"Complete", "Failed", "Succeeded"} for item in every)


def judge(client: Client, plans: dict[str, Plan]) -> None:
    """Every job ended as planned, with exactly the pods it needed and a limited number of events."""
    for item in listed(client, JOBS):
        _judge_job(item, plans[item["metadata"]["name"]])
    for item in listed(client, TRAININGS):
        _judge_training(item, plans[item["metadata"]["name"]])
    _judge_events(listed(client, EVENTS), plans)


def _conditions(obj: Object) -> set[str]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {condition["type"] for condition in conditions if condition["status"] == "True"}


def _judge_job(job: Object, plan: Plan) -> None:
    spec, status, name = job["spec"], job["status"], job["metadata"]["name"]
    fails = plan.failures > spec["backoffLimit"]
    assert ("Failed" if fails else "Complete") in _conditions(job), name
    wanted = (0, plan.failures) if fails else (spec["completions"], plan.failures)
    assert (status.get("succeeded") or 0, status.get("failed") or 0) == wanted, name
    assert len(plan.pods) == sum(wanted), f"{name}: {len(plan.pods)} pods were made, {sum(wanted)} were needed"


def _judge_training(pytorchjob: Object, plan: Plan) -> None:
    name = pytorchjob["metadata"]["name"]
    fails = plan.code == 1 and plan.failures > 0
    assert ("Failed" if fails else "Succeeded") in _conditions(pytorchjob), name
    pod_counts = Counter(plan.pods.values())
    assert pod_counts.pop(f"{name}-master-0") == (1 if fails else 1 + plan.failures), name
    assert set(pod_counts.values()) <= {1}, f"{name}: {pod_counts}"
    if not fails:
        memory = json.loads((pytorchjob["metadata"].get("annotations") or {}).get(names.RESTARTS, '{"count": 0}'))
        assert memory["count"] == plan.failures, name


def _judge_events(events: list[Object], plans: dict[str, Plan]) -> None:
    """The number of events about a job depends on its pods, not on how often the plane was killed."""
    event_counts: Counter[str] = Counter()
    for event in events:
        event_counts[event["involvedObject"]["name"]] += event.get("count") or 1
    for name, plan in plans.items():
        most = 8 + 6 * len(plan.pods)
        assert event_counts[name] <= most, f"{name}: {event_counts[name]} events, {most} would do"
