"""Plays a history in a namespace and describes the workloads at every quiet point, without names and times.

The descriptions of the real kube-controller-manager are in `recorded.json` beside this file.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchyard.api.errors import StatusError
from torchyard.api.gvr import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
)
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.kube.client import Client

RECORDED = Path(__file__).with_name("recorded.json")
KINDS = {
    "Deployment": DEPLOYMENTS,
    "ReplicaSet": REPLICA_SETS,
    "StatefulSet": STATEFUL_SETS,
    "DaemonSet": DAEMON_SETS,
    "ReplicationController": REPLICATION_CONTROLLERS,
    "PodDisruptionBudget": POD_DISRUPTION_BUDGETS,
    "ResourceQuota": RESOURCE_QUOTAS,
    "Job": JOBS,
    "Pod": PODS,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
}
_DESCRIBED = {
    "deployments": DEPLOYMENTS,
    "replicasets": REPLICA_SETS,
    "statefulsets": STATEFUL_SETS,
    "daemonsets": DAEMON_SETS,
    "replicationcontrollers": REPLICATION_CONTROLLERS,
    "budgets": POD_DISRUPTION_BUDGETS,
    "revisions": CONTROLLER_REVISIONS,
    "claims": PERSISTENT_VOLUME_CLAIMS,
    "pods": PODS,
}
_COMPONENTS = ("deployment", "replicaset", "replication-", "statefulset", "daemonset", "controllermanager")
# Which of the two stays depends on whether the ReplicaSet's status arrives before the Deployment's is written.
_PROGRESS = ("NewReplicaSetCreated", "ReplicaSetUpdated")
Settle = Callable[["Player", int], Awaitable[Object]]


class Player:
    """One history in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self._labels: dict[str, str] = {}  # what stands for a generated name
        self._counts: dict[str, int] = {}

    async def step(self, operation: str, *arguments: Any) -> None:
        await getattr(self, f"_{operation.replace('-', '_')}")(*arguments)

    async def _create(self, obj: Object) -> None:
        await self.client.create(KINDS[obj["kind"]], obj, self.namespace)

    async def _patch(self, kind: str, name: str, patch: Object) -> None:
        await self.client.patch(KINDS[kind], name, patch, self.namespace, kind="strategic")

    async def _delete(self, kind: str, name: str, propagation: str = "Background") -> None:
        await self.client.delete(KINDS[kind], name, self.namespace, propagation=propagation)

    async def _await(self, kind: str, name: str, condition: str, status: str) -> None:
        for _ in range(600):
            obj = await self.client.get(KINDS[kind], name, self.namespace)
            conditions = {entry["type"]: entry["status"] for entry in (obj.get("status") or {}).get("conditions") or ()}
            if conditions.get(condition) == status:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{kind} {name} has {conditions}, not {condition}={status}")

    async def _await_quota(self) -> None:
        """Until the quota is enforced."""
        for _ in range(600):
            quotas = (await self.client.list(RESOURCE_QUOTAS, self.namespace)).items
            if all((quota.get("status") or {}).get("hard") for quota in quotas):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the quota has no status")

    async def pods(self) -> list[Object]:
        """Active pods in an order that both sides share: by owner and state. Names are random."""
        pods = (await self.client.list(PODS, self.namespace)).items
        active = [
            pod
            for pod in pods
            if pod["status"].get("phase") not in ("Succeeded", "Failed")
            and not pod["metadata"].get("deletionTimestamp")
        ]
        return sorted(
            active, key=lambda pod: (self._owner(pod), _is_ready(pod), pod["status"]["phase"], pod["metadata"]["name"])
        )

    def _owner(self, pod: Object) -> str:
        for owner in pod["metadata"].get("ownerReferences") or ():
            return self._labels.get(owner["name"], str(owner["name"]))
        return ""

    async def _ready(self, count: int = 1) -> None:
        """Make the first pods of the newest owner that are not ready run and be ready."""
        pods = [pod for pod in reversed(await self.pods()) if not _is_ready(pod)]
        for pod in pods[:count]:
            await self._report(pod, "Running", ready=True)

    async def _unready(self) -> None:
        for pod in [pod for pod in await self.pods() if _is_ready(pod)][:1]:
            await self._report(pod, "Running", ready=False)

    async def _fail(self) -> None:
        for pod in (await self.pods())[:1]:
            await self._report(pod, "Failed", ready=False)

    async def _succeed(self) -> None:
        for pod in (await self.pods())[:1]:
            await self._report(pod, "Succeeded", ready=False)

    async def _delete_pod(self, name: str = "") -> None:
        for pod in [pod for pod in await self.pods() if name in ("", pod["metadata"]["name"])][:1]:
            await self.client.delete(PODS, pod["metadata"]["name"], self.namespace, grace=0)

    async def _relabel(self, labels: dict[str, str]) -> None:
        for pod in (await self.pods())[:1]:
            await self.client.patch(PODS, pod["metadata"]["name"], {"metadata": {"labels": labels}}, self.namespace)

    async def _touch_pods(self) -> None:
        """Change the pods, so that their owners are looked at without waiting for a back-off to end."""
        for pod in await self.pods():
            patch = {"metadata": {"annotations": {"touched": "yes"}}}
            await self.client.patch(PODS, pod["metadata"]["name"], patch, self.namespace)

    async def _report(self, pod: Object, phase: str, *, ready: bool) -> None:
        now = to_rfc3339(datetime.now(UTC))
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": now}
        status = {"phase": phase, "conditions": [condition]}
        await self.client.patch(PODS, pod["metadata"]["name"], {"status": status}, self.namespace, subresource="status")

    async def _evict(self, name: str = "") -> None:
        """Evict a ready pod; the answer is part of the description."""
        for pod in [pod for pod in await self.pods() if name in ("", pod["metadata"]["name"])][:1]:
            own = pod["metadata"]["name"]
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": own}}
            try:
                await self.client.create(PODS, body, self.namespace, name=own, subresource="eviction")
                self.answer = "evicted"
            except StatusError as error:
                causes = [cause.get("message") for cause in (error.details or {}).get("causes") or ()]
                self.answer = f"{error.status} {error.reason} {error.message} {causes}"

    answer = ""

    async def describe(self) -> Object:
        """Everything the controllers are responsible for."""
        objects = {name: (await self.client.list(ref, self.namespace)).items for name, ref in _DESCRIBED.items()}
        events = (await self.client.list(EVENTS, self.namespace)).items
        self._learn(objects)
        described: Object = {
            name: [_DESCRIBERS.get(name, _status)(obj) for obj in items] for name, items in objects.items()
        }
        described["pods"] = [{**_pod(pod), "owner": self._owner(pod)} for pod in objects["pods"]]
        described["events"] = _events(events)
        if self.answer:
            described["answer"] = [self.answer]
        plain = json.loads(self._anonymous(json.dumps(described)))
        plain["events"] = {json.dumps(event) for event in plain["events"]}  # repetitions are counted, or combined
        return {name: _sorted(value) for name, value in plain.items() if value}

    def _learn(self, objects: dict[str, list[Object]]) -> None:
        """Give every generated name a label: those of ReplicaSets and revisions in the order of their creation."""
        for name in ("replicasets", "revisions"):
            for obj in sorted(objects[name], key=_age):
                owners = obj["metadata"].get("ownerReferences") or ()
                label = f"{owners[0]['name']}#" if owners else ""
                own = obj["metadata"]["name"]
                is_generated = own not in self._labels and (label or "-" in own)
                if is_generated:
                    label = label or f"{own.rsplit('-', 1)[0]}#"
                    self._counts[label] = self._counts.get(label, 0) + 1
                    self._labels[own] = f"{label}{self._counts[label]}"

    def _anonymous(self, text: str) -> str:
        for name in sorted(self._labels, key=len, reverse=True):
            text = text.replace(name, self._labels[name])
            text = text.replace(name.rsplit("-", 1)[-1], "HASH") if "-" in name else text
        text = re.sub(r"(web#\d+|web)-[bcdfghjklmnpqrstvwxz2456789]{5}\b", r"\1-*", text)
        # Which node's pod is updated first is random.
        return re.sub(r"node-[ab]\b", "NODE", text).replace(self.namespace, "NAMESPACE")


def _age(obj: Object) -> tuple[int, str]:
    annotations = obj["metadata"].get("annotations") or {}
    number = obj.get("revision") or annotations.get("deployment.kubernetes.io/revision") or 0
    return int(number), obj["metadata"]["creationTimestamp"]


def _is_ready(pod: Object) -> bool:
    return any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"].get("conditions") or ()
    )


def _sorted(value: Any) -> Any:
    if isinstance(value, set):
        return [json.loads(item) for item in sorted(value)]
    return sorted(value, key=lambda item: json.dumps(item, sort_keys=True)) if isinstance(value, list) else value


def _status(obj: Object) -> Object:
    status = dict(obj.get("status") or {})
    conditions = {entry["type"]: _condition(entry) for entry in status.pop("conditions", None) or ()}
    spec = obj.get("spec") or {}
    return {
        "name": obj["metadata"]["name"],
        "annotations": obj["metadata"].get("annotations") or {},
        "owners": _owners(obj),
        "status": status,
        "conditions": conditions,
        "replicas": spec.get("replicas"),
        "terminating": bool(obj["metadata"].get("deletionTimestamp")),
    }


def _events(events: list[Object]) -> list[list[str]]:
    """What the controllers report. client-go combines the tenth and later events of a reason about an object."""
    texts: dict[tuple[str, ...], list[str]] = {}
    for event in events:
        if event["source"].get("component", "").startswith(_COMPONENTS):
            about = event["involvedObject"]
            key = (about["kind"], about["uid"], event["type"], event["reason"])
            texts.setdefault(key, []).append(event["message"])
    described = []
    for (kind, _uid, severity, reason), messages in texts.items():
        is_combined = len(messages) >= 10 or any(text.startswith("(combined ") for text in messages)
        described += [[kind, severity, reason, text] for text in (["(many)"] if is_combined else messages)]
    return described


def _condition(entry: Object) -> list[str]:
    if entry.get("reason") in _PROGRESS:
        return [entry["status"], " or ".join(_PROGRESS)]
    return [entry["status"], entry.get("reason", ""), entry.get("message", "")]


def _owners(obj: Object) -> list[Object]:
    return [
        {key: value for key, value in owner.items() if key != "uid"}
        for owner in obj["metadata"].get("ownerReferences") or ()
    ]


def _revision(obj: Object) -> Object:
    return {
        "name": obj["metadata"]["name"],
        "revision": obj["revision"],
        "labels": obj["metadata"].get("labels"),
        "annotations": obj["metadata"].get("annotations"),
        "owners": _owners(obj),
        "data": obj["data"],
    }


def _claim(obj: Object) -> Object:
    return {
        "name": obj["metadata"]["name"],
        "labels": obj["metadata"].get("labels"),
        "owners": _owners(obj),
        "terminating": bool(obj["metadata"].get("deletionTimestamp")),
    }


def _pod(pod: Object) -> Object:
    spec = pod["spec"]
    kinds = {owner["kind"] for owner in pod["metadata"].get("ownerReferences") or ()}
    is_daemon, is_random = "DaemonSet" in kinds, "generateName" in pod["metadata"] and "StatefulSet" not in kinds
    placed = {"affinity": spec.get("affinity"), "tolerations": spec.get("tolerations")} if is_daemon else {}
    return {
        **placed,
        "name": "*" if is_random else pod["metadata"]["name"],
        "labels": {key: value for key, value in (pod["metadata"].get("labels") or {}).items() if "uid" not in key},
        "owners": _owners(pod),
        "phase": pod["status"].get("phase"),
        "ready": _is_ready(pod),
        "image": spec["containers"][0]["image"],
        "hostname": spec.get("hostname"),
        "subdomain": spec.get("subdomain"),
        "volumes": [v["persistentVolumeClaim"] for v in spec.get("volumes") or () if "persistentVolumeClaim" in v],
        "terminating": bool(pod["metadata"].get("deletionTimestamp")),
    }


_DESCRIBERS: dict[str, Callable[[Object], Object]] = {"revisions": _revision, "claims": _claim, "pods": _pod}


def load() -> dict[str, list[Object]]:
    """The recorded descriptions by history and step. Equal parts are stored once."""
    recorded = json.loads(RECORDED.read_text())
    parts = recorded["parts"]
    return {
        name: [{part: [parts[index] for index in items] for part, items in point.items()} for point in points]
        for name, points in recorded["histories"].items()
    }


def save(histories: dict[str, list[Object]]) -> None:
    indexes: dict[str, int] = {}

    def index(item: Any) -> int:
        return indexes.setdefault(json.dumps(item, sort_keys=True), len(indexes))

    packed = {
        name: [{part: [index(item) for item in items] for part, items in sorted(point.items())} for point in points]
        for name, points in sorted(histories.items())
    }
    lines = ",\n".join(indexes)
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(points)}" for name, points in packed.items())
    RECORDED.write_text(f'{{"parts": [\n{lines}\n],\n"histories": {{\n{rows}\n}}}}\n')


async def namespace(client: Client, name: str) -> str:
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    while await client.find(SERVICE_ACCOUNTS, "default", name) is None:
        await asyncio.sleep(0.05)
    return name


async def nodes(client: Client, *names: str) -> None:
    """Nodes without a kubelet, for DaemonSets."""
    for name in names or ("node-a", "node-b"):
        labels = {"kubernetes.io/hostname": name, "disk": "ssd" if name.endswith("a") else "hdd"}
        if await client.find(NODES, name) is None:
            await client.create(NODES, {"metadata": {"name": name, "labels": labels}})


async def play(player: Player, steps: list[list[Any]], settle: Settle) -> list[Object]:
    """The description after each step."""
    points = []
    for number, step in enumerate(steps):
        await player.step(*step)
        points.append(await settle(player, number))
    return points


async def until_quiet(player: Player, _number: int, *, seconds: float = 1.5) -> Object:
    """When nothing has changed for a while: for the recording only."""
    last, since = await player.describe(), asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - since < seconds:
        await asyncio.sleep(0.25)
        now = await player.describe()
        if now != last:
            last, since = now, asyncio.get_running_loop().time()
    return last


def differences(expected: Object, actual: Object) -> dict[str, Any]:
    """By part: what is missing and what is too much."""
    return {
        name: {
            "missing": [item for item in expected.get(name, []) if item not in actual.get(name, [])],
            "extra": [item for item in actual.get(name, []) if item not in expected.get(name, [])],
        }
        for name in sorted(expected.keys() | actual.keys())
        if expected.get(name) != actual.get(name)
    }


__all__ = ["RECORDED", "Player", "differences", "load", "namespace", "nodes", "play", "save", "until_quiet"]
