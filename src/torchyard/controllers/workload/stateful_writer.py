"""The pods and claims of a StatefulSet: creates, updates and deletes them, with the set's events about them."""

from __future__ import annotations

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, PODS
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.workload import messages
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.controllers.workload.pod_writer import PodWriter
from torchyard.core.workload.statefulset_pods import (
    claim_owners,
    is_stale,
    make_claims,
    ordinal,
    with_identity,
    with_storage,
)
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer


class StatefulPodWriter:
    def __init__(
        self, client: Client, recorder: EventRecorder, pods: PodWriter, written: MutationCache, claims: Informer
    ) -> None:
        self._client, self._recorder, self._pods, self._written = client, recorder, pods, written
        self._claims = claims

    async def create(self, stateful_set: Object, pod: Object) -> bool:
        """Create the claims, then the pod. Returns False if it has to wait for a claim of its predecessor to go."""
        name, own = pod["metadata"]["name"], stateful_set["metadata"]["name"]
        if any(is_stale(name, "", claim) for claim in self._existing_claims(stateful_set, pod)):
            return False
        await self.create_claims(stateful_set, pod)
        try:
            created = await self._client.create(PODS, pod)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                self._report(stateful_set, "create", messages.stateful_pod("create", name, own, error.message), False)
            raise
        self._written.record(created)
        self._report(stateful_set, "create", messages.stateful_pod("create", name, own), True)
        await self.retain(stateful_set, created)
        return True

    async def create_claims(self, stateful_set: Object, pod: Object) -> None:
        """Create the claims of a pod that do not exist."""
        name, own = pod["metadata"]["name"], stateful_set["metadata"]["name"]
        for claim in make_claims(stateful_set, ordinal(pod)):
            key = claim["metadata"]["namespace"], claim["metadata"]["name"]
            present = self._claims.get(*key)
            if present is None:
                await self._create_claim(stateful_set, name, claim)
            elif is_terminating(present):
                why = messages.claim_is_terminating(key[1])
                text = messages.stateful_claim("create", key[1], name, own, why)
                self._report(stateful_set, "create", text, False)
                raise YardError(why)

    async def _create_claim(self, stateful_set: Object, pod: str, claim: Object) -> None:
        name, own = claim["metadata"]["name"], stateful_set["metadata"]["name"]
        try:
            await self._client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return
            text = messages.stateful_claim("create", name, pod, own, error.message)
            self._report(stateful_set, "create", text, False)
            raise
        self._report(stateful_set, "create", messages.stateful_claim("create", name, pod, own), True)

    async def retain(self, stateful_set: Object, pod: Object) -> None:
        """Give the claims of a pod the owners that the retention policy wants."""
        for claim in self._existing_claims(stateful_set, pod):
            wanted = claim_owners(stateful_set, pod, claim)
            if wanted != list(claim["metadata"].get("ownerReferences") or ()):
                metadata = {**claim["metadata"], "ownerReferences": wanted}
                await self._client.update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": metadata})

    def _existing_claims(self, stateful_set: Object, pod: Object) -> list[Object]:
        keys = (
            (claim["metadata"]["namespace"], claim["metadata"]["name"]) for claim in self._claims_of(stateful_set, pod)
        )
        return [claim for claim in (self._claims.get(*key) for key in keys) if claim is not None]

    @staticmethod
    def _claims_of(stateful_set: Object, pod: Object) -> list[Object]:
        return make_claims(stateful_set, ordinal(pod))

    async def update(self, stateful_set: Object, pod: Object) -> None:
        """Restore the labels of a pod. Its volumes cannot change, so an attempt to restore them is refused."""
        name, own = pod["metadata"]["name"], stateful_set["metadata"]["name"]
        changed = with_storage(stateful_set, with_identity(stateful_set, pod))
        try:
            self._written.record(await self._client.update(PODS, changed))
        except StatusError as error:
            self._report(stateful_set, "update", messages.stateful_pod("update", name, own, error.message), False)
            raise
        self._report(stateful_set, "update", messages.stateful_pod("update", name, own), True)

    async def delete(self, stateful_set: Object, pod: Object) -> None:
        name, own = pod["metadata"]["name"], stateful_set["metadata"]["name"]
        try:
            await self._pods.remove(pod)
        except StatusError as error:
            self._report(stateful_set, "delete", messages.stateful_pod("delete", name, own, error.message), False)
            raise
        self._report(stateful_set, "delete", messages.stateful_pod("delete", name, own), True)

    def _report(self, stateful_set: Object, verb: str, text: str, is_done: bool) -> None:
        reasons = {
            "create": (messages.CREATED, messages.NOT_CREATED),
            "update": (messages.UPDATED, messages.NOT_UPDATED),
            "delete": (messages.DELETED, messages.NOT_DELETED),
        }
        reason = reasons[verb][0 if is_done else 1]
        self._recorder.event(stateful_set, "Normal" if is_done else "Warning", reason, text)
