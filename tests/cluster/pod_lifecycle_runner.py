"""Runs the pods of `pod_scenarios` on a node and summarizes the status and events of each.

The summaries of a real kubelet (1.34, containerd) are in `lifecycles.json` beside this file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from contextlib import aclosing
from pathlib import Path

from tests.cluster.pod_scenarios import SCENARIOS, PodScenario

from torchyard.api.gvr import CONFIG_MAPS, EVENTS, PODS, SECRETS
from torchyard.api.objects import Object
from torchyard.kube.client import Client

RECORDED = Path(__file__).with_name("lifecycles.json")

# Where the two differ, and why. Everything else must be equal.
KNOWN_DIFFERENCES: dict[str, set[str]] = {
    "no-command": {"containers"},  # the message names the runtime that failed: containerd and runc there, none here
    # A kubelet first asks up to a period after the start; we ask at once, and the restarted container is ready by then.
    "startup-fails": {"conditions", "containers"},
    "deleted-in-init": {"conditions"},  # there the last conditions are written before the phase, here together with it
}


def reached(pod: Object, goal: str) -> bool:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    inits = status.get("initContainerStatuses") or []
    if goal in ("Succeeded", "Failed", "Running"):
        return bool(status.get("phase") == goal)
    if goal in ("Ready", "Unready"):
        return bool(containers) and "running" in containers[0]["state"] and containers[0]["ready"] is (goal == "Ready")
    if goal == "Restarted":
        return bool(containers) and containers[0]["restartCount"] == 1 and "running" in containers[0]["state"]
    if goal == "InitRunning":
        return bool(inits) and "running" in inits[0]["state"]
    if goal == "InitCrashLoop":
        return any((status["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff" for status in inits)
    return any((status["state"].get("waiting") or {}).get("reason") == goal for status in containers)


def _container_summary(container_status: Object) -> Object:
    kind, detail = next(iter(container_status["state"].items()))
    keys = ("reason", "exitCode", "message") if kind == "terminated" else ("reason",)
    details = {key: detail[key] for key in keys if key in detail}
    return {
        "state": kind,
        **details,
        "ready": container_status["ready"],
        "started": container_status.get("started"),
        "restarts": container_status["restartCount"],
    }


def summarize(pod: Object, events: list[Object]) -> Object:
    """The parts that must be equal: no times, ids, addresses or amounts."""
    status = pod["status"]
    summary = {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "conditions": {entry["type"]: [entry["status"], entry.get("reason")] for entry in status["conditions"]},
        "containers": {entry["name"]: _container_summary(entry) for entry in status.get("containerStatuses") or ()},
        "inits": {entry["name"]: _container_summary(entry) for entry in status.get("initContainerStatuses") or ()},
        "events": sorted({entry["reason"] for entry in events} - {"Scheduled"}),
    }
    normalized: Object = json.loads(json.dumps(summary))
    return normalized


async def run_scenario(client: Client, name: str, scenario: PodScenario, events_of: Collection[str] = ()) -> Object:
    """Run one pod until its goal, and until its deletion if the scenario has one. Waits for the expected events."""
    full = f"lifecycle-{name}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": full},
        "spec": {**scenario.spec, "automountServiceAccountToken": False},
    }
    created = await client.create(PODS, pod, "default")
    for _ in range(1200):
        pod = await client.get(PODS, full, "default")
        if reached(pod, scenario.goal):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(f"{name} never reached {scenario.goal}: {pod['status']}")
    pod = await _settled(client, pod)
    if scenario.grace is not None:
        pod = await _delete(client, pod, scenario.grace)
    events = await _settled_events(client, created["metadata"]["uid"], set(events_of))
    if scenario.grace is None:
        await client.delete(PODS, full, "default", grace=0)
    return summarize(pod, events)


async def _delete(client: Client, pod: Object, grace: int) -> Object:
    """Delete the pod; returns its last state."""
    name, last = pod["metadata"]["name"], pod
    await client.delete(PODS, name, "default", grace=grace)
    since = pod["metadata"]["resourceVersion"]
    async with aclosing(client.watch(PODS, "default", since=since, fields=f"metadata.name={name}")) as changes:
        async for change, last_pod in changes:
            if change == "DELETED":
                return last_pod
            if change != "BOOKMARK":
                last = last_pod
    return last


async def _settled(client: Client, pod: Object) -> Object:
    """Wait until the sandbox of a finished pod is removed; a kubelet takes a while."""
    for _ in range(300):
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            return pod
        conditions = {condition["type"]: condition["status"] for condition in pod["status"]["conditions"]}
        if conditions.get("PodReadyToStartContainers") == "False":
            return pod
        await asyncio.sleep(0.1)
        pod = await client.get(PODS, pod["metadata"]["name"], "default")
    raise AssertionError(f"{pod['metadata']['name']} still has its sandbox")


async def _settled_events(client: Client, uid: str, expected: set[str]) -> list[Object]:
    """A pod's events, once no more arrive: they are written asynchronously."""
    events: list[Object] = []
    quiet = 0
    while quiet < (8 if expected <= {event["reason"] for event in events} else 100):
        await asyncio.sleep(0.1)
        listed = (await client.list(EVENTS, "default", fields=f"involvedObject.uid={uid}")).items
        quiet = quiet + 1 if len(listed) == len(events) else 0
        events = listed
    return events


async def prepare(client: Client) -> None:
    """The configuration that some of the pods read."""
    metadata = {"name": "lifecycle"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": "s3cret"}}
    for ref, obj in ((CONFIG_MAPS, config), (SECRETS, secret)):
        if await client.find(ref, "lifecycle", "default") is None:
            await client.create(ref, obj, "default")


async def run_all(client: Client, *, at_once: int, expected: Mapping[str, Object] | None = None) -> dict[str, Object]:
    limit = asyncio.Semaphore(at_once)

    async def run_one(name: str) -> Object:
        async with limit:
            return await run_scenario(client, name, SCENARIOS[name], (expected or {}).get(name, {}).get("events", ()))

    await prepare(client)
    results = await asyncio.gather(*(run_one(name) for name in SCENARIOS), return_exceptions=True)
    failed = {
        name: str(result) for name, result in zip(SCENARIOS, results, strict=True) if isinstance(result, BaseException)
    }
    assert failed == {}, failed
    return {
        name: result for name, result in zip(SCENARIOS, results, strict=True) if not isinstance(result, BaseException)
    }


def differences(expected: dict[str, Object], actual: dict[str, Object]) -> dict[str, Object]:
    """The differences by pod and part: the kubelet's value and Torchyard's."""
    different: dict[str, Object] = {}
    for name in SCENARIOS:
        known_differences = KNOWN_DIFFERENCES.get(name, set())
        parts = {
            part for part in actual[name] if expected.get(name, {}).get(part) != actual[name][part]
        } - known_differences
        if parts:
            different[name] = {part: (expected.get(name, {}).get(part), actual[name][part]) for part in sorted(parts)}
    return different
