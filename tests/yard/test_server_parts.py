"""The server's own controllers: an object that cannot be handled keeps nothing from the others, nor ends their part."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.waiting import first_answer

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import SERVICES
from torchyard.api.objects import Object
from torchyard.apiserver.crd.controller import CrdController
from torchyard.apiserver.lifecycle.service_addresses import ServiceAddresses
from torchyard.kube.client import Client
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
ADDRESSES = GroupVersionResource("networking.k8s.io", "v1", "ipaddresses", namespaced=False)
ERRORS = [KeyError("missing"), StatusError(403, "Forbidden", "a webhook denied it")]


def _plane(tmp_path: Path) -> Plane:
    return Plane(PlaneSettings(state=tmp_path / "state", port=0, controllers="-*", node=False))


@pytest.mark.parametrize("error", ERRORS, ids=["unexpected", "refused"])
async def test_a_crd_that_cannot_be_deleted_keeps_no_other(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original, attempts = CrdController._delete_instances, 0

    async def fails_for_one(self: CrdController, name: str) -> None:
        nonlocal attempts
        if name == "as.example.com":
            attempts += 1
            if attempts <= 2:
                raise error
        await original(self, name)

    monkeypatch.setattr(CrdController, "_delete_instances", fails_for_one)
    monkeypatch.setattr("torchyard.apiserver.crd.controller._RETRY_SECONDS", 0.02)
    async with _plane(tmp_path) as plane:
        client = plane.client("test")
        for plural in ("as", "bs"):
            await client.create(CRDS, _definition(plural))
        for plural in ("as", "bs"):
            await client.delete(CRDS, f"{plural}.example.com")
        await first_answer(lambda: _are_gone(client, "as.example.com", "bs.example.com"))
        assert plane.supervisor.failures == {}
    # Once, although there were two attempts.
    assert caplog.text.count("cannot delete the objects of a CRD: crd=as.example.com") == 1


def _definition(plural: str) -> Object:
    kind = plural.capitalize()
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def _are_gone(client: Client, *names: str) -> bool:
    return not set(names) & {crd["metadata"]["name"] for crd in (await client.list(CRDS)).items}


@pytest.mark.parametrize("error", ERRORS, ids=["unexpected", "refused"])
async def test_the_record_of_an_address_is_written_after_errors(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, failed = ServiceAddresses._reconcile, set[str]()

    async def fails_at_first(self: ServiceAddresses, address: str) -> None:
        if address not in failed:
            failed.add(address)
            raise error
        await original(self, address)

    monkeypatch.setattr(ServiceAddresses, "_reconcile", fails_at_first)
    async with _plane(tmp_path) as plane:
        client = plane.client("test")
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"ports": [{"port": 80}]},
        }
        created = await client.create(SERVICES, service, "default")

        async def is_recorded() -> bool:
            return await client.find(ADDRESSES, created["spec"]["clusterIP"]) is not None

        await first_answer(is_recorded)
        assert plane.supervisor.failures == {}
