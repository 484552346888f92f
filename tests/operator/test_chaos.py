"""The operator is killed at random points while jobs run: jobs end as without kills, no replica is created twice."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.support.effort import rounds
from tests.support.kubernetes import Server
from tests.support.operator import PODS, Installed
from tests.support.process import Process
from tests.support.pytorchjobs import job

from torchyard.api.conditions import has_true_condition
from torchyard.api.gvr import SERVICES
from torchyard.api.objects import Object
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.informer_factory import InformerFactory

pytestmark = pytest.mark.cluster
JOB_COUNT = rounds(4, 25)
KILLS = rounds(4, 50)
REPLICAS = 3


def operator(kubeconfig: Path, log: Path) -> Process:
    """Two replicas of a Deployment: one leads, the other waits."""
    command = [sys.executable, "-m", "torchyard.cli", "operator", "--kubeconfig", str(kubeconfig), "--no-webhook"]
    command += ["--host", "127.0.0.1", "--metrics-port", "0", "--health-port", "0", "--status-port", "0"]
    command += ["--samples-port", "0"]
    command += ["--beside-upstream"]
    return Process(command, log, env={"PYTHONPATH": os.pathsep.join(sys.path)})


class Kubelet:
    """Advances pods, and records every pod that was ever observed."""

    def __init__(self, installed: Installed, informers: InformerFactory) -> None:
        self._client = installed.admin
        self._pods = informers.for_resource(PODS)
        self.pod_uids: dict[str, set[str]] = {}
        self._pods.on_change(self._seen)

    def _seen(self, _change: str, pod: Object, _before: Object | None) -> None:
        self.pod_uids.setdefault(pod["metadata"]["name"], set()).add(pod["metadata"]["uid"])

    async def step(self) -> None:
        """Advance one random pod by one phase."""
        phases = {"Pending": "Running", "Running": "Succeeded"}
        waiting = [pod for pod in self._pods.all() if pod["status"].get("phase") in phases]
        if waiting:
            pod = random.choice(waiting)
            patch = {"status": {"phase": phases[pod["status"]["phase"]]}}
            metadata = pod["metadata"]
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")


async def test_an_operator_killed_repeatedly_loses_no_job_and_creates_nothing_twice(
    installed: Installed, kube: Server, tmp_path: Path
) -> None:
    random.seed(7)
    namespace = await installed.namespace("chaos")
    informers = InformerFactory(installed.admin, namespace=namespace)
    kubelet = Kubelet(installed, informers)
    watching = asyncio.create_task(informers.run())
    await informers.synced()
    copies = [operator(kube.kubeconfig, tmp_path / f"{name}.log") for name in ("a", "b")]
    for number in range(JOB_COUNT):
        manifest = job()
        manifest["metadata"] = {"name": f"train-{number}", "namespace": namespace}
        await installed.admin.create(JOBS, manifest)
    try:
        for _ in range(KILLS):
            for _ in range(random.randrange(4)):
                await kubelet.step()
            await asyncio.sleep(random.random() * 4)
            victim = random.randrange(2)
            copies[victim].kill()
            copies[victim] = operator(kube.kubeconfig, tmp_path / f"{'ab'[victim]}.log")

        async def all_succeeded() -> bool:
            await kubelet.step()
            jobs = (await installed.admin.list(JOBS, namespace)).items
            return all(has_true_condition(item, "Succeeded") for item in jobs) and len(jobs) == JOB_COUNT

        await installed.until(all_succeeded, seconds=240)
    finally:
        for copy in copies:
            copy.kill()
        watching.cancel()
        await asyncio.wait([watching])
    twice = {name: uids for name, uids in kubelet.pod_uids.items() if len(uids) > 1}
    assert not twice and len(kubelet.pod_uids) == JOB_COUNT * REPLICAS
    services = Counter(item["metadata"]["name"] for item in (await installed.admin.list(SERVICES, namespace)).items)
    assert len(services) == JOB_COUNT * REPLICAS and set(services.values()) == {1}
