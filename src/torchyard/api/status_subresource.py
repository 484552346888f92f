"""The strategy of kinds with a status subresource: only that endpoint writes the status."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.strategy import Strategy


class StatusSubresourceStrategy(Strategy):
    """A kind with a spec and a status."""

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
