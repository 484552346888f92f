"""Workloads over time: writes what `core.queue.lifecycle` requires for checks, time limits and stopped queues."""

from __future__ import annotations

from functools import partial

from torchyard.api.conditions import find, is_true
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.controllers.queue.stores import QueueStore
from torchyard.controllers.queue.writer import RETRY_SOON
from torchyard.core.queue.cache import workloads_of_cluster_queue
from torchyard.core.queue.lifecycle import WorkloadOutcome, evaluate
from torchyard.core.queue.settings import QueueSettings
from torchyard.core.queue.specs import ClusterQueueSpec
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, key_of


class WorkloadReconciler:
    def __init__(
        self, store: QueueStore, recorder: EventRecorder, metrics: QueueMetrics, settings: QueueSettings
    ) -> None:
        self._store, self._recorder, self._metrics, self._settings = store, recorder, metrics, settings
        self._controller = Controller("kueue-workloads", self._reconcile, store.informers)
        self.queue = self._controller.queue
        store.workloads.on_change(self._workload_changed)
        for informer in (store.cluster_queues, store.local_queues):
            informer.on_change(self._queue_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        if change == "DELETED":
            return
        outcome = self._evaluate(obj)
        if outcome.status is not None or outcome.deactivate:
            self.queue.add(key_of(obj))
        elif outcome.evaluate_after is not None:
            self.queue.add_after(key_of(obj), outcome.evaluate_after)

    def _queue_changed(self, _change: str, obj: Object, before: Object | None) -> None:
        """A queue that was stopped may evict its workloads; one that was resumed evicts none."""
        metadata, policy = obj["metadata"], _stop_policy(obj)
        if before is not None and _checks(obj) != _checks(before):
            for info in workloads_of_cluster_queue(self._store.state.cache, metadata["name"]):
                self.queue.add(info.key)
        elif policy != names.NO_STOP and (before is None or policy != _stop_policy(before)):
            cache = self._store.state.cache
            for info in cache.reserving_workloads(metadata.get("namespace", ""), metadata["name"]):
                self.queue.add(info.key)

    def _evaluate(self, obj: Object) -> WorkloadOutcome:
        has_owner = bool(obj["metadata"].get("ownerReferences"))
        stops = partial(self._stop_policies, obj)
        spec = self._cluster_queue_spec(obj)
        return evaluate(obj, self._store.now(), self._settings, stops=stops, has_owner=has_owner, cluster_queue=spec)

    def _cluster_queue_spec(self, obj: Object) -> ClusterQueueSpec | None:
        """The ClusterQueue of its quota, otherwise that of its LocalQueue."""
        cache, metadata = self._store.state.cache, obj["metadata"]
        name = ((obj.get("status") or {}).get("admission") or {}).get("clusterQueue", "")
        if not name:
            local_queue = (metadata["namespace"], (obj.get("spec") or {}).get("queueName", ""))
            name = cache.local_queues.get(local_queue, {}).get("clusterQueue", "")
        return self._store.state.objects.cluster_queue(name)

    def _stop_policies(self, obj: Object) -> dict[str, str]:
        """The policies of the queues that stop this workload, which holds quota, by kind."""
        namespace, name = obj["metadata"]["namespace"], (obj.get("spec") or {}).get("queueName", "")
        queues = {
            names.CLUSTER_QUEUE.kind: self._store.cluster_queues.get("", obj["status"]["admission"]["clusterQueue"]),
            names.LOCAL_QUEUE.kind: self._store.local_queues.get(namespace, name),
        }
        policies = {kind: _stop_policy(queue) for kind, queue in queues.items() if queue is not None}
        return {kind: policy for kind, policy in policies.items() if policy != names.NO_STOP}

    async def _reconcile(self, key: Key) -> float | None:
        obj = self._store.current(key)
        if obj is None:
            return None
        if self._store.writer.is_writing(key):
            return RETRY_SOON  # a write that succeeds comes back as a change, but one that fails does not
        outcome = self._evaluate(obj)
        written: Object | None = obj
        if outcome.status is not None:
            written = await self._store.writer.write_status(key, obj, outcome.status)
            if written is None:
                return RETRY_SOON
            self._record(written, obj, outcome)
        if outcome.deactivate and written is not None:
            precondition = {"resourceVersion": written["metadata"]["resourceVersion"]}
            patch = {"metadata": precondition, "spec": {"active": False}}
            await self._store.client.patch(WORKLOADS, key[1], patch, key[0])
        return outcome.evaluate_after

    def _record(self, obj: Object, before: Object, outcome: WorkloadOutcome) -> None:
        """Events and metrics of a status that was written."""
        reference = {"apiVersion": names.API_VERSION, "kind": names.WORKLOAD.kind, "metadata": obj["metadata"]}
        for event in outcome.events:
            self._recorder.event(reference, event.kind, event.reason, event.message)
        conditions = obj["status"].get("conditions") or ()
        old_conditions = (before.get("status") or {}).get("conditions") or ()
        cluster_queue = (obj["status"].get("admission") or {}).get("clusterQueue", "")
        evicted = find(conditions, messages.EVICTED)
        if evicted is not None and evicted["status"] == "True" and not is_true(old_conditions, messages.EVICTED):
            self._metrics.evicted(cluster_queue, evicted["reason"])
        if is_true(conditions, messages.ADMITTED) and not is_true(old_conditions, messages.ADMITTED):
            info = self._store.state.cache.workloads.get(key_of(obj))
            waited = max(0.0, self._store.now() - info.reserved_at) if info is not None else 0.0
            message = messages.admitted_event(cluster_queue, waited)
            self._recorder.event(reference, "Normal", messages.ADMITTED, message)
            self._metrics.admitted(cluster_queue, waited)


def _checks(queue: Object) -> Object:
    checks: Object = (queue.get("spec") or {}).get("admissionChecksStrategy") or {}
    return checks


def _stop_policy(queue: Object) -> str:
    return (queue.get("spec") or {}).get("stopPolicy") or names.NO_STOP
