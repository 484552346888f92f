"""Informers shared by all controllers of a process, one per resource and selector (client-go's SharedInformerFactory).

Controllers request their informers in their constructors and state what they read; `run` keeps all of them current.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from torchyard.api.group_version import GroupVersionResource
from torchyard.kube.client import Client
from torchyard.kube.informer import IndexFunc, Informer, Transform
from torchyard.kube.packed_informer import PackedInformer
from torchyard.kube.supervisor import run_parts
from torchyard.kube.transform import strip_managed_fields


class InformerFactory:
    def __init__(self, client: Client, *, namespace: str = "", packed: bool = False) -> None:
        """`packed`: keep objects as JSON (see `packed_informer`)."""
        self._client, self._class = client, PackedInformer if packed else Informer
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
        transform: Transform = strip_managed_fields,
        interns: bool = True,
    ) -> Informer:
        """Return the informer of this selection.

        Indexes are shared, so one name stands for one function. `transform` keeps what the caller reads; if another
        caller needs something else, the cache keeps whole objects.
        """
        scope = (namespace or self._namespace) if ref.namespaced else ""
        selection = (ref, scope, labels, fields)
        informer = self._shared.get(selection)
        if informer is None:
            informer = self._class(
                self._client, ref, namespace=scope, labels=labels, fields=fields, transform=transform, interns=interns
            )
            self._shared[selection] = informer
        if informer.transform is not transform:
            informer.keep_whole_objects()
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
