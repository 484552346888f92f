"""Informers shared by all controllers of a process, one per resource and selector (client-go's SharedInformerFactory).

Controllers request their informers in their constructors; `run` then keeps all of them current.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from torchyard.api.group_version import GroupVersionResource
from torchyard.kube.client import Client
from torchyard.kube.informer import IndexFunc, Informer, Transform
from torchyard.kube.supervisor import run_parts
from torchyard.kube.transform import strip_and_intern


class InformerFactory:
    def __init__(self, client: Client, *, namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace
        self._shared: dict[tuple[GroupVersionResource, str, str, str], Informer] = {}

    def for_resource(
        self,
        ref: GroupVersionResource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, IndexFunc] | None = None,
        transform: Transform = strip_and_intern,
    ) -> Informer:
        """Return the informer of this selection.

        Indexes are shared, so one name stands for one function; all users must agree on the transform.
        """
        scope = (namespace or self._namespace) if ref.namespaced else ""
        selection = (ref, scope, labels, fields)
        informer = self._shared.get(selection)
        if informer is None:
            informer = Informer(self._client, ref, namespace=scope, labels=labels, fields=fields, transform=transform)
            self._shared[selection] = informer
        if informer.transform is not transform:
            raise ValueError(f"the informer of {ref.plural} already has another transform")
        for name, index in (indexes or {}).items():
            informer.add_index(name, index)
        return informer

    async def synced(self) -> None:
        """Wait until every cache is complete."""
        for informer in self._shared.values():
            await informer.synced.wait()

    async def run(self) -> None:
        """Run all informers until cancelled, even if there are none."""
        parts = {
            " ".join(filter(None, (f"{ref.plural}.{ref.group}".rstrip("."), *selection))): informer.run
            for (ref, *selection), informer in self._shared.items()
        }
        await (run_parts(**parts) if parts else asyncio.Event().wait())
