"""The operator's caches keep parts of objects, and none of these parts is written back as if it were whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from tests.operator.test_jobsets import jobs, jobset
from tests.support.operator import Installed, denied, running
from tests.support.pytorchjobs import job, replica

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import HORIZONTAL_POD_AUTOSCALERS, PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.controllers.child_caches import trim_pod, trim_service
from torchyard.controllers.jobset import JOBSETS
from torchyard.controllers.pytorchjob import JOBS
from torchyard.kube.client import Client

pytestmark = pytest.mark.cluster


def missing_fields(stored: Any, written: Any, path: str = "") -> Iterator[str]:
    """The fields of a stored object that an update would remove."""
    if isinstance(stored, dict):
        for name, value in stored.items():
            if not isinstance(written, dict) or name not in written:
                yield f"{path}.{name}"
            else:
                yield from missing_fields(value, written[name], f"{path}.{name}")
    elif isinstance(stored, list):
        for number, value in enumerate(stored):
            inner = written[number] if isinstance(written, list) and number < len(written) else None
            yield from missing_fields(value, inner, f"{path}[{number}]")


def _kept(obj: Object) -> Object:
    """What an update must contain: the server keeps managedFields, and the status belongs to the controller."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {"metadata": metadata, "spec": obj.get("spec") or {}}


async def test_an_update_contains_every_field_of_the_stored_object(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, lost = Client.update, defaultdict[str, set[str]](set)

    async def checked(self: Client, ref: GroupVersionResource, obj: Object, *, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        if self is not installed.admin and ref.group != "coordination.k8s.io":
            stored = await installed.admin.get(ref, metadata["name"], metadata.get("namespace", ""))
            if stored["metadata"]["resourceVersion"] == metadata["resourceVersion"]:  # else the server refuses it
                lost[ref.plural] |= set(missing_fields(_kept(stored), _kept(obj)))
        return await update(self, ref, obj, subresource=subresource)

    monkeypatch.setattr(Client, "update", checked)
    namespace = await installed.namespace("caches")
    async with running(installed) as operator:
        await installed.admin.create(JOBSETS, jobset(namespace, suspend=True))
        target = {"type": "Utilization", "averageUtilization": 80}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        policy = {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics}
        elastic = job(master=None, worker=replica(1), elasticPolicy=policy)
        elastic["metadata"] = {"name": "elastic", "namespace": namespace, "annotations": {"example.com/a": "b"}}
        await installed.admin.create(JOBS, elastic)
        await jobs(installed, namespace, {"train-workers-0": True, "train-workers-1": True})
        await installed.until(lambda: installed.admin.find(HORIZONTAL_POD_AUTOSCALERS, "elastic", namespace))
        foreign = {"metadata": {"annotations": {"example.com/c": "d"}, "labels": {"example.com/e": "f"}}}
        await installed.admin.patch(HORIZONTAL_POD_AUTOSCALERS, "elastic", foreign, namespace)
        await installed.admin.patch(JOBS, "elastic", {"spec": {"elasticPolicy": {"maxReplicas": 5}}}, namespace)
        await installed.admin.patch(JOBSETS, "train", {"spec": {"suspend": False}}, namespace)
        await jobs(installed, namespace, {"train-workers-0": False, "train-workers-1": False})

        async def is_wider() -> bool:
            autoscaler = await installed.admin.get(HORIZONTAL_POD_AUTOSCALERS, "elastic", namespace)
            return bool(autoscaler["spec"]["maxReplicas"] == 5 and autoscaler["metadata"]["labels"])

        await installed.until(is_wider)
        (pod,) = await installed.pods(namespace, 1)
        service = await installed.admin.get(SERVICES, pod["metadata"]["name"], namespace)
    assert dict(lost) == {"jobs": set(), "jobsets": set(), "pytorchjobs": set(), "horizontalpodautoscalers": set()}
    assert denied(operator) == []
    # The same comparison finds what the parts lack.
    assert ".spec.containers" in set(missing_fields(_kept(pod), _kept(trim_pod(pod))))
    assert ".spec.ports" in set(missing_fields(_kept(service), _kept(trim_service(service))))
    assert {PODS.plural, SERVICES.plural}.isdisjoint(lost)
