"""Ephemeral volumes: creates the claims of pods with ephemeral volumes."""

from __future__ import annotations

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, PODS
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.controllers.volume_binder import by_claim
from torchyard.core.volume.ephemeral import ephemeral_claims
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class EphemeralVolumeController:
    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._client = client
        self._claims = informers.for_resource(PERSISTENT_VOLUME_CLAIMS)
        self._pods = informers.for_resource(PODS, indexes={"claim": by_claim})
        self.controller = Controller("ephemeral-volume-controller", self._reconcile, (self._claims, self._pods))
        self._pods.on_change(self._pod_changed)
        self._claims.on_change(self._claim_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _pod_changed(self, change: str, pod: Object, _before: Object | None) -> None:
        if change == "ADDED" and any(volume.get("ephemeral") for volume in pod["spec"].get("volumes") or ()):
            self.controller.queue.add(key_of(pod))

    def _claim_changed(self, change: str, claim: Object, _before: Object | None) -> None:
        """A claim with the same name is gone, or a claim of a pod was deleted before the pod."""
        if change == "DELETED":
            for pod in self._pods.by("claim", "/".join(key_of(claim))):
                self.controller.queue.add(key_of(pod))

    async def _reconcile(self, key: Key) -> None:
        pod = self._pods.get(*key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        for claim in ephemeral_claims(pod):
            if self._claims.get(*key_of(claim)) is None:
                try:
                    await self._client.create(PERSISTENT_VOLUME_CLAIMS, claim)
                except StatusError as error:
                    if error.reason != "AlreadyExists":  # the scheduler and the node check who owns it
                        raise
