"""What clients do during a soak: objects of every kind are created, changed, watched and deleted."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.gvr import CONFIG_MAPS, PODS
from torchyard.kube.client import Client

Object = dict[str, Any]

_NAMESPACES = 4
_SHORT = ["sh", "-c", "echo started; sleep 1; exit 0"]
_CORE = "/api/v1"


def _container(command: list[str], name: str = "main", cpu: str = "10m") -> Object:
    resources = {"requests": {"cpu": cpu}}
    return {"name": name, "image": "busybox", "command": command, "resources": resources}


def _pod_spec(**spec: Any) -> Object:
    return {
        "containers": [_container(_SHORT)],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        **spec,
    }


class Work:
    """Random work until cancelled. `counts` is how often each kind was done, `failures` how many requests failed."""

    def __init__(self, client: Client, random: Random, *, pause: float) -> None:
        self._client, self._random, self._pause = client, random, pause
        self._numbers = itertools.count()
        self.counts: Counter[str] = Counter()
        self.failures = 0
        self._kinds: list[Callable[[str, str], Awaitable[None]]] = [
            self._config_maps, self._config_maps, self._pod, self._job, self._pytorchjob, self._queued_job,
            self._service, self._claim, self._waiting_pod, self._pending_claim, self._watch, self._namespace,
            self._apply, self._cron_job, self._list,
        ]  # fmt: skip

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(_NAMESPACES):
                group.create_task(self._work_in(f"soak-{number}"))

    async def _work_in(self, namespace: str) -> None:
        while True:
            await self._attempt(self._ensure_namespace(namespace))
            name, kind = f"o-{next(self._numbers)}", self._random.choice(self._kinds)
            await self._attempt(kind(namespace, name))
            self.counts[kind.__name__.lstrip("_")] += 1
            await asyncio.sleep(self._pause * (0.5 + self._random.random()))

    async def _attempt(self, work: Awaitable[None]) -> None:
        """The plane may be down just now, or another task deletes what this one uses."""
        try:
            async with asyncio.timeout(120):
                await work
        except (YardError, TimeoutError, OSError):
            self.failures += 1
            await asyncio.sleep(0.2)

    async def _ensure_namespace(self, name: str) -> None:
        try:
            await self._client.raw("GET", f"{_CORE}/namespaces/{name}")
        except YardError:
            await self._create(f"{_CORE}/namespaces", {"metadata": {"name": name}})
            await self._create(
                f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{name}/localqueues",
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta2",
                    "kind": "LocalQueue",
                    "metadata": {"name": "soak"},
                    "spec": {"clusterQueue": "default"},
                },
            )

    async def _create(self, path: str, obj: Object) -> Object:
        return await self._client.raw("POST", path, obj)

    async def _delete(self, path: str) -> None:
        await self._client.raw("DELETE", path, {"propagationPolicy": "Background"})

    async def _hold(self) -> None:
        await asyncio.sleep(self._random.uniform(0.5, 4.0))

    async def _create_and_delete(self, path: str, obj: Object) -> None:
        await self._create(path, obj)
        try:
            await self._hold()
        finally:
            await self._delete(f"{path}/{obj['metadata']['name']}")

    async def _config_maps(self, namespace: str, name: str) -> None:
        path = f"{_CORE}/namespaces/{namespace}/configmaps"
        names = [f"{name}-{number}" for number in range(10)]
        for each in names:
            await self._create(path, {"metadata": {"name": each}, "data": {"value": "x" * 500}})
        for each in names:
            await self._client.raw("PUT", f"{path}/{each}", {"metadata": {"name": each}, "data": {"value": "y" * 900}})
        for each in names:
            await self._delete(f"{path}/{each}")

    async def _pod(self, namespace: str, name: str) -> None:
        pod = {"metadata": {"name": name, "labels": {"app": "soak"}}, "spec": _pod_spec()}
        await self._create_and_delete(f"{_CORE}/namespaces/{namespace}/pods", pod)

    async def _waiting_pod(self, namespace: str, name: str) -> None:
        spec = _pod_spec(containers=[_container(_SHORT, cpu=str(self._random.choice((1000, 2000, 3000))))])
        await self._create_and_delete(
            f"{_CORE}/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": spec}
        )

    def _job_object(self, name: str, **spec: Any) -> Object:
        return {"metadata": {"name": name}, "spec": {"parallelism": 2, "template": {"spec": _pod_spec()}, **spec}}

    async def _job(self, namespace: str, name: str) -> None:
        await self._create_and_delete(f"/apis/batch/v1/namespaces/{namespace}/jobs", self._job_object(name))

    async def _queued_job(self, namespace: str, name: str) -> None:
        job = self._job_object(name, suspend=True)
        job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "soak"}
        await self._create_and_delete(f"/apis/batch/v1/namespaces/{namespace}/jobs", job)

    async def _cron_job(self, namespace: str, name: str) -> None:
        job_template = {"spec": self._job_object(name)["spec"]}
        spec = {"schedule": "* * * * *", "jobTemplate": job_template}
        await self._create_and_delete(
            f"/apis/batch/v1/namespaces/{namespace}/cronjobs", {"metadata": {"name": name}, "spec": spec}
        )

    async def _pytorchjob(self, namespace: str, name: str) -> None:
        template = {"spec": _pod_spec(containers=[_container(_SHORT, "pytorch")])}
        replica = {"replicas": 1, "restartPolicy": "Never", "template": template}
        job = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name},
            "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
        }
        await self._create_and_delete(f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs", job)

    async def _service(self, namespace: str, name: str) -> None:
        service = {"metadata": {"name": name}, "spec": {"selector": {"app": "soak"}, "ports": [{"port": 80}]}}
        await self._create_and_delete(f"{_CORE}/namespaces/{namespace}/services", service)

    def _claim_object(self, name: str, **spec: Any) -> Object:
        requests = {"requests": {"storage": "1Mi"}}
        return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": requests, **spec}}

    async def _claim(self, namespace: str, name: str) -> None:
        path = f"{_CORE}/namespaces/{namespace}/persistentvolumeclaims"
        await self._create(path, self._claim_object(name))
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        try:
            pod = {"metadata": {"name": name}, "spec": _pod_spec(volumes=[volume])}
            await self._create_and_delete(f"{_CORE}/namespaces/{namespace}/pods", pod)
        finally:
            await self._delete(f"{path}/{name}")

    async def _pending_claim(self, namespace: str, name: str) -> None:
        claim = self._claim_object(name, storageClassName="missing")
        await self._create_and_delete(f"{_CORE}/namespaces/{namespace}/persistentvolumeclaims", claim)

    async def _namespace(self, namespace: str, _name: str) -> None:
        """Delete the namespace with everything in it; another turn creates it again."""
        if self._random.random() < 0.3:
            await self._delete(f"{_CORE}/namespaces/{namespace}")

    async def _apply(self, namespace: str, name: str) -> None:
        for number in range(5):
            applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": str(number)}}
            await self._client.patch(CONFIG_MAPS, name, applied, namespace, kind="apply", force=True)
        await self._delete(f"{_CORE}/namespaces/{namespace}/configmaps/{name}")

    async def _list(self, _namespace: str, _name: str) -> None:
        for path in ("pods", "events", "configmaps"):
            await self._client.raw("GET", f"{_CORE}/{path}")

    async def _watch(self, namespace: str, _name: str) -> None:
        async for _ in self._client.watch(PODS, namespace, initial=True, seconds=self._random.randint(1, 3)):
            pass
