"""One live copy per resource for everybody in this process who looks at it.

Controllers ask for what they need while they are built; `run` then keeps all of it current.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from torchyard.api.group_version import GroupVersionResource
from torchyard.kube.client import Client
from torchyard.kube.informer import IndexFunc, Informer, Transform
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
        """The informer of this selection. Its indexes are shared, one name means one function; and what is kept too."""
        within = (namespace or self._namespace) if ref.namespaced else ""
        selection = (ref, within, labels, fields)
        informer = self._shared.get(selection)
        if informer is None:
            informer = Informer(self._client, ref, namespace=within, labels=labels, fields=fields, transform=transform)
            self._shared[selection] = informer
        if informer.transform is not transform:
            raise ValueError(f"of {ref.plural} something else is kept already")
        for name, index in (indexes or {}).items():
            informer.add_index(name, index)
        return informer

    async def synced(self) -> None:
        """Wait until every copy is complete."""
        for informer in self._shared.values():
            await informer.synced.wait()

    async def run(self) -> None:
        """Keep all that was asked for current until cancelled, also when that is nothing."""
        async with asyncio.TaskGroup() as group:
            for informer in self._shared.values():
                group.create_task(informer.run(), name=f"{informer.ref.plural} informer")
            await asyncio.Event().wait()
