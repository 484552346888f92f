"""Serves the stored CRDs, accepts their names, and deletes the objects of deleted CRDs.

Does the work of apiextensions-apiserver's naming, establishing and finalizer controllers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import ClassVar

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.crd.definition.status import (
    accept_names,
    condition,
    finish_termination,
    has_condition,
    is_terminating,
)
from torchyard.apiserver.crd.definition.strategy import DefinitionStrategy
from torchyard.apiserver.crd.resource import resources_of
from torchyard.apiserver.registry.catalog import collection_key
from torchyard.apiserver.registry.registry import Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.watch import StoreEvent
from torchyard.apiserver.verbs.delete import DeleteOptions, delete
from torchyard.apiserver.verbs.update import Compute, change_status

log = logging.getLogger(__name__)


GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
_COLLECTION = f"/{PLURAL}.{GROUP}/"
_RETRY_SECONDS = 1.0


def with_crd_strategy(resources: Iterable[Resource]) -> Iterable[Resource]:
    """The resources, with the strategy of CustomResourceDefinitions set."""
    for resource in resources:
        is_definition = (resource.group, resource.plural) == (GROUP, PLURAL)
        yield replace(resource, strategy=DefinitionStrategy()) if is_definition else resource


class CrdController:
    """Accepts names after the creation of a CRD and as part of later writes; a background task finishes deletions."""

    before_validation: ClassVar[bool] = False

    def __init__(self, registry: Registry, user: User) -> None:
        self._registry = registry
        self._user = user
        self._terminating = registry.terminating
        # Groups in which a CRD was deleted or changed: its names may be free for another CRD now.
        self._changed_groups: set[str] = set()
        self._wake = asyncio.Event()
        self._errors: dict[str, str] = {}  # the last one of a CRD
        registry.allocators[(GROUP, PLURAL)] = self
        registry.after_create[(GROUP, PLURAL)] = self._establish
        registry.store.listen(_COLLECTION, self._on_event)

    def allocate(self, _registry: Registry, new: Object, old: Object | None) -> None:
        """Accept the names of a CRD that is written again, as part of the write."""
        if old is not None:
            self._accept_names(new)

    def _accept_names(self, definition: Object) -> Object:
        accept_names(definition, self._others_of_group(definition["metadata"]["name"]), self._registry.clock())
        return definition

    async def _establish(self, name: str) -> None:
        """Accept the names of a new CRD by a second write, for which clients wait; then the CRD is served."""
        await self._attempt("cannot accept the names of a CRD", name, self._update_status(name, self._accept_names))

    def _others_of_group(self, name: str) -> list[Object]:
        """Only names of the same group collide, and a CRD is called `plural.group`: the others are not decoded."""
        group = name.partition(".")[2]
        records = self._registry.lookup.records(GROUP, PLURAL)
        names = ((record, record.key.rpartition("/")[2]) for record in records)
        return [record.object() for record, other in names if other != name and other.partition(".")[2] == group]

    def _on_event(self, event: StoreEvent) -> None:
        crd = event.record.object()
        name = crd["metadata"]["name"]
        if event.previous is not None:
            self._changed_groups.add(crd["spec"]["group"])
            self._wake.set()
        if event.change == "DELETED":
            self._terminating.discard(name)
            self._errors.pop(name, None)
            self._registry.catalog.drop_custom(name)
        else:
            self._registry.catalog.put_custom(name, resources_of(crd), revision=event.record.rev)
            if is_terminating(crd):
                self._terminating.add(name)
                self._wake.set()

    async def run(self) -> None:
        for crd in self._registry.lookup.list(GROUP, PLURAL):
            if condition(crd, "NamesAccepted") is None:  # the process ended between its two writes
                self._changed_groups.add(crd["spec"]["group"])
        while True:
            if not self._terminating and not self._changed_groups:
                self._wake.clear()
                await self._wake.wait()
            for name in list(self._terminating):
                await self._attempt("cannot delete the objects of a CRD", name, self._delete_instances(name))
            while self._changed_groups:
                await self._retry_names(self._changed_groups.pop())
            if self._terminating:
                await asyncio.sleep(_RETRY_SECONDS)  # objects with finalizers take longer

    async def _attempt(self, failure: str, name: str, work: Awaitable[None]) -> None:
        """Work for one CRD. An error, which is logged when it changes, keeps nothing from the others."""
        try:
            await work
        except Exception as error:
            text = f"{failure}: crd={name} error={error or type(error).__name__}"
            if self._errors.get(name) != text:
                self._errors[name] = text
                log.warning("%s", text, exc_info=not isinstance(error, StatusError))
        else:
            self._errors.pop(name, None)

    async def _delete_instances(self, name: str) -> None:
        """Delete a CRD's objects; remove its finalizer when none is left."""
        crd = self._registry.lookup.get(GROUP, PLURAL, "", name)
        if crd is None:
            return
        resources = resources_of(crd)
        if resources:
            # In the storage version, which needs no conversion: its webhook may be gone.
            stored = next(
                (version for version in resources if version.version == version.storage_version), resources[0]
            )
            await self._delete_objects(stored)
            if len(self._registry.store.collection(collection_key(stored))):
                return

        def compute(definition: Object) -> Object:
            finish_termination(definition, self._registry.clock())
            return definition

        await self._update_status(name, compute)

    async def _retry_names(self, group: str) -> None:
        """Write the CRDs of a group whose names are not accepted again: the write retries them."""
        for crd in self._registry.lookup.list(GROUP, PLURAL):
            name = crd["metadata"]["name"]
            if crd["spec"]["group"] == group and not has_condition(crd, "NamesAccepted"):
                await self._establish(name)

    async def _update_status(self, name: str, compute: Compute) -> None:
        await change_status(self._registry, self._user, (GROUP, PLURAL), name, compute)

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
