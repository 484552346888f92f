"""The strategy of kinds with a status subresource: only that endpoint writes the status."""

from __future__ import annotations

from typing import ClassVar

from torchyard.api.objects import Object
from torchyard.api.strategy import Strategy

# what upstream's ResetObjectMetaForStatus resets, besides what no client may change
OBJECT_META = ("labels", "annotations", "finalizers", "ownerReferences")


class StatusSubresourceStrategy(Strategy):
    """A kind with a spec and a status."""

    # metadata that the status endpoint does not change; for most kinds it changes all that the main endpoint does
    status_keeps: ClassVar[tuple[str, ...]] = ()

    def prepare_create(self, obj: Object) -> None:
        obj["status"] = {}

    def prepare_update(self, new: Object, old: Object) -> None:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)

    def prepare_status(self, new: Object, old: Object) -> None:
        if "spec" in old:
            new["spec"] = old["spec"]
        else:
            new.pop("spec", None)
        metadata, before = new["metadata"], old["metadata"]
        for name in self.status_keeps:
            if name in before:
                metadata[name] = before[name]
            else:
                metadata.pop(name, None)
