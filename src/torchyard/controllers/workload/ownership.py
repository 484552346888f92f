"""What belongs to a workload: finds its objects by owner, adopts orphans and releases what no longer matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.metadata import controller_of, controller_reference, is_terminating
from torchyard.api.objects import Object
from torchyard.controllers.concurrency import gather_all
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.controllers.orphans import orphan_keys, workload_selector_keys
from torchyard.core.workload.adoption import Predicate, match, selector_of
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer, Key, by_owner


class Ownership:
    """The objects of one resource (`dependents`) that belong to objects of another (`owners`).

    `cache` holds what the controller itself wrote and the informer has not seen yet.
    """

    def __init__(self, client: Client, owners: Informer, kind: str, dependents: Informer) -> None:
        owners.add_index("selector", workload_selector_keys)
        dependents.add_index("owner", by_owner)
        dependents.add_index("orphans", orphan_keys)
        self._client, self._owners, self._kind, self._dependents = client, owners, kind, dependents
        self._api_version = owners.ref.api_version
        self.cache = MutationCache(dependents, "owner", by_owner)

    def reference(self, owner: Object) -> Object:
        return controller_reference(owner, self._owners.ref.api_version, self._kind)

    def owner_of(self, dependent: Object) -> Object | None:
        """The owner of an object, if it is of this kind and exists."""
        reference = controller_of(dependent)
        if reference is None or reference["kind"] != self._kind or reference["apiVersion"] != self._api_version:
            return None
        owner = self._owners.get(dependent["metadata"]["namespace"], reference["name"])
        return owner if owner is not None and owner["metadata"]["uid"] == reference["uid"] else None

    def affected(self, dependent: Object, before: Object | None) -> Iterator[Key]:
        """The keys of the owners that a change concerns: the present one, the earlier one, or who could adopt it."""
        if self._owners.is_empty:
            return
        reference = controller_of(dependent)
        if reference is not None:
            yield from self._key(dependent, reference)
        if before is not None:
            earlier = controller_of(before)
            if earlier is not None and (reference is None or earlier["uid"] != reference["uid"]):
                yield from self._key(dependent, earlier)
        if reference is None:
            for owner in self._selecting(dependent):
                yield dependent["metadata"]["namespace"], owner["metadata"]["name"]

    def _key(self, dependent: Object, reference: Object) -> Iterator[Key]:
        if reference["kind"] == self._kind and reference["apiVersion"] == self._api_version:
            yield dependent["metadata"]["namespace"], reference["name"]

    def _selecting(self, orphan: Object) -> Iterator[Object]:
        for key in orphan_keys(orphan):
            for owner in self._owners.by("selector", key):
                if selector_of({**owner, "kind": self._kind}).matches(orphan["metadata"].get("labels")):
                    yield owner

    async def claim(
        self, owner: Object, *, among: Predicate = lambda _obj: True, eligible: Predicate = lambda _obj: True
    ) -> list[Object]:
        """What belongs to an owner, after orphans were adopted and others released.

        Objects that are not `among` those in question are neither adopted nor released.
        """
        (key,) = workload_selector_keys(owner)
        own = filter(among, self.cache.by_index(owner["metadata"]["uid"]))
        orphans = filter(among, self._dependents.by("orphans", key))
        claimed = match(owner, own, orphans, eligible=eligible)
        await self._release(owner, claimed.release)
        return claimed.owned + await self._adopt(owner, claimed.adopt)

    async def _adopt(self, owner: Object, orphans: Iterable[Object]) -> list[Object]:
        orphans = list(orphans)
        if not orphans or not await self._still_exists(owner):
            return []
        metadata = {"ownerReferences": [self.reference(owner)]}
        adopted = await gather_all(self._patch(orphan, metadata) for orphan in orphans)
        return [obj for obj in adopted if obj is not None]

    async def _still_exists(self, owner: Object) -> bool:
        """Asks the server, because the cache may be behind, and a deleted owner must not adopt."""
        metadata = owner["metadata"]
        present = await self._client.find(self._owners.ref, metadata["name"], metadata["namespace"])
        return present is not None and present["metadata"]["uid"] == metadata["uid"] and not is_terminating(present)

    async def _release(self, owner: Object, objects: Iterable[Object]) -> None:
        metadata = {"ownerReferences": [{"$patch": "delete", "uid": owner["metadata"]["uid"]}]}
        await gather_all(self._patch(obj, metadata) for obj in objects)

    async def _patch(self, obj: Object, metadata: Object) -> Object | None:
        own, ref = obj["metadata"], self._dependents.ref
        body = {"metadata": {**metadata, "uid": own["uid"]}}
        try:
            patched = await self._client.patch(ref, own["name"], body, own["namespace"], kind="strategic")
        except StatusError as error:
            if error.status == 404:
                return None
            raise
        self.cache.record(patched)
        return patched


def with_kind(obj: Object, ref: GroupVersionResource, kind: str) -> Object:
    """An object of a cache, which may lack its type."""
    return {**obj, "apiVersion": ref.api_version, "kind": kind}
