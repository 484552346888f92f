"""Progress under the operator on a real API server: the endpoint of TrainJobs, and logs from a kubelet of the test."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.operator.test_trainjobs import train_job
from tests.support.operator import ACCOUNTS, Installed, denied, running

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CONFIG_MAPS, NODES, PODS
from torchyard.api.gvr import JOBS as BATCH_JOBS
from torchyard.api.objects import Object
from torchyard.api.progress import progress_text_of, trainer_status_of
from torchyard.api.trainjob import environment, names
from torchyard.apiserver.access.certificates import ensure_server
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.pytorchjob import JOBS as PYTORCHJOBS
from torchyard.controllers.trainjob import TRAINJOBS
from torchyard.operator.operator import Operator

pytestmark = pytest.mark.cluster
_NODE = "progress-node"


@dataclass
class Kubelet:
    """Answers the API server's requests for logs: the last lines of `logs`, by pod."""

    logs: dict[str, list[str]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)  # pod and container

    async def show(self, request: web.Request) -> web.Response:
        pod, container = request.match_info["pod"], request.match_info["container"]
        self.asked.append((pod, container))
        assert request.query["timestamps"] == "true"
        lines = self.logs.get(pod, [])[-int(request.query["tailLines"]) :]
        return web.Response(text="".join(f"{line}\n" for line in lines))


@contextlib.asynccontextmanager
async def kubelet(installed: Installed, directory: Path) -> AsyncIterator[Kubelet]:
    credentials = ensure_server(directory, names=["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(credentials.server_certificate, credentials.server_key)
    answers, app = Kubelet(), web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", answers.show)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    await installed.admin.create(NODES, {"metadata": {"name": _NODE}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}},
    }
    await installed.admin.patch(NODES, _NODE, {"status": status}, subresource="status")
    try:
        yield answers
    finally:
        await installed.admin.delete(NODES, _NODE)
        await runner.cleanup()


async def run_pod(installed: Installed, namespace: str, name: str) -> None:
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": _NODE}}
    await installed.admin.create(PODS, binding, namespace, name=name, subresource="binding")
    await set_phase(installed, namespace, name, "Running")


async def set_phase(installed: Installed, namespace: str, name: str, phase: str) -> None:
    await installed.admin.patch(PODS, name, {"status": {"phase": phase}}, namespace, subresource="status")


async def create_job_pod(installed: Installed, job: Object, template: Object, name: str) -> None:
    """What the Job controller would create: a pod of an Indexed Job's first index."""
    metadata = job["metadata"]
    labels = {**(template.get("metadata") or {}).get("labels", {}), "batch.kubernetes.io/job-name": metadata["name"]}
    labels["batch.kubernetes.io/job-completion-index"] = "0"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
    pod = {"metadata": {"name": name, "labels": labels, "ownerReferences": [{**owner, "controller": True}]}}
    spec = {**template["spec"], "restartPolicy": "Never"}
    await installed.admin.create(PODS, {**pod, "spec": spec}, metadata["namespace"])
    await run_pod(installed, metadata["namespace"], name)


async def until_progress(installed: Installed, ref: GroupVersionResource, name: str, place: str, text: str) -> Object:
    async def shows() -> Object | None:
        obj = await installed.admin.get(ref, name, place)
        return obj if progress_text_of(obj) == text else None

    obj: Object = await installed.until(shows)
    return obj


def line(second: int, text: str) -> str:
    return f"2026-01-01T00:00:{second:02d}.000000001Z {text}"


async def test_what_programs_print_becomes_the_progress_of_every_kind_of_job(
    installed: Installed, tmp_path: Path
) -> None:
    namespace = await installed.namespace("progress-logs")
    container = {"name": "pytorch", "image": "busybox", "args": ["--epochs", "2"]}
    async with kubelet(installed, tmp_path) as node, running(installed) as operator:
        replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        job = {"metadata": {"name": "torch"}, "spec": {"pytorchReplicaSpecs": {"Master": replica}}}
        kind = {"apiVersion": PYTORCHJOBS.api_version, "kind": "PyTorchJob"}
        await installed.admin.create(PYTORCHJOBS, {**kind, **job}, namespace)
        await installed.admin.create(TRAINJOBS, train_job(namespace, "trained"))
        pods = {"spec": {"containers": [{"name": "main", "image": "busybox"}, {"name": "sidecar", "image": "busybox"}]}}
        plain_spec = {"template": {"spec": {**pods["spec"], "restartPolicy": "Never"}}}
        plain = await installed.admin.create(BATCH_JOBS, {"metadata": {"name": "plain"}, "spec": plain_spec}, namespace)
        node.logs = {
            "torch-master-0": [line(1, "Train Epoch: 2 [50/100 (50%)] loss=0.5")],
            "trained-pod": [line(1, "step 30/100 loss=0.3")],
            "plain-pod": [line(1, "unrelated"), line(2, "elastic: step 90/200 loss=0.25")],
        }
        await installed.until(lambda: installed.admin.find(PODS, "torch-master-0", namespace))
        await run_pod(installed, namespace, "torch-master-0")
        await create_job_pod(installed, plain, pods, "plain-pod")
        trained = await installed.until(lambda: installed.admin.find(BATCH_JOBS, "trained-node-0", namespace))
        await create_job_pod(installed, trained, trained["spec"]["template"], "trained-pod")
        await until_progress(installed, PYTORCHJOBS, "torch", namespace, "75%, loss 0.5")
        await until_progress(installed, BATCH_JOBS, "plain", namespace, "45%, loss 0.25")
        shown = await until_progress(installed, TRAINJOBS, "trained", namespace, "30%, loss 0.3")
        assert (trainer_status_of(shown) or {})["metrics"] == [{"name": "loss", "value": "0.3"}]
        jobset = await installed.admin.get(JOBSETS, "trained", namespace)
        assert progress_text_of(jobset) == ""  # the TrainJob shows it
        assert {("plain-pod", "main"), ("torch-master-0", "pytorch"), ("trained-pod", "node")} == set(node.asked)
        # The end of the log is read when the program ends, and the job is over.
        node.logs["plain-pod"].append(line(9, "step 200/200 loss=0.1"))
        await set_phase(installed, namespace, "plain-pod", "Succeeded")
        await until_progress(installed, BATCH_JOBS, "plain", namespace, "100%, loss 0.1")
        assert denied(operator) == []


async def token_for(installed: Installed, namespace: str, audience: str) -> str:
    spec = {"audiences": [audience], "expirationSeconds": 3600}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await installed.admin.create(ACCOUNTS, request, namespace, name="default", subresource="token")
    return str(answer["status"]["token"])


async def test_train_jobs_report_to_the_operator_with_a_token_for_their_job(installed: Installed) -> None:
    namespace, other = await installed.namespace("progress-reports"), await installed.namespace("progress-other")
    async with running(installed) as operator:
        await installed.admin.create(TRAINJOBS, train_job(namespace))
        job = await installed.until(lambda: installed.admin.find(BATCH_JOBS, "mnist-node-0", namespace))
        pod = job["spec"]["template"]["spec"]
        variables = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        url = variables[environment.STATUS_SERVER_URL]
        service = "https://torchyard-operator.torchyard-system.svc:10443"
        assert url == f"{service}{names.status_path(namespace, 'mnist')}"
        (volume,) = (each["projected"]["sources"] for each in pod["volumes"] if "projected" in each)
        audience = volume[0]["serviceAccountToken"]["audience"]
        authority = await installed.admin.get(CONFIG_MAPS, volume[1]["configMap"]["name"], namespace)
        async with Reporter(operator, service, authority["data"]["ca.crt"]) as reporter:
            token = await token_for(installed, namespace, audience)
            status = {"progressPercentage": 45, "estimatedRemainingSeconds": 200, "metrics": []}
            status |= {"lastUpdatedTime": "2026-01-01T00:00:00Z", "metrics": [{"name": "loss", "value": "0.31"}]}
            assert await reporter.post(url, token, {"trainerStatus": status}) == (200, {"trainerStatus": status})
            await until_progress(installed, TRAINJOBS, "mnist", namespace, "45%, 3m20s left, loss 0.31")
            await reporter.check_refusals(url, token)
            for place, scope in ((namespace, "other-audience"), (other, audience)):
                wrong = await token_for(installed, place, scope)
                assert (await reporter.post(url, wrong, {}))[0] == 403
            forged = ".".join([*token.split(".")[:2], "AAAA"])
            assert (await reporter.post(url, forged, {}))[0] == 403
            unknown = names.status_audience(namespace, "unknown")
            code, answer = await reporter.post(
                f"{service}/apis/{unknown}", await token_for(installed, namespace, unknown), {}
            )
            assert (code, answer["message"]) == (403, "Forbidden")  # its token is not reviewed
        assert denied(operator) == []


class Reporter:
    """Sends reports as a pod does that trusts the job's authority, to the operator's own address."""

    def __init__(self, operator: Operator, service: str, authority: str) -> None:
        self._service, self._address = service, f"https://localhost:{operator.ports['status']}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority))
        )

    async def __aenter__(self) -> Reporter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, url: str, token: str, body: Any) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._session.post(url.replace(self._service, self._address), data=data, headers=headers) as answer:
            return answer.status, await answer.json()

    async def check_refusals(self, url: str, token: str) -> None:
        assert await self.post(url, token, {}) == (200, {})
        assert (await self.post(url, token, b"{"))[0] == 422
        code, answer = await self.post(url, token, {"trainerStatus": {"progressPercentage": 101}})
        assert code == 422
        assert "status.trainerStatus.progressPercentage" in answer["message"]
        assert (await self.post(url, token, b" " * (1 << 17)))[0] == 413
        assert (await self.post(url, "", {}))[0] == 403
        assert (await self.post(f"{url}/x", token, {}))[0] == 404


async def test_an_operator_without_progress_reads_no_logs_and_has_no_endpoint(
    installed: Installed, tmp_path: Path
) -> None:
    namespace = await installed.namespace("progress-off")
    async with kubelet(installed, tmp_path) as node, running(installed, progress=False) as operator:
        assert "status" not in operator.ports
        await installed.admin.create(TRAINJOBS, train_job(namespace))
        job = await installed.until(lambda: installed.admin.find(BATCH_JOBS, "mnist-node-0", namespace))
        container = job["spec"]["template"]["spec"]["containers"][0]
        assert environment.STATUS_SERVER_URL not in {each["name"] for each in container.get("env") or ()}
        await create_job_pod(installed, job, job["spec"]["template"], "mnist-pod")
        await installed.admin.patch(TRAINJOBS, "mnist", {"spec": {"suspend": True}}, namespace)

        async def is_suspended() -> bool:
            status = (await installed.admin.get(TRAINJOBS, "mnist", namespace)).get("status") or {}
            return status.get("state") == "Suspended"

        await installed.until(is_suspended)  # the operator has seen everything before
        assert node.asked == []
