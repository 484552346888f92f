"""Events as a kubelet writes them. A repeated event increases the count of the first."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import EVENTS
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.kube.client import Client

log = logging.getLogger(__name__)

_CACHE_SIZE = 1024


class NodeEventRecorder:
    """Writes in the background and in order. An event that cannot be written is logged."""

    def __init__(self, client: Client, *, node: str) -> None:
        self._client, self._node = client, node
        self._queue: asyncio.Queue[tuple[Object, str, str, str, str]] = asyncio.Queue()
        self._cache: dict[tuple[str, str, str, str], Object] = {}

    def pod(self, pod: Object, reason: str, message: str, *, container: str = "", kind: str = "") -> None:
        """An event about a pod or one of its containers; `kind` is Normal or Warning."""
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

    def warn(self, obj: Object, reason: str, message: str) -> None:
        """A warning about a Service or a pod, for what the node cannot do for it."""
        metadata = obj["metadata"]
        involved = {name: metadata[name] for name in ("namespace", "name", "uid")}
        involved |= {"kind": obj.get("kind") or ("Pod" if "containers" in obj["spec"] else "Service")}
        involved |= {"apiVersion": "v1", "resourceVersion": metadata.get("resourceVersion", "")}
        self._queue.put_nowait((involved, metadata["namespace"], "Warning", reason, message))

    def node(self, node: Object, reason: str, message: str, *, kind: str = "Normal") -> None:
        name = node["metadata"]["name"]
        involved = {"kind": "Node", "name": name, "uid": node["metadata"].get("uid", name), "apiVersion": "v1"}
        self._queue.put_nowait((involved, "default", kind, reason, message))

    async def run(self) -> None:
        while True:
            involved, namespace, kind, reason, message = await self._queue.get()
            try:
                await self._write(involved, namespace, kind, reason, message=message)
            except YardError as error:
                log.warning("event not written: reason=%s object=%s error=%r", reason, involved["name"], str(error))
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        await self._queue.join()

    async def _write(self, involved: Object, namespace: str, kind: str, reason: str, *, message: str) -> None:
        now = to_rfc3339(datetime.now(UTC))
        key = (involved["uid"], involved.get("fieldPath", ""), reason, message)
        earlier = self._cache.get(key)
        if earlier is not None:
            earlier["count"] += 1
            earlier["lastTimestamp"] = now
            change = {"count": earlier["count"], "lastTimestamp": now}
            try:
                await self._client.patch(EVENTS, earlier["metadata"]["name"], change, namespace)
            except StatusError as error:
                if error.status != 404:
                    raise
                del self._cache[key]  # servers delete events after an hour: it is written again, as by client-go
            else:
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
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.pop(next(iter(self._cache)))
        self._cache[key] = event


def _field_path(pod: Object, name: str) -> str:
    for group in ("initContainers", "containers", "ephemeralContainers"):
        if any(container["name"] == name for container in pod["spec"].get(group) or ()):
            return f"spec.{group}{{{name}}}"
    return ""
