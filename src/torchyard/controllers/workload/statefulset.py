"""StatefulSets: lets `core.workload.statefulset` decide about a set and its pods, and applies the decision."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.gvr import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from torchyard.api.objects import Object
from torchyard.api.workload import messages
from torchyard.controllers.loop import Controller
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.controllers.workload.ownership import Ownership, with_kind
from torchyard.controllers.workload.pod_writer import PodWriter
from torchyard.controllers.workload.revision_writer import History, RevisionWriter
from torchyard.controllers.workload.stateful_writer import StatefulPodWriter
from torchyard.core.workload.pods import earliest
from torchyard.core.workload.revisions import expired
from torchyard.core.workload.statefulset import StatefulSetDecision, StatefulSetView, choose_current, decide
from torchyard.core.workload.statefulset_pods import is_member, revision_of
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

_STALE_CLAIM_SECONDS = 1.0


class StatefulSetController:
    """`run` until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._clock = client, clock
        name = messages.STATEFUL_SET_CONTROLLER
        self._recorder = EventRecorder(client, name, clock=clock)
        self._sets = informers.for_resource(STATEFUL_SETS)
        pods, claims = informers.for_resource(PODS), informers.for_resource(PERSISTENT_VOLUME_CLAIMS)
        revisions = informers.for_resource(CONTROLLER_REVISIONS)
        self._ownership = Ownership(client, self._sets, "StatefulSet", pods)
        self._revisions = RevisionWriter(client, self._sets, "StatefulSet", revisions)
        self._written = MutationCache(self._sets)
        self._pods = PodWriter(client, self._recorder, pods, self._ownership.cache)
        self._writer = StatefulPodWriter(client, self._recorder, self._pods, self._ownership.cache, claims)
        self._controller = Controller(name, self._reconcile, [self._sets, pods, claims, revisions])
        self._sets.on_change(lambda _change, obj, _before: self._controller.queue.add(key_of(obj)))
        pods.on_change(self._pod_changed)

    async def run(self) -> None:
        await run_parts(recorder=self._recorder.run, controller=self._controller.run)

    def _pod_changed(self, _change: str, pod: Object, before: Object | None) -> None:
        for key in self._ownership.affected(pod, before):
            self._controller.queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._written.get(key)
        if cached is None:
            return None
        stateful_set = with_kind(cached, STATEFUL_SETS, "StatefulSet")
        history = await self._revisions.sync(stateful_set)
        pods = await self._ownership.claim(stateful_set, eligible=lambda pod: is_member(stateful_set, pod))
        view = StatefulSetView(
            stateful_set,
            tuple(pods),
            choose_current(stateful_set, history.revisions, history.present),
            history.present,
            history.collisions or 0,
            self._clock(),
        )
        decision = decide(view)
        try:
            is_waiting = await self._apply(stateful_set, decision)
        finally:
            await self._write_status(stateful_set, decision.status)
        await self._truncate(view, history)
        return earliest(decision.wake_after, _STALE_CLAIM_SECONDS if is_waiting else None)

    async def _apply(self, stateful_set: Object, decision: StatefulSetDecision) -> bool:
        """Returns whether a pod waits for a claim of its predecessor to go, whose deletion leads to no pass."""
        is_waiting = False
        for pod in decision.create:
            is_waiting = not await self._writer.create(stateful_set, pod) or is_waiting
        for pod in decision.claims_of:
            await self._writer.create_claims(stateful_set, pod)
        for pod in decision.update:
            await self._writer.update(stateful_set, pod)
        for pod in decision.retain:
            await self._writer.retain(stateful_set, pod)
        for pod in self._pods.present(decision.delete):
            await self._writer.delete(stateful_set, pod)
        return is_waiting

    async def _write_status(self, stateful_set: Object, status: Object) -> None:
        if status != (stateful_set.get("status") or {}):
            changed = {**stateful_set, "status": status}
            self._written.record(await self._client.update(STATEFUL_SETS, changed, subresource="status"))

    async def _truncate(self, view: StatefulSetView, history: History) -> None:
        """Delete the revisions beyond the limit that neither the set nor a pod uses."""
        used = {revision["metadata"]["name"] for revision in (view.current, view.update)} | set(
            map(revision_of, view.pods)
        )
        limit = view.spec.get("revisionHistoryLimit")
        await self._revisions.delete(expired(history.revisions, used, 10 if limit is None else limit))
