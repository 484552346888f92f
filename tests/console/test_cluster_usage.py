"""Curves of a cluster, from what metrics.k8s.io answers to this user."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.errors import StatusError
from torchyard.console.cluster_usage import ClusterUsage
from torchyard.kube.client import Client, Unreachable

ALL, OWN = "/apis/metrics.k8s.io/v1beta1/pods", "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"
POD = {
    "metadata": {"name": "mnist-worker-0", "namespace": "team", "labels": {"training.kubeflow.org/job-name": "mnist"}},
    "containers": [{"name": "pytorch", "usage": {"cpu": "250m", "memory": "1Gi"}}],
}


class Answers(Client):
    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.asked_for = answers, list[str]()

    async def raw(self, method: str, path: str, body: Any = None) -> Any:
        self.asked_for.append(path)
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_usage_is_recorded_and_what_was_before_is_unknown() -> None:
    sampler = ClusterUsage(Answers({ALL: {"items": [POD]}}), "team")
    assert await sampler.sample()
    document = sampler.document("team", "pytorchjobs.kubeflow.org", "mnist", 0.0)
    assert {(series["name"], series["replica"], series["points"][0][1]) for series in document["series"]} == {
        ("cpu", "worker-0", 0.25),
        ("memory", "worker-0", 1 << 30),
    }
    assert document["lostBefore"] > 0


@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_a_user_without_rights_reads_the_namespace_of_the_context_or_nothing(status: int) -> None:
    refused = StatusError(status, "", "refused")
    client = Answers({ALL: refused, OWN: {"items": [POD]}})
    assert await ClusterUsage(client, "team").sample()
    assert client.asked_for == [ALL, OWN]
    assert not await ClusterUsage(Answers({ALL: refused, OWN: refused}), "team").sample()


async def test_a_server_that_does_not_respond_is_asked_again_soon() -> None:
    assert await ClusterUsage(Answers({ALL: Unreachable("no")}), "team").sample()
