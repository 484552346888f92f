"""A table of pod lifecycles, run on our node and on a real kubelet: both must tell the same story.

Needs a cluster with a node that has a `busybox` image; TORCHYARD_REAL_NODE names its kubeconfig.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.node import support

from torchyard.kube import kubeconfig
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.refs import CONFIG_MAPS, EVENTS, PODS
from torchyard.node.shutdown import stop_pods
from torchyard.yard.plane import Plane
from torchyard.yard.settings import Settings

pytestmark = pytest.mark.cluster

Object = dict[str, Any]


def container(script: str, name: str = "main", **more: Any) -> Object:
    return {
        "name": name,
        "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        **more,
    }


def spec(*containers: Object, policy: str = "Never", **more: Any) -> Object:
    return {"restartPolicy": policy, "containers": list(containers), "terminationGracePeriodSeconds": 2, **more}


def _exec_probe(command: str, **more: Any) -> Object:
    return {"exec": {"command": ["sh", "-c", command]}, "periodSeconds": 1, **more}


SHARED = [{"name": "v", "mountPath": "/v"}]
# name → (spec, what to wait for)
LIFECYCLES: dict[str, tuple[Object, str]] = {
    "success": (spec(container("exit 0")), "Succeeded"),
    "failure": (spec(container("exit 3")), "Failed"),
    "killed": (spec(container("sleep 0.3; kill -9 $$; sleep 5 & kill -9 $!; exit 137")), "Failed"),
    "message": (spec(container("echo why > /dev/termination-log; exit 1")), "Failed"),
    "message-from-logs": (
        spec(container("echo last line; exit 1", terminationMessagePolicy="FallbackToLogsOnError")),
        "Failed",
    ),
    "two-containers": (spec(container("exit 0", "a"), container("exit 2", "b")), "Failed"),
    "on-failure": (spec(container("exit 0"), policy="OnFailure"), "Succeeded"),
    "crash-loop": (spec(container("exit 1"), policy="Always"), "CrashLoopBackOff"),
    "running": (spec(container("sleep 300"), policy="Always"), "Running"),
    "init": (
        spec(
            container("cat /v/f", volumeMounts=SHARED),
            initContainers=[container("echo x > /v/f", "i", volumeMounts=SHARED)],
            volumes=[{"name": "v", "emptyDir": {}}],
        ),
        "Succeeded",
    ),
    "init-fails": (spec(container("exit 0"), initContainers=[container("exit 4", "i")]), "Failed"),
    "sidecar": (
        spec(
            container("exit 0"),
            initContainers=[
                container("trap 'exit 0' TERM; while true; do sleep 0.1; done", "s", restartPolicy="Always")
            ],
        ),
        "Succeeded",
    ),
    "deadline": (spec(container("sleep 300"), activeDeadlineSeconds=2), "Failed"),
    "not-ready": (spec(container("sleep 300", readinessProbe=_exec_probe("exit 1")), policy="Always"), "Unready"),
    "ready": (spec(container("sleep 300", readinessProbe=_exec_probe("exit 0")), policy="Always"), "Ready"),
    "liveness": (
        spec(
            container("trap 'exit 0' TERM; sleep 300 & wait", livenessProbe=_exec_probe("exit 1", failureThreshold=1)),
            policy="Always",
        ),
        "Restarted",
    ),
    "no-command": (spec({**container(""), "command": ["/no/such/program"]}), "Failed"),
    "missing-config": (
        spec(container("exit 0", envFrom=[{"configMapRef": {"name": "none"}}])),
        "CreateContainerConfigError",
    ),
    "env": (
        spec(
            container(
                'test "$A-$B-$C" = "1-x1-lifecycle-env"',
                env=[
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "x$(A)"},
                    {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            )
        ),
        "Succeeded",
    ),
    "config-volume": (
        spec(container("cat /v/key", volumeMounts=SHARED), volumes=[{"name": "v", "configMap": {"name": "lifecycle"}}]),
        "Succeeded",
    ),
    "run-as": (spec(container("test $(id -u) = 1234"), securityContext={"runAsUser": 1234}), "Succeeded"),
    "non-root": (spec(container("exit 0"), securityContext={"runAsNonRoot": True}), "CreateContainerConfigError"),
}

# Where the two differ, and why. Everything else must be equal.
KNOWN_DIFFERENCES: dict[str, set[str]] = {
    "no-command": {"containers"},  # the message names the runtime that failed: containerd and runc there, none here
}


def reached(pod: Object, goal: str) -> bool:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    if goal in ("Succeeded", "Failed", "Running"):
        return bool(status.get("phase") == goal)
    if goal in ("Ready", "Unready"):
        return bool(containers) and "running" in containers[0]["state"] and containers[0]["ready"] is (goal == "Ready")
    if goal == "Restarted":
        return bool(containers) and containers[0]["restartCount"] == 1 and "running" in containers[0]["state"]
    return any((one["state"].get("waiting") or {}).get("reason") == goal for one in containers)


def story(pod: Object, events: list[Object]) -> Object:
    """What must be the same: no times, ids, addresses or amounts."""
    status = pod["status"]

    def told(one: Object) -> Object:
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

    return {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "conditions": {one["type"]: (one["status"], one.get("reason")) for one in status["conditions"]},
        "containers": {one["name"]: told(one) for one in status.get("containerStatuses") or ()},
        "inits": {one["name"]: told(one) for one in status.get("initContainerStatuses") or ()},
        "events": sorted({one["reason"] for one in events} - {"Scheduled"}),
    }


async def live(client: Client, name: str, wanted: Object, goal: str) -> Object:
    full = f"lifecycle-{name}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": full},
        "spec": {**wanted, "automountServiceAccountToken": False},
    }
    created = await client.create(PODS, pod, "default")
    for _ in range(600):
        found = await client.get(PODS, full, "default")
        if reached(found, goal):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError(f"{name} never was {goal}: {found['status']}")
    await asyncio.sleep(0.7)  # events are written behind
    events = [
        one
        for one in (await client.list(EVENTS, "default")).items
        if one["involvedObject"].get("uid") == created["metadata"]["uid"]
    ]
    await client.delete(PODS, full, "default", grace=0)
    return story(found, events)


async def prepare(client: Client) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lifecycle"}, "data": {"key": "value"}}
    if await client.find(CONFIG_MAPS, "lifecycle", "default") is None:
        await client.create(CONFIG_MAPS, config, "default")


@pytest.fixture
async def real() -> AsyncIterator[Client]:
    named = os.environ.get("TORCHYARD_REAL_NODE", "")
    if not named:
        pytest.skip("no cluster with a real kubelet is named by TORCHYARD_REAL_NODE")
    transport = HttpTransport(kubeconfig.load(Path(named)), user_agent="lifecycles")
    client = Client(transport, manager="lifecycles")
    await prepare(client)
    yield client
    await transport.close()


@pytest.fixture
async def ours(tmp_path: Path) -> AsyncIterator[Client]:
    support.need_network()
    settings = Settings(state=tmp_path / "state", port=0, node=True, node_name="here")
    try:
        async with Plane(settings) as plane:
            assert plane.agent
            await plane.agent.ready.wait()
            client = plane.client("lifecycles")
            await prepare(client)
            yield client
    finally:
        await stop_pods(settings.state / "node")


async def test_both_nodes_tell_the_same_story(real: Client, ours: Client) -> None:
    limit = asyncio.Semaphore(3)

    async def one(client: Client, name: str) -> Object:
        async with limit:
            return await live(client, name, *LIFECYCLES[name])

    wanted = dict(zip(LIFECYCLES, await asyncio.gather(*(one(real, name) for name in LIFECYCLES)), strict=True))
    found = dict(zip(LIFECYCLES, await asyncio.gather(*(one(ours, name) for name in LIFECYCLES)), strict=True))
    different = {}
    for name in LIFECYCLES:
        keys = {key for key in wanted[name] if wanted[name][key] != found[name][key]} - KNOWN_DIFFERENCES.get(
            name, set()
        )
        if keys:
            different[name] = {key: {"kubelet": wanted[name][key], "torchyard": found[name][key]} for key in keys}
    assert different == {}
