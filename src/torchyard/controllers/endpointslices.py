"""EndpointSlices: keeps those of every service with a selector as `core.service.slices` wants them."""

from __future__ import annotations

from typing import Any

from torchyard.api.errors import StatusError
from torchyard.controllers.loop import Controller
from torchyard.core.service.slices import MANAGED_BY, MANAGER, SERVICE_NAME, has_slices, wanted_slices
from torchyard.kube.client import Client, Ref
from torchyard.kube.informer import Key, by_namespace
from torchyard.kube.informers import Informers

Object = dict[str, Any]

SERVICES = Ref("", "v1", "services")
PODS = Ref("", "v1", "pods")
SLICES = Ref("discovery.k8s.io", "v1", "endpointslices")


class EndpointSliceController:
    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._services = informers.of(SERVICES, indexes={"namespace": by_namespace})
        self._pods = informers.of(PODS, indexes={"namespace": by_namespace})
        self._slices = informers.of(SLICES, labels=f"{MANAGED_BY}={MANAGER}", indexes={"service": _service_of})
        self.controller = Controller(
            "endpointslice-controller", self._reconcile, (self._services, self._pods, self._slices)
        )
        self._services.on_change(lambda _change, obj, _before: self._look(obj["metadata"]["name"], obj))
        self._pods.on_change(self._pod_changed)
        self._slices.on_change(
            lambda _change, obj, _before: self._look(obj["metadata"]["labels"].get(SERVICE_NAME, ""), obj)
        )

    async def run(self) -> None:
        await self.controller.run()

    def _look(self, name: str, obj: Object) -> None:
        self.controller.queue.add((obj["metadata"]["namespace"], name))

    def _pod_changed(self, _change: str, pod: Object, before: Object | None) -> None:
        for service in self._services.by("namespace", pod["metadata"]["namespace"]):
            if any(_selects(service, one) for one in (pod, before) if one is not None):
                self._look(service["metadata"]["name"], service)

    async def _reconcile(self, key: Key) -> None:
        service = self._services.get(*key)
        if service is None or not has_slices(service) or service["metadata"].get("deletionTimestamp"):
            return
        there = {one["metadata"]["name"]: one for one in self._slices.by("service", "/".join(key))}
        for wanted in wanted_slices(service, self._pods.by("namespace", key[0])):
            await self._keep(wanted, there.pop(wanted["metadata"]["name"], None))
        for spare in there.values():
            await self._client.delete(SLICES, spare["metadata"]["name"], key[0], uid=spare["metadata"]["uid"])

    async def _keep(self, wanted: Object, there: Object | None) -> None:
        if there is None:
            try:
                await self._client.create(SLICES, wanted)
            except StatusError as error:
                if error.reason != "AlreadyExists":  # the cache is behind, and will bring it
                    raise
        elif any((there.get(part) or []) != wanted[part] for part in ("endpoints", "ports")):
            await self._client.update(SLICES, {**there, "endpoints": wanted["endpoints"], "ports": wanted["ports"]})


def _selects(service: Object, pod: Object) -> bool:
    selector, labels = service["spec"].get("selector") or {}, pod["metadata"].get("labels") or {}
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def _service_of(obj: Object) -> tuple[str]:
    metadata = obj["metadata"]
    return (f"{metadata['namespace']}/{(metadata.get('labels') or {}).get(SERVICE_NAME, '')}",)
