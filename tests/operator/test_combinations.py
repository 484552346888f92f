"""Combinations of kinds: TrainJobs need JobSets, and the controllers of several namespaces have one set of metrics."""

from __future__ import annotations

from typing import Any, cast

import pytest

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.controllers.jobset_metrics import JobSetMetrics
from torchyard.kube.client import Client
from torchyard.operator.checks import ClusterNotReady, check_trainjob_crds
from torchyard.operator.install import includes_trainjobs

TRAINER = ("trainjobs", "trainjobs/status", "trainingruntimes", "clustertrainingruntimes")
JOBSETS = ("jobsets", "jobsets/status")


class Discovery:
    """A cluster that serves these resources, and has no webhooks of upstream."""

    def __init__(self, *resources: str) -> None:
        self._resources = resources

    async def raw(self, _method: str, path: str) -> dict[str, Any]:
        is_jobset = "jobset.x-k8s.io" in path
        served = [name for name in self._resources if name.startswith("jobsets") is is_jobset]
        if not served:
            raise StatusError(404, "NotFound", "not found")
        return {"resources": [{"name": name} for name in served]}

    async def find(self, _ref: GroupVersionResource, _name: str) -> None:
        return None


def cluster(*resources: str) -> Client:
    return cast("Client", Discovery(*resources))


async def test_the_operator_names_what_train_jobs_lack() -> None:
    await check_trainjob_crds(cluster(*TRAINER, *JOBSETS), jobsets=False)
    await check_trainjob_crds(cluster(*TRAINER), jobsets=True)  # JobSets have a check of their own
    with pytest.raises(ClusterNotReady, match="TrainJobs need JobSets"):
        await check_trainjob_crds(cluster(*TRAINER), jobsets=False)
    for missing in TRAINER:
        served = [name for name in TRAINER if name != missing]
        with pytest.raises(ClusterNotReady, match=f"does not serve {missing} of trainer.kubeflow.org"):
            await check_trainjob_crds(cluster(*served, *JOBSETS), jobsets=False)


async def test_an_installation_without_jobsets_leaves_train_jobs_out_unless_upstream_serves_jobsets() -> None:
    output: list[str] = []
    assert await includes_trainjobs(cluster(), None, output.append, jobsets=True)
    assert await includes_trainjobs(cluster(*JOBSETS), None, output.append, jobsets=False)
    assert not await includes_trainjobs(cluster(), False, output.append, jobsets=False)
    assert output == []
    assert not await includes_trainjobs(cluster(), None, output.append, jobsets=False)
    assert output == ["TrainJobs are left out: they need JobSets, which this cluster does not serve"]
    with pytest.raises(YardError, match="TrainJobs need JobSets"):
        await includes_trainjobs(cluster(), True, output.append, jobsets=False)


def test_the_metrics_of_several_controllers_are_one_text() -> None:
    parts = [JobSetMetrics(), JobSetMetrics()]
    parts[0].ended("Failed", "a", "train")
    parts[1].ended("Failed", "b", "train")
    text = JobSetMetrics.merged(parts).text().decode()
    assert text.count("# TYPE jobset_failed_total counter") == 1
    for namespace in "ab":
        assert f'jobset_failed_total{{jobset_name="train",namespace="{namespace}"}} 1' in text
