"""The ids of pods: which pods have a range of the machine's ids for themselves, and which one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.core.pod.view import every_container
from torchyard.node.shim import records, shifted_ids

if TYPE_CHECKING:
    from torchyard.node.shim.record_types import PodRecord

# Above the ids that systemd gives to containers, below those that it reserves for foreign images.
_FIRST, _END = 0x70000000, 0x7FFE0000
_COUNT = (_END - _FIRST) // shifted_ids.COUNT


class IdRangeAllocator:
    """The records of the pods say which ranges are in use; nothing else is stored."""

    def __init__(self, pod_dirs: Iterable[Path]) -> None:
        self._used: set[int] = set()
        for pod_dir in pod_dirs:
            record = records.read_pod(str(pod_dir))
            if record and record.get("ids"):
                self._used.add(record["ids"])

    def allocate(self, uid: str) -> int:
        """The first id of a range. By the pod's uid, so that two planes on one machine hardly choose the same."""
        start = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4])
        for number in range(_COUNT):
            first = _FIRST + (start + number) % _COUNT * shifted_ids.COUNT
            if first not in self._used:
                self._used.add(first)
                return first
        raise YardError(messages.NO_FREE_IDS)

    def release(self, record: PodRecord) -> None:
        """The pod's directory is about to be removed."""
        self._used.discard(record.get("ids") or 0)


def not_shifted_by_spec(pod: Object) -> str:
    """Why the spec of a pod keeps it from having its own ids; empty if nothing does."""
    spec = pod["spec"]
    for name in ("hostUsers", "hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            return f"spec.{name} is true"
    for container in every_container(pod):
        context = container.get("securityContext") or {}
        if context.get("privileged"):
            return f"container {container['name']} is privileged"
        added = {name.upper().removeprefix("CAP_") for name in (context.get("capabilities") or {}).get("add") or ()}
        if added & {"ALL", "SYS_ADMIN"}:
            return f"container {container['name']} has CAP_SYS_ADMIN"
    largest = max(_ids(pod), default=0)
    return f"id {largest} is not below {shifted_ids.COUNT}" if largest >= shifted_ids.COUNT else ""


def _ids(pod: Object) -> Iterable[int]:
    """The ids that the spec of a pod names."""
    context = pod["spec"].get("securityContext") or {}
    yield from context.get("supplementalGroups") or ()
    for holder in (context, *((container.get("securityContext") or {}) for container in every_container(pod))):
        yield from (holder[name] for name in ("runAsUser", "runAsGroup", "fsGroup") if holder.get(name) is not None)
