"""The runtimes of queued TrainJobs, from the snapshots that their controller makes."""

from __future__ import annotations

from torchyard.api.gvr import CONFIG_MAPS
from torchyard.api.objects import Object
from torchyard.api.trainjob import names
from torchyard.core.trainjob.snapshot import runtime_of
from torchyard.kube.informer import Informer
from torchyard.kube.informer_factory import InformerFactory


class RuntimeSnapshots:
    """`find` the runtime of a job. A snapshot is parsed once: it is large, and read with every change of its job."""

    def __init__(self, informers: InformerFactory) -> None:
        self.informer: Informer = informers.for_resource(CONFIG_MAPS, labels=names.SNAPSHOT_LABEL)
        self._parsed: dict[tuple[str, str], tuple[str, str, Object]] = {}  # by the job's namespace and name
        self.informer.on_change(self._changed)

    def find(self, job: Object) -> Object | None:
        metadata = job["metadata"]
        key = metadata["namespace"], metadata["name"]
        snapshot = self.informer.get(key[0], names.snapshot_name(key[1]))
        owners = (snapshot or {}).get("metadata", {}).get("ownerReferences") or ()
        if snapshot is None or not any(owner["uid"] == metadata["uid"] for owner in owners):
            return None
        revision = snapshot["metadata"]["resourceVersion"]
        parsed = self._parsed.get(key)
        if parsed is None or parsed[:2] != (metadata["uid"], revision):
            parsed = self._parsed[key] = metadata["uid"], revision, runtime_of(snapshot, job)
        return parsed[2]

    def _changed(self, change: str, snapshot: Object, _before: Object | None) -> None:
        if change == "DELETED":
            for owner in snapshot["metadata"].get("ownerReferences") or ():
                self._parsed.pop((snapshot["metadata"]["namespace"], owner["name"]), None)
