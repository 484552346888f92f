"""Runs the pods of `lives` on whichever node there is, and tells the story of each: its status and its events.

The stories of a real kubelet (1.34, containerd) lie beside this file as `lifecycles.json`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from contextlib import aclosing
from pathlib import Path

from tests.cluster.pod_scenarios import LIVES, Life

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
        return any((one["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff" for one in inits)
    return any((one["state"].get("waiting") or {}).get("reason") == goal for one in containers)


def _told(one: Object) -> Object:
    kind, detail = next(iter(one["state"].items()))
    keys = ("reason", "exitCode", "message") if kind == "terminated" else ("reason",)
    said = {key: detail[key] for key in keys if key in detail}
    return {
        "state": kind,
        **said,
        "ready": one["ready"],
        "started": one.get("started"),
        "restarts": one["restartCount"],
    }


def story(pod: Object, events: list[Object]) -> Object:
    """What must be the same: no times, ids, addresses or amounts."""
    status = pod["status"]
    told = {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "conditions": {one["type"]: [one["status"], one.get("reason")] for one in status["conditions"]},
        "containers": {one["name"]: _told(one) for one in status.get("containerStatuses") or ()},
        "inits": {one["name"]: _told(one) for one in status.get("initContainerStatuses") or ()},
        "events": sorted({one["reason"] for one in events} - {"Scheduled"}),
    }
    found: Object = json.loads(json.dumps(told))
    return found


async def live(client: Client, name: str, life: Life, events_of: Collection[str] = ()) -> Object:
    """Run one pod to its goal, and to its deletion if that is part of it. Events that are expected are waited for."""
    full = f"lifecycle-{name}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": full},
        "spec": {**life.spec, "automountServiceAccountToken": False},
    }
    created = await client.create(PODS, pod, "default")
    for _ in range(1200):
        found = await client.get(PODS, full, "default")
        if reached(found, life.goal):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(f"{name} never was {life.goal}: {found['status']}")
    found = await _settled(client, found)
    if life.grace is not None:
        found = await _delete(client, found, life.grace)
    events = await _settled_events(client, created["metadata"]["uid"], set(events_of))
    if life.grace is None:
        await client.delete(PODS, full, "default", grace=0)
    return story(found, events)


async def _delete(client: Client, pod: Object, grace: int) -> Object:
    """The last that was seen of it."""
    name, last = pod["metadata"]["name"], pod
    await client.delete(PODS, name, "default", grace=grace)
    since = pod["metadata"]["resourceVersion"]
    async with aclosing(client.watch(PODS, "default", since=since, fields=f"metadata.name={name}")) as changes:
        async for change, seen in changes:
            if change == "DELETED":
                return seen
            if change != "BOOKMARK":
                last = seen
    return last


async def _settled(client: Client, pod: Object) -> Object:
    """A pod that is over is told about once its sandbox is gone, which a kubelet takes its time for."""
    for _ in range(300):
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            return pod
        conditions = {one["type"]: one["status"] for one in pod["status"]["conditions"]}
        if conditions.get("PodReadyToStartContainers") == "False":
            return pod
        await asyncio.sleep(0.1)
        pod = await client.get(PODS, pod["metadata"]["name"], "default")
    raise AssertionError(f"{pod['metadata']['name']} keeps its sandbox")


async def _settled_events(client: Client, uid: str, expected: set[str]) -> list[Object]:
    """A pod's events, once no more come: they are written behind."""
    found: list[Object] = []
    quiet = 0
    while quiet < (8 if expected <= {one["reason"] for one in found} else 100):
        await asyncio.sleep(0.1)
        listed = (await client.list(EVENTS, "default", fields=f"involvedObject.uid={uid}")).items
        quiet = quiet + 1 if len(listed) == len(found) else 0
        found = listed
    return found


async def prepare(client: Client) -> None:
    """The configuration that some of the pods read."""
    metadata = {"name": "lifecycle"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": "s3cret"}}
    for ref, wanted in ((CONFIG_MAPS, config), (SECRETS, secret)):
        if await client.find(ref, "lifecycle", "default") is None:
            await client.create(ref, wanted, "default")


async def live_all(client: Client, *, at_once: int, expected: Mapping[str, Object] | None = None) -> dict[str, Object]:
    limit = asyncio.Semaphore(at_once)

    async def one(name: str) -> Object:
        async with limit:
            return await live(client, name, LIVES[name], (expected or {}).get(name, {}).get("events", ()))

    await prepare(client)
    stories = await asyncio.gather(*(one(name) for name in LIVES), return_exceptions=True)
    failed = {name: str(one) for name, one in zip(LIVES, stories, strict=True) if isinstance(one, BaseException)}
    assert failed == {}, failed
    return {name: one for name, one in zip(LIVES, stories, strict=True) if not isinstance(one, BaseException)}


def differences(wanted: dict[str, Object], found: dict[str, Object]) -> dict[str, Object]:
    """By pod and by part of its story, what a kubelet tells and what we tell."""
    different: dict[str, Object] = {}
    for name in LIVES:
        known = KNOWN_DIFFERENCES.get(name, set())
        parts = {part for part in found[name] if wanted.get(name, {}).get(part) != found[name][part]} - known
        if parts:
            different[name] = {part: (wanted.get(name, {}).get(part), found[name][part]) for part in sorted(parts)}
    return different
