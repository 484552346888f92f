"""Keeps what is served in step with the definitions in the store, and empties those that are deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.crd.definition.status import accept_names, finish_termination, has_condition, is_terminating
from torchyard.apiserver.crd.definition.strategy import DefinitionStrategy
from torchyard.apiserver.crd.resource import resources_of
from torchyard.apiserver.registry.catalog import collection_key
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.apiserver.verbs.delete import DeleteOptions, delete
from torchyard.apiserver.verbs.update import Compute, change

log = logging.getLogger(__name__)


GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
_COLLECTION = f"/{PLURAL}.{GROUP}/"
_PAUSE = 1.0


def with_crd_strategy(resources: Iterable[Resource]) -> Iterable[Resource]:
    """The resources, with CustomResourceDefinitions behaving as such."""
    for one in resources:
        is_definition = (one.group, one.plural) == (GROUP, PLURAL)
        yield replace(one, strategy=DefinitionStrategy()) if is_definition else one


class CrdController:
    """An allocator (it gives definitions their names) and a background task (it empties deleted ones)."""

    before_validation: ClassVar[bool] = False

    def __init__(self, registry: Registry, user: User) -> None:
        self._registry = registry
        self._user = user
        self._terminating = registry.terminating
        # Groups of which a definition went or changed: another one may get a name now that was taken.
        self._moved: set[str] = set()
        self._wake = asyncio.Event()
        registry.allocators[(GROUP, PLURAL)] = self
        registry.store.listen(_COLLECTION, self._follow)

    def allocate(self, registry: Registry, new: Object, _old: Object | None) -> None:
        """Settle a definition's names and status as part of the write itself."""
        name = new["metadata"]["name"]
        others = [one for one in registry.lookup.list(GROUP, PLURAL) if one["metadata"]["name"] != name]
        accept_names(new, others, registry.clock())

    def _follow(self, event: StoreEvent) -> None:
        crd = event.record.object()
        name = crd["metadata"]["name"]
        if event.previous is not None:
            self._moved.add(crd["spec"]["group"])
            self._wake.set()
        if event.change == "DELETED":
            self._terminating.discard(name)
            self._registry.catalog.drop_custom(name)
        else:
            self._registry.catalog.put_custom(name, resources_of(crd), revision=event.record.rev)
            if is_terminating(crd):
                self._terminating.add(name)
                self._wake.set()

    async def run(self) -> None:
        while True:
            if not self._terminating and not self._moved:
                self._wake.clear()
                await self._wake.wait()
            for name in list(self._terminating):
                try:
                    await self._empty(name)
                except StatusError as error:
                    log.warning("deleting the objects of %s: %s", name, error)
            while self._moved:
                await self._settle(self._moved.pop())
            if self._terminating:
                await asyncio.sleep(_PAUSE)  # objects with finalizers take their time

    async def _empty(self, name: str) -> None:
        """Delete a definition's objects; when none is left, let it go."""
        crd = self._registry.lookup.get(GROUP, PLURAL, "", name)
        if crd is None:
            return
        resources = resources_of(crd)
        if resources:
            await self._delete_objects(resources[0])
            if len(self._registry.store.collection(collection_key(resources[0]))):
                return

        def compute(definition: Object) -> Object:
            finish_termination(definition, self._registry.clock())
            return definition

        await self._change(name, compute)

    async def _settle(self, group: str) -> None:
        """Look again at the definitions of a group that did not get their names: a write settles them."""
        for crd in self._registry.lookup.list(GROUP, PLURAL):
            name = crd["metadata"]["name"]
            if crd["spec"]["group"] == group and not has_condition(crd, "NamesAccepted"):
                try:
                    await self._change(name, lambda definition: definition)
                except StatusError as error:
                    log.warning("settling the names of %s: %s", name, error)

    async def _change(self, name: str, compute: Compute) -> None:
        definitions = self._registry.catalog.find(GROUP, "v1", PLURAL)
        assert definitions is not None
        ctx = RequestContext(definitions, "update", "", name, self._user, self._registry.clock(), subresource="status")
        await change(self._registry, ctx, compute, managed_fields_set=True)

    async def _delete_objects(self, resource: Resource) -> None:
        for record in self._registry.store.collection(collection_key(resource)).all():
            namespace, name = record.key.rsplit("/", 2)[1:]
            if record.object()["metadata"].get("deletionTimestamp"):
                continue
            ctx = RequestContext(resource, "delete", namespace, name, self._user, self._registry.clock())
            try:
                await delete(self._registry, ctx, DeleteOptions())
            except StatusError as error:
                if error.status != 404:
                    raise
