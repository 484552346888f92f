"""Clusters that lack something, or are older or unusual: clear messages, and the process does not exit."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from tests.conftest import HOUSEKEEPING
from tests.support.kubernetes import Kubernetes
from tests.support.operator import Installed, denied, installation, running, started
from tests.support.pytorchjobs import job

from torchyard.api.conditions import has_true_condition
from torchyard.api.gvr import CLUSTER_ROLES, PODS, SECRETS
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339
from torchyard.apiserver.access.certificates import ensure_server
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.kubeconfig import Connection
from torchyard.operator import certificates
from torchyard.operator import operator as operator_module
from torchyard.operator.install import install
from torchyard.operator.part_checks import PartChecks
from torchyard.operator.settings import NAME, NAMESPACE, WEBHOOK_SECRET, OperatorSettings

pytestmark = pytest.mark.cluster
HOUR = timedelta(hours=1)


async def _succeeds(installed: Installed, namespace: str, **run: Any) -> Object:
    """Run a job of one pod to its end, with the test as kubelet."""
    manifest = job(worker=None, run=run)
    manifest["metadata"] = {"name": "train", "namespace": namespace}
    await installed.admin.create(JOBS, manifest)
    for phase in ("Running", "Succeeded"):
        for pod in await installed.pods(namespace, 1):
            patch = {"status": {"phase": phase}}
            await installed.admin.patch(PODS, pod["metadata"]["name"], patch, namespace, subresource="status")

    async def succeeded() -> Object | None:
        current = await installed.admin.get(JOBS, "train", namespace)
        return current if has_true_condition(current, "Succeeded") else None

    finished: Object = await installed.until(succeeded)
    return finished


@pytest.fixture
async def old(kubernetes_assets: Path, tmp_path: Path) -> AsyncIterator[Installed]:
    """A server without WatchList, like those before 1.27."""
    flags = ("--feature-gates=WatchList=false",)
    with Kubernetes(tmp_path / "old", controllers=HOUSEKEEPING, flags=flags) as server:
        async with installation(server) as installed:
            yield installed


async def test_an_older_server_without_watch_list_is_listed(old: Installed, caplog: pytest.LogCaptureFixture) -> None:
    namespace = await old.namespace("older")
    async with running(old) as operator:
        await _succeeds(old, namespace)
        assert not denied(operator)
    # any server may reject a definition for a moment after it was created
    records = [record for record in caplog.records if "storage is (re)initializing" not in record.getMessage()]
    assert not [item for item in records if item.levelno >= logging.WARNING], caplog.text


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_a_wrong_local_clock_is_logged_and_the_servers_is_used(
    installed: Installed, caplog: pytest.LogCaptureFixture, off: timedelta
) -> None:
    namespace = await installed.namespace(f"clock-{'ahead' if off > timedelta() else 'behind'}")
    async with running(installed, clock=lambda: datetime.now(UTC) + off):
        finished = await _succeeds(installed, namespace, activeDeadlineSeconds=1800, ttlSecondsAfterFinished=1800)
        assert abs(parse_rfc3339(finished["status"]["startTime"]) - datetime.now(UTC)) < HOUR / 6
        pod = (await installed.admin.list(PODS, namespace)).items[0]
        created_at = parse_rfc3339(pod["metadata"]["creationTimestamp"])
        assert abs(parse_rfc3339(finished["status"]["completionTime"]) - created_at) < HOUR / 6
        assert await installed.admin.find(JOBS, "train", namespace) is not None, "its time to live is not over"
    log_messages = [record.getMessage() for record in caplog.records if "API server's" in record.getMessage()]
    sign = "" if off > timedelta() else "-"
    assert len(log_messages) == 1 and re.search(rf"offset_seconds={sign}3(59|60)\d$", log_messages[0])


async def test_without_permissions_the_operator_names_them_and_starts_when_they_are_granted(
    installed: Installed,
) -> None:
    role = await installed.admin.get(CLUSTER_ROLES, NAME)
    await installed.admin.update(CLUSTER_ROLES, {**role, "rules": []})
    operator = started(installed)
    task = asyncio.create_task(operator.run())

    async def complains() -> bool:
        return "lacks permissions: get pytorchjobs.kubeflow.org" in operator.health.problem

    await installed.until(complains)
    assert "create pods" in operator.health.problem and "yard install" in operator.health.problem
    await install(installed.admin, installed.to, lambda _: None)

    async def ready() -> bool:
        assert not task.done()
        return not operator.health.problem

    await installed.until(ready)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0.25)


async def test_with_the_roles_of_an_old_version_the_permitted_parts_go_on_and_the_others_are_named(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_module, "_GRANT_CHECK_SECONDS", 0.2)
    namespace = await installed.namespace("old-roles")
    role = await installed.admin.get(CLUSTER_ROLES, NAME)
    newer = ("jobsets", "jobsets/status", "pods/log")
    rules = [rule for rule in role["rules"] if not set(newer).intersection(rule["resources"])]
    await installed.admin.update(CLUSTER_ROLES, {**role, "rules": rules})
    operator = started(installed)
    checks = PartChecks(operator._client, OperatorSettings(webhook=False))
    await installed.until(checks.find_unpermitted)  # the authorizer's cache is updated with a delay
    task = asyncio.create_task(operator.run())

    async def ready() -> bool:
        if task.done():
            task.result()
        return not operator.health.problem

    await installed.until(ready)
    await _succeeds(installed, namespace)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{operator.ports['health']}/readyz") as response,
    ):
        assert response.status == 200
        text = await response.text()
    assert re.search(r"jobsets left out: .* lacks permissions: .*list jobsets\.jobset\.x-k8s\.io", text)
    assert re.search(r"log_progress left out: .* lacks permissions: get pods/log", text)
    assert "trainjobs left out:" in text and "; progress left out" not in text
    assert "`yard install` of this version" in text
    assert denied(operator) == []
    await install(installed.admin, installed.to, lambda _: None)
    await asyncio.wait_for(task, 60)
    assert operator.starts_again
    await asyncio.sleep(0.25)


async def test_an_operator_whose_permissions_grow_starts_again_in_the_same_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[str] = []

    class Recorded:
        def __init__(self, _connection: object, _settings: object) -> None:
            self.starts_again = not runs

        async def run(self) -> None:
            runs.append("run")

    monkeypatch.setattr(operator_module, "Operator", Recorded)
    await operator_module.run_operator(Connection("https://127.0.0.1:1"), OperatorSettings())
    assert runs == ["run", "run"]


def _almost_over(directory: Path) -> dict[str, str]:
    """The data of a Secret with a certificate that is almost a year old."""
    service = f"{NAME}.{NAMESPACE}"
    names = [f"{service}.svc", f"{service}.svc.cluster.local", service, NAME, "localhost"]
    ensure_server(directory, names=names, now=datetime.now(UTC) - timedelta(days=350))
    files = {"ca.crt": "ca.crt", "ca.key": "ca.key", "tls.crt": "server.crt", "tls.key": "server.key"}
    return {key: base64.b64encode((directory / name).read_bytes()).decode() for key, name in files.items()}


def _shown(port: int) -> x509.Certificate:
    return x509.load_pem_x509_certificate(ssl.get_server_certificate(("localhost", port)).encode())


async def test_an_expiring_certificate_is_replaced_while_reviews_continue(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = await installed.namespace("renewed")
    monkeypatch.setattr(certificates, "RENEW_CHECK_SECONDS", 0.2)
    soon = datetime.now(UTC) + timedelta(days=60)
    old = _almost_over(tmp_path / "old")
    secret = {"metadata": {"name": WEBHOOK_SECRET}, "type": "kubernetes.io/tls", "data": old}
    if (stored_secret := await installed.admin.find(SECRETS, WEBHOOK_SECRET, NAMESPACE)) is not None:
        await installed.admin.update(SECRETS, {**stored_secret, "data": old})
    else:
        await installed.admin.create(SECRETS, secret, NAMESPACE)
    async with running(installed, webhook=True) as operator:
        port = operator.ports["webhook"]
        first = await asyncio.to_thread(_shown, port)
        assert first.not_valid_after_utc > soon
        stored_secret = await installed.admin.get(SECRETS, WEBHOOK_SECRET, NAMESPACE)
        assert stored_secret["data"]["ca.crt"] == old["ca.crt"], "the authority has years left, and stays"
        # And once more while it runs.
        await installed.admin.update(SECRETS, {**stored_secret, "data": old})

        async def renewed() -> bool:
            return (await asyncio.to_thread(_shown, port)).serial_number != first.serial_number

        await installed.until(renewed)
        assert (await asyncio.to_thread(_shown, port)).not_valid_after_utc > soon
        manifest = job()
        manifest["metadata"] = {"name": "train", "namespace": namespace}
        await installed.admin.create(JOBS, manifest)
        assert not denied(operator)


async def test_the_operator_waits_for_a_server_that_does_not_respond(installed: Installed) -> None:
    unreachable = replace(installed, account=replace(installed.account, server="https://127.0.0.1:9"))
    operator = started(unreachable)
    task = asyncio.create_task(operator.run())

    async def complains() -> bool:
        return "does not respond" in operator.health.problem

    await installed.until(complains)
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])
