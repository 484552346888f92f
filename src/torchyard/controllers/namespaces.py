"""Namespaces: deletes the content of a terminating namespace, then the namespace. The status reports what remains."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from torchyard.api.cluster import messages
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import NAMESPACES
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.controllers.loop import Controller
from torchyard.kube.client import Client
from torchyard.kube.informer import Key
from torchyard.kube.informer_factory import InformerFactory

log = logging.getLogger(__name__)

# Until the next look at a namespace that is not empty yet. It doubles while nothing changes, up to upstream's interval
# for finalizers that somebody has to remove.
_MIN_RESYNC_SECONDS, _MAX_RESYNC_SECONDS = 1.0, 8.0


class NamespaceController:
    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        resources: Callable[[], Iterable[GroupVersionResource]],
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._resources = resources
        self._clock = clock
        self._remaining: dict[str, tuple[dict[str, int], float]] = {}  # of terminating namespaces, and the interval
        self._namespaces = informers.for_resource(NAMESPACES)
        self.controller = Controller("namespace", self._reconcile, [self._namespaces])
        self._namespaces.on_change(
            lambda _change, obj, _before: self.controller.queue.add(("", obj["metadata"]["name"]))
        )

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> float | None:
        namespace = self._namespaces.get(*key)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            self._remaining.pop(key[1], None)
            return None
        if not (namespace.get("spec") or {}).get("finalizers"):
            return None
        remaining, finalizers = await self._empty(key[1])
        if not remaining:
            await self._finalize(namespace)
            return None
        await self._report(namespace, remaining, finalizers)
        return self._resync_seconds(key[1], remaining)

    def _resync_seconds(self, namespace: str, remaining: dict[str, int]) -> float:
        before, seconds = self._remaining.get(namespace, ({}, 0.0))
        seconds = min(seconds * 2, _MAX_RESYNC_SECONDS) if before == remaining else _MIN_RESYNC_SECONDS
        self._remaining[namespace] = (remaining, seconds)
        return seconds

    async def _empty(self, namespace: str) -> tuple[dict[str, int], dict[str, int]]:
        """Delete the content; returns what remains, by resource and by finalizer."""
        remaining: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for ref in self._resources():
            listing = await self._client.list(ref, namespace, metadata_only=True)
            for obj in listing.items:
                if not obj["metadata"].get("deletionTimestamp"):
                    await self._delete(ref, namespace, obj["metadata"]["name"])
            if listing.items:
                listing = await self._client.list(ref, namespace, metadata_only=True)
            if listing.items:
                remaining[f"{ref.plural}.{ref.group}"] = len(listing.items)
            for obj in listing.items:
                for name in obj["metadata"].get("finalizers") or ():
                    finalizers[name] = finalizers.get(name, 0) + 1
        return remaining, finalizers

    async def _delete(self, ref: GroupVersionResource, namespace: str, name: str) -> None:
        try:
            await self._client.delete(ref, name, namespace)
        except StatusError as error:
            if error.status not in (404, 405, 409):
                raise

    async def _finalize(self, namespace: Object) -> None:
        remaining = [finalizer for finalizer in namespace["spec"]["finalizers"] if finalizer != "kubernetes"]
        await self._client.update(NAMESPACES, {**namespace, "spec": {"finalizers": remaining}}, subresource="finalize")

    async def _report(self, namespace: Object, remaining: dict[str, int], finalizers: dict[str, int]) -> None:
        """Write the conditions that upstream's namespace controller writes, so that users see what remains."""
        reported = [
            *messages.NO_NAMESPACE_FAILURES,
            messages.content_remaining(remaining),
            messages.finalizers_remaining(finalizers),
        ]
        now = to_rfc3339(self._clock())
        before = {condition["type"]: condition for condition in (namespace.get("status") or {}).get("conditions") or ()}
        conditions = []
        for kind, status, reason, message in reported:
            previous = before.get(kind, {})
            since = previous.get("lastTransitionTime", now) if previous.get("status") == status else now
            conditions.append(
                {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
            )
        if conditions == list(before.values()):
            return
        patch = {"status": {"phase": "Terminating", "conditions": conditions}}
        await self._client.patch(NAMESPACES, namespace["metadata"]["name"], patch, subresource="status")
