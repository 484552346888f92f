"""The plane's volume provisioner: creates a directory for a claim, and removes it with the volume.

Like any provisioner it communicates with the binder through annotations only, so it also works with a cluster's binder.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from torchyard import files
from torchyard.api.errors import StatusError
from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.controllers.loop import Controller
from torchyard.core.volume import local
from torchyard.core.volume.view import CLAIM, VOLUME, class_of, phase, requested_size, size, storage_class
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

_RETRY_SECONDS = 15.0


class LocalVolumeProvisioner:
    """Creates directories under `root`, for claims of pods on `node`."""

    def __init__(self, client: Client, informers: InformerFactory, *, root: Path, node: str) -> None:
        self._client, self._root, self._node = client, root, node
        self.recorder = EventRecorder(client, local.PROVISIONER)
        self._claims = informers.for_resource(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = informers.for_resource(PERSISTENT_VOLUMES)
        self._classes = informers.for_resource(STORAGE_CLASSES)
        sources = (self._claims, self._volumes, self._classes)
        self.claims = Controller(f"{local.PROVISIONER} claims", self._sync_claim, sources)
        self.volumes = Controller(f"{local.PROVISIONER} volumes", self._sync_volume, sources)
        self._claims.on_change(lambda _change, obj, _before: self.claims.queue.add(key_of(obj)))
        self._volumes.on_change(lambda _change, obj, _before: self.volumes.queue.add(key_of(obj)))

    async def run(self) -> None:
        await self._create_storage_class()
        await run_parts(recorder=self.recorder.run, claims=self.claims.run, volumes=self.volumes.run)

    async def _create_storage_class(self) -> None:
        """An existing class belongs to the user and is not changed."""
        try:
            await self._client.create(STORAGE_CLASSES, local.local_class())
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise

    async def _sync_claim(self, key: Key) -> float | None:
        claim = self._claims.get(*key)
        if claim is None:
            return None
        if local.is_requested(claim, self._node):
            return await self._provision(claim)
        if phase(claim) == "Bound" and not claim["metadata"].get("deletionTimestamp"):
            await self._expand(claim)
        return None

    async def _provision(self, claim: Object) -> float | None:
        name = class_of(claim)
        storage_class_object, _ = storage_class(name, self._classes.all())
        if storage_class_object is None or self._volumes.get("", local.volume_name(claim)) is not None:
            return None  # the binder reports the missing class, or binds the existing volume
        if reason := local.unsupported_reason(claim):
            self._record_event(
                claim, "Warning", messages.PROVISIONING_FAILED, messages.provisioning_failed(name, reason)
            )
            return None  # until the claim changes
        namespace, claim_name = key_of(claim)
        self._record_event(claim, "Normal", messages.PROVISIONING, messages.provisioning(namespace, claim_name))
        volume = local.local_volume(claim, storage_class_object, root=self._root, node=self._node)
        try:
            await asyncio.to_thread(self._create_directory, Path(volume["spec"]["local"]["path"]))
        except OSError as error:
            self._record_event(
                claim, "Warning", messages.PROVISIONING_FAILED, messages.provisioning_failed(name, str(error))
            )
            return _RETRY_SECONDS
        try:
            await self._client.create(PERSISTENT_VOLUMES, volume)
        except StatusError as error:
            if error.reason != "AlreadyExists":  # created before the process ended; the binder finds it
                raise
        provisioned = messages.provisioned(volume["metadata"]["name"])
        self._record_event(claim, "Normal", messages.PROVISIONING_SUCCEEDED, provisioned)
        return None

    def _create_directory(self, path: Path) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)

    async def _expand(self, claim: Object) -> None:
        """Expand the volume of a bound claim that requests more. Admission has checked that the class allows it."""
        volume = self._volumes.get("", claim["spec"].get("volumeName") or "")
        if volume is None or not local.is_ours(volume):
            return
        requested = claim["spec"]["resources"]["requests"]["storage"]
        capacity = ((claim.get("status") or {}).get("capacity") or {}).get("storage")
        larger, status = local.expand(claim, volume, requested)
        if size(volume) < requested_size(claim):
            self._record_event(claim, "Normal", messages.RESIZING, messages.resizing(volume["metadata"]["name"]))
            await self._client.update(PERSISTENT_VOLUMES, larger)
        elif capacity == requested or size(volume) > requested_size(claim):
            return
        await self._client.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "status": status}, subresource="status")
        self._record_event(claim, "Normal", messages.RESIZE_SUCCESSFUL, messages.RESIZED)

    async def _sync_volume(self, key: Key) -> float | None:
        volume = self._volumes.get(*key)
        if volume is None:
            return None
        if local.is_to_delete(volume):
            try:
                await asyncio.to_thread(self._remove_directory, volume)
            except OSError as error:
                await self._report_delete_failure(volume, str(error))
                return None
            await self._delete_volume(volume)
        elif local.is_retained(volume):
            await self._delete_volume(volume)
        return None

    def _remove_directory(self, volume: Object) -> None:
        """Remove only the directory of this volume; links in it are not followed."""
        path = Path(volume["spec"]["local"]["path"])
        if path != self._root / local.directory_name(volume):
            raise OSError(messages.foreign_directory(str(path)))
        files.remove_tree(path)

    async def _report_delete_failure(self, volume: Object, reason: str) -> None:
        status = {**(volume.get("status") or {}), "phase": "Failed", "message": reason}
        await self._client.update(PERSISTENT_VOLUMES, {**volume, "status": status}, subresource="status")
        self.recorder.event(_event_subject(VOLUME, volume), "Warning", messages.FAILED_DELETE, reason)

    async def _delete_volume(self, volume: Object) -> None:
        metadata = volume["metadata"]
        await self._client.delete(PERSISTENT_VOLUMES, metadata["name"], uid=metadata["uid"])
        latest = await self._client.find(PERSISTENT_VOLUMES, metadata["name"])
        finalizers = (latest or {}).get("metadata", {}).get("finalizers") or ()
        if latest is not None and messages.PROVISIONER_FINALIZER in finalizers:
            remaining = [finalizer for finalizer in finalizers if finalizer != messages.PROVISIONER_FINALIZER]
            await self._client.update(
                PERSISTENT_VOLUMES, {**latest, "metadata": {**latest["metadata"], "finalizers": remaining}}
            )

    def _record_event(self, claim: Object, kind: str, reason: str, message: str) -> None:
        self.recorder.event(_event_subject(CLAIM, claim), "Normal" if kind == "Normal" else "Warning", reason, message)


def _event_subject(kind: str, obj: Object) -> Object:
    return {"apiVersion": "v1", "kind": kind, **obj}
