"""Events as a kubelet writes them: who, what, why; repeated ones counted instead of written again."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

from torchyard.api.errors import YardError
from torchyard.api.gvr import EVENTS
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.kube.client import Client

log = logging.getLogger(__name__)

_REMEMBERED = 1024


class NodeEventRecorder:
    """Writes in the background and in order; an event that cannot be written is a line in our own log."""

    def __init__(self, client: Client, *, node: str) -> None:
        self._client, self._node = client, node
        self._queue: asyncio.Queue[tuple[Object, str, str, str, str]] = asyncio.Queue()
        self._known: dict[tuple[str, str, str, str], Object] = {}

    def pod(self, pod: Object, reason: str, message: str, *, container: str = "", kind: str = "") -> None:
        """An event about a pod, or about one container of it; `kind` is Warning for what went wrong."""
        metadata = pod["metadata"]
        involved = {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "apiVersion": "v1",
            "resourceVersion": metadata.get("resourceVersion", ""),
        }
        if container:
            involved["fieldPath"] = _field_path(pod, container)
        self._queue.put_nowait((involved, metadata["namespace"], kind or "Normal", reason, message))

    def node(self, node: Object, reason: str, message: str, *, kind: str = "Normal") -> None:
        name = node["metadata"]["name"]
        involved = {"kind": "Node", "name": name, "uid": node["metadata"].get("uid", name), "apiVersion": "v1"}
        self._queue.put_nowait((involved, "default", kind, reason, message))

    async def run(self) -> None:
        while True:
            involved, namespace, kind, reason, message = await self._queue.get()
            try:
                await self._write(involved, namespace, kind, reason, message=message)
            except YardError as failed:
                log.warning("event %s about %s not written: %s", reason, involved["name"], failed)
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        await self._queue.join()

    async def _write(self, involved: Object, namespace: str, kind: str, reason: str, *, message: str) -> None:
        now = to_rfc3339(datetime.now(UTC))
        key = (involved["uid"], involved.get("fieldPath", ""), reason, message)
        known = self._known.get(key)
        if known is not None:
            known["count"] += 1
            known["lastTimestamp"] = now
            change = {"count": known["count"], "lastTimestamp": now}
            await self._client.patch(EVENTS, known["metadata"]["name"], change, namespace)
            return
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{involved['name']}.{time.time_ns():x}", "namespace": namespace},
            "involvedObject": involved,
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "kubelet", "host": self._node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "reportingComponent": "kubelet",
            "reportingInstance": self._node,
        }
        await self._client.create(EVENTS, event, namespace)
        if len(self._known) >= _REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[key] = event


def _field_path(pod: Object, name: str) -> str:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        if any(one["name"] == name for one in pod["spec"].get(group) or ()):
            return f"spec.{group}{{{name}}}"
    return ""
