"""Removes the protection finalizers of terminating claims and volumes that are no longer in use."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.controllers.volume_binder import by_claim
from torchyard.core.volume.protection import unprotect_claim, unprotect_volume
from torchyard.core.volume.view import claims_of
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer, Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class _ProtectionController:
    """`released` returns the object without its finalizer, or None while it is in use."""

    def __init__(
        self, name: str, client: Client, sources: tuple[Informer, ...], released: Callable[[Object], Object | None]
    ) -> None:
        self._client, self._released = client, released
        self._objects = sources[0]
        self._ref: GroupVersionResource = self._objects.ref
        self.controller = Controller(name, self._reconcile, sources)
        self._objects.on_change(lambda _change, obj, _before: self.controller.queue.add(key_of(obj)))

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> None:
        current = self._objects.get(*key)
        changed = self._released(current) if current is not None else None
        if changed is not None:
            await self._client.update(self._ref, changed)


def claim_protection(client: Client, informers: InformerFactory) -> _ProtectionController:
    pods = informers.for_resource(PODS, indexes={"claim": by_claim})

    def released(claim: Object) -> Object | None:
        return unprotect_claim(claim, pods.by("claim", "/".join(key_of(claim))))

    name = "persistentvolumeclaim-protection-controller"
    controller = _ProtectionController(name, client, (informers.for_resource(PERSISTENT_VOLUME_CLAIMS), pods), released)

    def pod_changed(_change: str, pod: Object, _before: Object | None) -> None:
        for claim in claims_of(pod).values():
            controller.controller.queue.add((pod["metadata"]["namespace"], claim))

    pods.on_change(pod_changed)
    return controller


def volume_protection(client: Client, informers: InformerFactory) -> _ProtectionController:
    name = "persistentvolume-protection-controller"
    return _ProtectionController(name, client, (informers.for_resource(PERSISTENT_VOLUMES),), unprotect_volume)
