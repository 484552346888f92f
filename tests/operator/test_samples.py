"""The curves that the operator keeps: what it records, who reads them, and through a real API server's proxy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.support.operator import ACCOUNTS, PODS, Installed, denied, running

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.progress import STATUS_ANNOTATION
from torchyard.api.samples import OPERATOR_NAMESPACE, OPERATOR_SERVICE, samples_path
from torchyard.console.forwarding import OWNER, ForwardingBackend
from torchyard.console.request import SampleQuery
from torchyard.controllers.pytorchjob import JOBS as PYTORCHJOBS
from torchyard.kube.client import Client
from torchyard.kube.http import HttpTransport
from torchyard.kube.informer import Informer
from torchyard.operator.samples import OperatorSamples
from torchyard.operator.settings import OperatorSettings

TORCH, BATCH = "training.kubeflow.org/job-name", "batch.kubernetes.io/job-name"
NOW = 1_800_000_000.0
JOB: Object = {
    "metadata": {
        "namespace": "team",
        "name": "mnist",
        "uid": "u-1",
        "annotations": {
            STATUS_ANNOTATION: json.dumps(
                {
                    "progressPercentage": 40,
                    "metrics": [{"name": "loss", "value": "0.5"}, {"name": "state", "value": "ok"}],
                    "lastUpdatedTime": "2026-01-01T00:00:00Z",
                }
            )
        },
    }
}


def pod(name: str, labels: dict[str, str]) -> Object:
    usage = {"cpu": "250m", "memory": "1Mi", "nvidia.com/gpu": "750m"}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "containers": [{"name": "main", "usage": usage}],
    }


class Metrics(Client):
    """Answers as metrics.k8s.io: the pods by the label that is selected."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.paths = answers, list[str]()

    async def raw(self, method: str, path: str, body: Any = None) -> Any:
        self.paths.append(path)
        answer = self.answers[path.partition("labelSelector=")[2]]
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer}


class Cache(Informer):
    """The jobs of one kind that the operator has seen."""

    def __init__(self, *jobs: Object) -> None:
        self.jobs = {(job["metadata"]["namespace"], job["metadata"]["name"]): job for job in jobs}
        self.handlers: list[Any] = []

    def on_change(self, handler: Any) -> None:
        self.handlers.append(handler)

    def get(self, namespace: str, name: str) -> Object | None:
        return self.jobs.get((namespace, name))

    def change(self, kind: str, job: Object, before: Object | None = None) -> None:
        self.jobs[job["metadata"]["namespace"], job["metadata"]["name"]] = job
        for handler in self.handlers:
            handler(kind, job, before)


def samples(client: Client, *jobs: Object, **settings: Any) -> tuple[OperatorSamples, Cache]:
    kept = OperatorSamples(client, OperatorSettings(**settings), leads=lambda: True, clock=lambda: NOW)
    cache = Cache(*jobs)
    kept.follow({"PyTorchJob": [cache]})
    return kept, cache


@contextlib.asynccontextmanager
async def served(kept: OperatorSamples) -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(kept.app())) as client:
        yield client


def curves(document: Object) -> dict[tuple[str, str], float]:
    return {(each["name"], each["replica"]): each["points"][-1][1] for each in document["series"]}


async def test_the_use_of_the_pods_of_jobs_and_their_progress_are_recorded() -> None:
    client = Metrics(
        {TORCH: [pod("mnist-worker-0", {TORCH: "mnist"}), pod("other-worker-0", {TORCH: "unmanaged"})], BATCH: []}
    )
    kept, cache = samples(client, JOB)
    assert await kept.measure()
    cache.change("ADDED", JOB)
    cache.change("MODIFIED", JOB, JOB)  # the same progress again
    async with served(kept) as http:
        response = await http.get(samples_path(("team", "pytorchjobs.kubeflow.org", "mnist"), 0, "u-1"))
        assert curves(await response.json()) == {
            ("cpu", "worker-0"): 0.25,
            ("memory", "worker-0"): 1 << 20,
            ("gpu", "worker-0"): 0.75,
            ("progress", ""): 40,
            ("loss", ""): 0.5,
        }
        for job, uid in (("mnist", "u-2"), ("mnist", ""), ("unmanaged", ""), ("unmanaged", "u-1")):
            refused = await http.get(samples_path(("team", "pytorchjobs.kubeflow.org", job), 0, uid))
            assert refused.status == 404, (job, uid)
        path = samples_path(("team", "pytorchjobs.kubeflow.org", "mnist"), 0, "u-1").replace("since=0", "since=nan")
        assert (await http.get(path)).status == 400


async def test_a_job_that_was_created_again_begins_with_new_curves() -> None:
    client = Metrics({TORCH: [pod("mnist-worker-0", {TORCH: "mnist"})], BATCH: []})
    kept, cache = samples(client, JOB)
    cache.change("ADDED", JOB)
    await kept.measure()
    cache.jobs["team", "mnist"] = {"metadata": {**JOB["metadata"], "uid": "u-2", "annotations": {}}}
    await kept.measure()
    async with served(kept) as http:
        path = ("team", "pytorchjobs.kubeflow.org", "mnist")
        assert (await http.get(samples_path(path, 0, "u-1"))).status == 404
        assert ("loss", "") not in curves(await (await http.get(samples_path(path, 0, "u-2"))).json())


async def test_plain_jobs_are_read_by_the_uid_in_the_labels_of_their_pods() -> None:
    labels = {BATCH: "plain", "batch.kubernetes.io/controller-uid": "u-9"}
    kept, _ = samples(Metrics({TORCH: [], BATCH: [pod("plain-x", labels)]}))
    await kept.measure()
    async with served(kept) as http:
        response = await http.get(samples_path(("team", "jobs.batch", "plain"), 0, "u-9"))
        assert ("cpu", "x") in curves(await response.json())
        assert (await http.get(samples_path(("team", "jobs.batch", "plain"), 0, ""))).status == 404
    chosen, _ = samples(Metrics({TORCH: [], BATCH: [pod("plain-x", labels)]}), selector="team=a")
    await chosen.measure()
    assert len(chosen.table) == 0, "an operator of some jobs does not know whose this one is"


@pytest.mark.parametrize("status", [403, 404, 503])
async def test_a_cluster_without_metrics_is_asked_rarely(status: int) -> None:
    refused = StatusError(status, "", "refused")
    kept, _ = samples(Metrics({TORCH: refused, BATCH: refused}), JOB)
    assert not await kept.measure()


async def test_more_pods_than_curves_keep_the_curves_of_those_that_were_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchyard.operator.samples.MAX_SERIES", 30)
    jobs = [{"metadata": {"namespace": "team", "name": f"job-{index}", "uid": f"u-{index}"}} for index in range(20)]
    client = Metrics({TORCH: [pod(f"job-{index}-worker-0", {TORCH: f"job-{index}"}) for index in range(20)], BATCH: []})
    kept, _ = samples(client, *jobs)
    for _ in range(3):
        await kept.measure()
    first = [f"job-{index}" for index in range(20) if kept.table.curves(("team", "PyTorchJob", f"job-{index}"))]  # type: ignore[arg-type]
    assert first == [f"job-{index}" for index in range(10)]


async def test_a_directory_keeps_the_curves_over_a_restart(tmp_path: Path) -> None:
    kept, cache = samples(Metrics({}), samples_directory=tmp_path)
    cache.change("ADDED", JOB)
    await kept.save()
    again, _ = samples(Metrics({}), JOB, samples_directory=tmp_path)
    await again.load()
    async with served(again) as http:
        response = await http.get(samples_path(("team", "pytorchjobs.kubeflow.org", "mnist"), 0, "u-1"))
        document = await response.json()
        assert curves(document) == {("progress", ""): 40, ("loss", ""): 0.5} and document["lostBefore"] is None
    follower = OperatorSamples(Metrics({}), OperatorSettings(samples_directory=tmp_path / "none"), leads=lambda: False)
    await follower.save()
    assert not (tmp_path / "none").exists(), "only the leader writes"


def own_address() -> str:
    """An address of this machine that the API server's proxy may connect to: not a loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])


@pytest.mark.cluster
async def test_a_user_reads_the_curves_of_a_job_through_the_api_server(installed: Installed) -> None:
    address = own_address()
    if not address or address.startswith("127."):
        pytest.skip("this machine has only loopback addresses")
    namespace = await installed.namespace("samples")
    async with running(installed, host="0.0.0.0") as operator:
        await route_to(installed, address, operator.ports["samples"])
        replica = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "busybox"}]}}}
        kind = {"apiVersion": PYTORCHJOBS.api_version, "kind": "PyTorchJob"}
        body = {"metadata": {"name": "mnist"}, "spec": {"pytorchReplicaSpecs": {"Master": replica}}}
        await installed.admin.create(PYTORCHJOBS, {**kind, **body}, namespace)
        change = {"metadata": {"annotations": JOB["metadata"]["annotations"]}}
        await installed.admin.patch(PYTORCHJOBS, "mnist", change, namespace)
        query = SampleQuery(namespace, "pytorchjobs.kubeflow.org", "mnist", 0.0)
        async with backend_of(installed, namespace, "reader", jobs=True) as reader:

            async def arrived() -> bool:
                return curves(await reader.samples(OWNER, query)) == {("progress", ""): 40, ("loss", ""): 0.5}

            await installed.until(arrived)
        async with backend_of(installed, namespace, "stranger", jobs=False) as stranger:
            assert (await stranger.samples(OWNER, query))["series"] == []
        assert denied(operator) == []
    await installed.admin.delete(PODS, "samples-test", OPERATOR_NAMESPACE)


async def route_to(installed: Installed, address: str, port: int) -> None:
    """Nothing assigns endpoints here: the Service of the installation leads to the operator of this test.

    The API server connects only to the address of a pod of the Service's namespace.
    """
    spec = {
        "containers": [
            {
                "name": "operator",
                "image": "operator",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    await installed.admin.create(PODS, {"metadata": {"name": "samples-test"}, "spec": spec}, OPERATOR_NAMESPACE)
    status = {"podIP": address, "podIPs": [{"ip": address}]}
    await installed.admin.patch(PODS, "samples-test", {"status": status}, OPERATOR_NAMESPACE, subresource="status")
    reference = {"kind": "Pod", "name": "samples-test", "namespace": OPERATOR_NAMESPACE}
    subset = {"addresses": [{"ip": address, "targetRef": reference}], "ports": [{"name": "samples", "port": port}]}
    body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": OPERATOR_SERVICE}, "subsets": [subset]}
    endpoints = GroupVersionResource("", "v1", "endpoints")
    await installed.admin.patch(endpoints, OPERATOR_SERVICE, body, OPERATOR_NAMESPACE, kind="apply", force=True)


@contextlib.asynccontextmanager
async def backend_of(
    installed: Installed, namespace: str, user: str, *, jobs: bool
) -> AsyncIterator[ForwardingBackend]:
    """The console's backend of a service account, which may read jobs or nothing."""
    await installed.admin.create(ACCOUNTS, {"metadata": {"name": user}}, namespace)
    if jobs:
        rbac = "rbac.authorization.k8s.io"
        rule = {"apiGroups": [PYTORCHJOBS.group], "resources": [PYTORCHJOBS.plural], "verbs": ["get"]}
        roles, bindings = (GroupVersionResource(rbac, "v1", each) for each in ("roles", "rolebindings"))
        await installed.admin.create(roles, {"metadata": {"name": user}, "rules": [rule]}, namespace)
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": user},
            "subjects": [{"kind": "ServiceAccount", "name": user, "namespace": namespace}],
        }
        await installed.admin.create(bindings, binding, namespace)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{quote(user)}/token"
    answer = await installed.admin.raw("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
    connection = replace(installed.account, token=answer["status"]["token"])

    async def no_history(_: Client) -> list[Any]:
        return []

    transport = HttpTransport(connection, user_agent="test")
    try:
        yield ForwardingBackend(transport, context="test", namespace=namespace, read_history=no_history)
    finally:
        await transport.close()
        await asyncio.sleep(0.05)
