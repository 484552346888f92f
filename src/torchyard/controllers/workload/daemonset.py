"""DaemonSets: lets `core.workload.daemonset` decide about a set, its pods and the nodes, and applies the decision."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from torchyard.api.errors import StatusError
from torchyard.api.gvr import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.workload import labels, messages
from torchyard.controllers.loop import Controller
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.controllers.workload.ownership import Ownership, with_kind
from torchyard.controllers.workload.pod_writer import PodWriter
from torchyard.controllers.workload.revision_writer import History, RevisionWriter
from torchyard.core.workload.daemonset import DaemonSetDecision, DaemonSetView, decide
from torchyard.core.workload.daemonset_nodes import make_pod
from torchyard.core.workload.revisions import expired
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

_MIN_BACKOFF, _MAX_BACKOFF = timedelta(seconds=1), timedelta(minutes=15)


class NodeBackoff(NamedTuple):
    """Since when and for how long a failed pod on a node is not replaced."""

    since: datetime
    length: timedelta


class DaemonSetController:
    """`run` until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._clock = client, clock
        name = messages.DAEMON_SET_CONTROLLER
        self._recorder = EventRecorder(client, name, clock=clock)
        self._sets = informers.for_resource(DAEMON_SETS)
        self._nodes, pods = informers.for_resource(NODES), informers.for_resource(PODS)
        revisions = informers.for_resource(CONTROLLER_REVISIONS)
        self._ownership = Ownership(client, self._sets, "DaemonSet", pods)
        self._revisions = RevisionWriter(client, self._sets, "DaemonSet", revisions)
        self._written = MutationCache(self._sets)
        self._writer = PodWriter(client, self._recorder, pods, self._ownership.cache)
        self._backoffs: dict[str, dict[str, NodeBackoff]] = {}  # by the uid of a set, and by node
        self._controller = Controller(name, self._reconcile, [self._sets, self._nodes, pods, revisions])
        self._sets.on_change(self._set_changed)
        self._nodes.on_change(self._node_changed)
        pods.on_change(self._pod_changed)

    async def run(self) -> None:
        await run_parts(recorder=self._recorder.run, controller=self._controller.run)

    def _set_changed(self, change: str, daemon_set: Object, _before: Object | None) -> None:
        if change == "DELETED":
            self._backoffs.pop(daemon_set["metadata"]["uid"], None)
        self._controller.queue.add(key_of(daemon_set))

    def _node_changed(self, change: str, node: Object, before: Object | None) -> None:
        """Heartbeats change only the status, which does not matter here."""
        if change == "DELETED" or before is None or _placement_inputs(node) != _placement_inputs(before):
            for daemon_set in self._sets.all():
                self._controller.queue.add(key_of(daemon_set))

    def _pod_changed(self, _change: str, pod: Object, before: Object | None) -> None:
        for key in self._ownership.affected(pod, before):
            self._controller.queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._written.get(key)
        if cached is None:
            return None
        daemon_set = with_kind(cached, DAEMON_SETS, "DaemonSet")
        if is_terminating(daemon_set):
            # Its revisions may be gone already; `sync` would create one that nothing deletes.
            return None
        history = await self._revisions.sync(daemon_set)
        pods = self._writer.present(await self._ownership.claim(daemon_set))
        now, uid = self._clock(), daemon_set["metadata"]["uid"]
        view = DaemonSetView(
            daemon_set,
            tuple(pods),
            tuple(self._nodes.all()),
            _hash(history.present),
            history.collisions,
            now,
            lambda node: self._remaining(uid, node, now),
        )
        decision = decide(view)
        error = await self._apply(view, decision)
        await self._write_status(daemon_set, decision.status)
        if error is not None:
            raise error
        await self._truncate(view, history)
        return decision.wake_after

    def _remaining(self, uid: str, node: str, now: datetime) -> float:
        backoff = self._backoffs.get(uid, {}).get(node)
        return (backoff.since + backoff.length - now).total_seconds() if backoff else 0.0

    def _extend(self, uid: str, node: str, now: datetime) -> None:
        """Double the back-off of a node; it starts again after a long time without failures."""
        nodes = self._backoffs.setdefault(uid, {})
        before = nodes.get(node)
        is_fresh = before is None or now - before.since > 2 * _MAX_BACKOFF
        length = _MIN_BACKOFF if before is None or is_fresh else min(before.length * 2, _MAX_BACKOFF)
        nodes[node] = NodeBackoff(now, length)

    async def _apply(self, view: DaemonSetView, decision: DaemonSetDecision) -> StatusError | None:
        daemon_set = view.daemon_set
        for node in decision.failed_on:
            self._extend(daemon_set["metadata"]["uid"], node, view.now)
        for event in decision.events:
            self._recorder.event(daemon_set, event.kind, event.reason, event.message)
        pods = [make_pod(daemon_set, node, view.hash) for node in decision.create]
        failed = await self._writer.create(daemon_set, pods)
        return await self._writer.delete(daemon_set, decision.delete) or failed

    async def _write_status(self, daemon_set: Object, status: Object) -> None:
        if status != (daemon_set.get("status") or {}):
            changed = {**daemon_set, "status": status}
            self._written.record(await self._client.update(DAEMON_SETS, changed, subresource="status"))

    async def _truncate(self, view: DaemonSetView, history: History) -> None:
        """Delete the revisions beyond the limit that no pod uses."""
        live = {(pod["metadata"].get("labels") or {}).get(labels.CONTROLLER_REVISION_HASH) for pod in view.pods}
        used = {item["metadata"]["name"] for item in history.revisions if _hash(item) in live}
        limit = view.spec.get("revisionHistoryLimit")
        unused = expired(
            history.revisions, used | {history.present["metadata"]["name"]}, 10 if limit is None else limit
        )
        await self._revisions.delete(unused)


def _hash(revision: Object) -> str:
    return str((revision["metadata"].get("labels") or {}).get(labels.CONTROLLER_REVISION_HASH, ""))


def _placement_inputs(node: Object) -> tuple[object, object]:
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")
