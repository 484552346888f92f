"""The ControllerRevisions of a StatefulSet or DaemonSet: reads, creates, renumbers and deletes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.gvr import CONTROLLER_REVISIONS
from torchyard.api.objects import Object
from torchyard.api.workload import labels
from torchyard.controllers.workload.ownership import Ownership
from torchyard.core.workload.revisions import (
    has_template_of,
    in_order,
    make_revision,
    next_number,
    number,
)
from torchyard.kube.client import Client
from torchyard.kube.informer import Informer


class History(NamedTuple):
    """The revisions of a workload, and the one of its present template."""

    revisions: list[Object]  # in order, the newest last; with the present one
    present: Object
    collisions: int | None  # how often the name of a new revision was taken


class RevisionWriter:
    def __init__(self, client: Client, owners: Informer, kind: str, revisions: Informer) -> None:
        self._client, self._ref, self._kind = client, owners.ref, kind
        self._ownership = Ownership(client, owners, kind, revisions)

    async def sync(self, owner: Object) -> History:
        """Make sure that the present template has a revision and that it is the newest one."""
        revisions = in_order([await self._with_hash(item) for item in await self._ownership.claim(owner)])
        # Upstream counts the collisions of StatefulSets from 0, and those of DaemonSets from nothing.
        collisions = (owner.get("status") or {}).get("collisionCount", 0 if self._kind == "StatefulSet" else None)
        equal = [revision for revision in revisions if has_template_of(revision, owner)]
        if not equal:
            present, collisions = await self._create(owner, next_number(revisions), collisions)
        else:
            present, newest = equal[-1], revisions[-1]
            if number(present) < number(newest):
                present = await self._renumber(present, number(newest) + 1)
        others = [revision for revision in revisions if revision["metadata"]["name"] != present["metadata"]["name"]]
        return History(in_order([*others, present]), present, collisions)

    async def _create(self, owner: Object, revision: int, collisions: int | None) -> tuple[Object, int | None]:
        while True:
            new_revision = make_revision(owner, self._ref, self._kind, revision, collisions)
            try:
                created = await self._client.create(CONTROLLER_REVISIONS, new_revision)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
                metadata = new_revision["metadata"]
                other = await self._client.get(CONTROLLER_REVISIONS, metadata["name"], metadata["namespace"])
                if has_template_of(other, owner):
                    return other, collisions
                collisions = (collisions or 0) + 1
            else:
                self._ownership.cache.record(created)
                return created, collisions

    async def _with_hash(self, revision: Object) -> Object:
        """As in upstream, a DaemonSet's revision that has lost its hash label gets its own name, which is unique."""
        own = revision["metadata"].get("labels") or {}
        if self._kind != "DaemonSet" or labels.CONTROLLER_REVISION_HASH in own:
            return revision
        own = {**own, labels.CONTROLLER_REVISION_HASH: revision["metadata"]["name"]}
        return await self._update({**revision, "metadata": {**revision["metadata"], "labels": own}})

    async def _renumber(self, revision: Object, to: int) -> Object:
        return await self._update({**revision, "revision": to})

    async def _update(self, revision: Object) -> Object:
        updated = await self._client.update(CONTROLLER_REVISIONS, revision)
        self._ownership.cache.record(updated)
        return updated

    async def delete(self, revisions: Iterable[Object]) -> None:
        for revision in revisions:
            metadata = revision["metadata"]
            try:
                await self._client.delete(
                    CONTROLLER_REVISIONS, metadata["name"], metadata["namespace"], uid=metadata["uid"]
                )
            except StatusError as error:
                if error.status != 404:
                    raise
