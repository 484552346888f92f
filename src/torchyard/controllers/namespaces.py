"""Namespaces: deletes the content of a terminating namespace, then the namespace. The status reports what remains."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from torchyard.api.cluster import messages
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import NAMESPACES
from torchyard.api.objects import Object
from torchyard.api.quoting import quote
from torchyard.api.times import to_rfc3339
from torchyard.controllers.loop import Controller
from torchyard.kube.client import Client
from torchyard.kube.informer import Key
from torchyard.kube.informer_factory import InformerFactory

log = logging.getLogger(__name__)

# Until the next look at a namespace that is not empty yet. It doubles while nothing changes, up to upstream's interval
# for finalizers that other controllers or users remove.
_MIN_RESYNC_SECONDS, _MAX_RESYNC_SECONDS = 1.0, 8.0
# Until the next attempt to delete what could not be deleted, at most; as upstream.
_MAX_RETRY_SECONDS = 60.0


@dataclass(slots=True)
class _Content:
    """What a namespace still has after an attempt to empty it."""

    remaining: dict[str, int] = field(default_factory=dict)  # by resource
    finalizers: dict[str, int] = field(default_factory=dict)  # by finalizer
    failures: dict[str, str] = field(default_factory=dict)  # by resource: why it could not be deleted


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
        self._content: dict[str, tuple[_Content, float]] = {}  # of terminating namespaces, and the interval
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
            self._content.pop(key[1], None)
            return None
        if not (namespace.get("spec") or {}).get("finalizers"):
            return None
        content = await self._empty(key[1])
        if not content.remaining and not content.failures:
            await self._finalize(namespace)
            return None
        await self._report(namespace, content)
        return self._resync_seconds(key[1], content)

    def _resync_seconds(self, namespace: str, content: _Content) -> float:
        """Longer and longer while nothing changes. A failure is logged once."""
        before, seconds = self._content.get(namespace, (None, 0.0))
        longest = _MAX_RETRY_SECONDS if content.failures else _MAX_RESYNC_SECONDS
        seconds = min(seconds * 2, longest) if before == content else _MIN_RESYNC_SECONDS
        self._content[namespace] = (content, seconds)
        if content.failures and (before is None or before.failures != content.failures):
            reasons = quote("; ".join(content.failures.values()))
            log.warning("content of a namespace cannot be deleted: namespace=%s reasons=%s", namespace, reasons)
        return seconds

    async def _empty(self, namespace: str) -> _Content:
        """Delete the content. As upstream, pods first: what they use stays until they have ended."""
        content = _Content()
        refs = list(self._resources())
        pods = [ref for ref in refs if (ref.group, ref.plural) == ("", "pods")]
        for ref in pods:
            await self._empty_resource(ref, namespace, content)
        if not content.remaining and not content.failures:
            for ref in refs:
                if ref not in pods:
                    await self._empty_resource(ref, namespace, content)
        return content

    async def _empty_resource(self, ref: GroupVersionResource, namespace: str, content: _Content) -> None:
        """Delete the objects of one resource. What fails, such as a webhook that is gone, does not keep the others."""
        name = f"{ref.plural}.{ref.group}"
        try:
            await self._delete_objects(ref, namespace, name, content)
        except StatusError as error:  # of a list, such as one that a conversion webhook cannot answer
            if error.status not in (404, 405):  # the resource is not served any more, or cannot be listed
                content.failures[name] = error.message

    async def _delete_objects(self, ref: GroupVersionResource, namespace: str, name: str, content: _Content) -> None:
        listing = await self._client.list(ref, namespace, metadata_only=True)
        for obj in listing.items:
            if not obj["metadata"].get("deletionTimestamp"):
                reason = await self._delete(ref, namespace, obj["metadata"]["name"])
                if reason:
                    content.failures[name] = reason
        if listing.items:
            listing = await self._client.list(ref, namespace, metadata_only=True)
        if listing.items:
            content.remaining[name] = len(listing.items)
        else:
            content.failures.pop(name, None)
        for obj in listing.items:
            for finalizer in obj["metadata"].get("finalizers") or ():
                content.finalizers[finalizer] = content.finalizers.get(finalizer, 0) + 1

    async def _delete(self, ref: GroupVersionResource, namespace: str, name: str) -> str:
        """Delete an object; returns why it cannot be deleted."""
        try:
            await self._client.delete(ref, name, namespace)
        except StatusError as error:
            if error.status not in (404, 405, 409):
                return error.message
        return ""

    async def _finalize(self, namespace: Object) -> None:
        remaining = [finalizer for finalizer in namespace["spec"]["finalizers"] if finalizer != "kubernetes"]
        await self._client.update(NAMESPACES, {**namespace, "spec": {"finalizers": remaining}}, subresource="finalize")

    async def _report(self, namespace: Object, content: _Content) -> None:
        """Write the conditions that upstream's namespace controller writes, so that users see what remains."""
        remaining = {name: count for name, count in content.remaining.items() if name not in content.failures}
        reported = [
            *messages.NAMESPACE_DISCOVERED,
            messages.content_failures(list(content.failures.values())),
            messages.content_remaining(remaining),
            messages.finalizers_remaining(content.finalizers),
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
