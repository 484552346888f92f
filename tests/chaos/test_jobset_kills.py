"""The plane is killed while JobSets restart, are suspended and resumed: nothing is lost, and no pod is made twice.

The test is the kubelet: it lets pods fail and succeed. No node runs them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.support.effort import FULL, rounds
from tests.support.yard import Yard

from torchyard.api.conditions import has_true_condition
from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import JOBS, PODS
from torchyard.api.jobset import names
from torchyard.api.metadata import is_terminating
from torchyard.controllers.jobset import JOBSETS
from torchyard.kube.client import Client, Unreachable
from torchyard.kube.http import HttpTransport
from torchyard.kube.informer import Informer
from torchyard.kube.kubeconfig import load as connection_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200 if FULL else 300)]

Object = dict[str, Any]
JOBSET_COUNT, PODS_EACH = 6, 6
_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
_INDEX = "batch.kubernetes.io/job-completion-index"
_CONTROLLERS = "jobset,job-controller,garbage-collector-controller,namespace-controller,serviceaccount-controller"
_TRACKING = "batch.kubernetes.io/job-tracking"
_ENDED = ("Succeeded", "Failed")


def _jobset(name: str) -> Object:
    """Three Jobs of two pods."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]}
    job = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": {"spec": pod}}
    jobs = [{"name": part, "replicas": count, "template": {"spec": job}} for part, count in (("a", 2), ("b", 1))]
    spec = {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 100_000}}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}


def _is_active(pod: Object) -> bool:
    return not is_terminating(pod) and (pod.get("status") or {}).get("phase") not in _ENDED


class JobSetLoad:
    """Does random things to the JobSets, and checks every change of a pod."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client, self.random = client, random.Random(seed)
        self.problems: list[str] = []
        # The attempts of each JobSet that a failed pod ended, and those of which the answer was lost, or that a
        # suspension may have ended first: as upstream, a Job that is suspended forgets the pods it deletes.
        self.failed: dict[str, set[str]] = defaultdict(set)
        self.perhaps: dict[str, set[str]] = defaultdict(set)
        self.history: dict[str, list[str]] = defaultdict(list)  # for the message of a failed test
        self.pods = Informer(client, PODS, namespace="default")
        self.pods.on_change(self._changed)

    def _changed(self, change: str, pod: Object, _before: Object | None) -> None:
        if change != "ADDED" or not _is_active(pod):
            return
        job, index = pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"], _index(pod)
        same = [
            other["metadata"]["name"]
            for other in self.pods
            if _is_active(other)
            and other["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == job
            and _index(other) == index
        ]
        if len(same) > 1:
            self.problems.append(f"several pods with index {index} of one Job: {same}")

    async def call(self, work: Any) -> bool | None:
        """Whether a write has been done; None if the plane was killed and nobody knows."""
        try:
            await work
        except StatusError as error:
            if error.status >= 500:
                return None
            return False
        except (Unreachable, YardError):
            return None
        return True

    async def act(self) -> None:
        name = f"js-{self.random.randrange(JOBSET_COUNT)}"
        choice = self.random.random()
        if choice < 0.5:
            await self._fail_pod(name)
        else:
            change = {"spec": {"suspend": choice < 0.7}}
            done = await self.call(self.client.patch(JOBSETS, name, change, "default"))
            self.history[name].append(f"suspend={choice < 0.7}: {done}")

    async def _fail_pod(self, jobset: str) -> None:
        active = sorted(
            (
                pod
                for pod in self.pods
                if pod["metadata"]["labels"].get(names.JOBSET_NAME) == jobset and _is_active(pod)
            ),
            key=lambda pod: str(pod["metadata"]["name"]),
        )
        if not active:
            return
        pod = self.random.choice(active)
        attempt = pod["metadata"]["labels"][_ATTEMPT]
        runs: list[bool] = []

        async def fail() -> None:
            runs.append(await self._runs(jobset, pod))
            failed = await self._end(pod, "Failed")
            runs.append(_TRACKING in (failed["metadata"].get("finalizers") or ()))

        done = await self.call(fail())
        self.history[jobset].append(f"{pod['metadata']['name']} of attempt {attempt} failed: {done} {runs}")
        if done is not False:
            (self.failed if done and all(runs) else self.perhaps)[jobset].add(attempt)

    async def _runs(self, jobset: str, pod: Object) -> bool:
        """Whether neither the JobSet nor the pod's Job is suspended, or has its suspension still to be undone."""
        job = await self.client.get(JOBS, pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], "default")
        owner = await self.client.get(JOBSETS, jobset, "default")
        return not any(each["spec"].get("suspend") or has_true_condition(each, "Suspended") for each in (job, owner))

    async def _end(self, pod: Object, phase: str) -> Object:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": {"phase": phase}}
        return await self.client.patch(PODS, metadata["name"], patch, "default", subresource="status")

    async def settle(self) -> list[Object]:
        """Resume every JobSet, let all pods succeed, and return the JobSets at their end."""
        deadline = time.monotonic() + 120
        while True:
            jobsets = (await self.client.list(JOBSETS, "default")).items
            if all(has_true_condition(jobset, "Completed") for jobset in jobsets):
                return jobsets
            assert time.monotonic() < deadline, [jobset.get("status") for jobset in jobsets]
            for jobset in jobsets:
                if jobset["spec"].get("suspend"):
                    await self.client.patch(
                        JOBSETS, jobset["metadata"]["name"], {"spec": {"suspend": False}}, "default"
                    )
            await self._succeed(jobsets)
            await asyncio.sleep(0.1)

    async def _succeed(self, jobsets: list[Object]) -> None:
        """The pods of a JobSet when it has all of them: then no restart is under way."""
        for jobset in jobsets:
            attempt = str((jobset.get("status") or {}).get("restarts") or 0)
            labels = f"{names.JOBSET_NAME}={jobset['metadata']['name']},{_ATTEMPT}={attempt}"
            pods = [
                pod for pod in (await self.client.list(PODS, "default", labels=labels)).items if not is_terminating(pod)
            ]
            failed = [pod for pod in pods if pod["status"].get("phase") == "Failed"]
            if len(pods) == PODS_EACH and not failed:
                for pod in pods:
                    if _is_active(pod):
                        await self.call(self._end(pod, "Succeeded"))


def _index(pod: Object) -> str:
    return str(pod["metadata"]["annotations"][_INDEX])


async def _create(client: Client, ref: GroupVersionResource, obj: Object) -> None:
    await client.create(ref, obj, "default")


@pytest.mark.parametrize("seed", range(7, 7 + rounds(1, 5)))
async def test_kills_during_restarts_and_suspensions_lose_nothing_and_make_no_pod_twice(
    tmp_path: Path, seed: int
) -> None:
    kills = rounds(3, 40)
    yard = Yard(tmp_path, controllers=_CONTROLLERS)
    await asyncio.to_thread(yard.start)
    client = Client(HttpTransport(connection_of(yard.kubeconfig), user_agent="test"), manager="test")
    load = JobSetLoad(client, seed)
    informing = asyncio.create_task(load.pods.run())
    try:
        for number in range(JOBSET_COUNT):
            await _create(client, JOBSETS, _jobset(f"js-{number}"))
        for _ in range(kills):
            for _ in range(load.random.randint(1, 12)):
                await load.act()
            # In the middle of something: a write has just been answered, and the controllers react to it.
            acting = asyncio.create_task(load.act())
            await asyncio.to_thread(yard.kill)
            await acting
            await asyncio.to_thread(yard.start)
            assert load.problems == []
        jobsets = await load.settle()
        assert load.problems == []
        for jobset in jobsets:
            name, restarts = jobset["metadata"]["name"], int(jobset["status"].get("restarts") or 0)
            sure, perhaps = len(load.failed[name]), len(load.failed[name] | load.perhaps[name])
            assert sure <= restarts <= perhaps, (
                f"{name} has restarted {restarts} times after {sure} failures: {load.history[name]}"
            )
        jobs = (await client.list(JOBS, "default")).items
        assert len(jobs) == 3 * JOBSET_COUNT
        assert all(job["status"]["succeeded"] == 2 for job in jobs)
    finally:
        informing.cancel()
        await asyncio.gather(informing, return_exceptions=True)
        await client.close()
        await asyncio.to_thread(yard.stop)
