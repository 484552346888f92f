"""Workloads over time: what `core.queue.lifecycle` makes of checks, limits of time and stopped queues, written."""

from __future__ import annotations

from functools import partial

from torchyard.api.conditions import find, is_true
from torchyard.api.objects import Object
from torchyard.api.queue import messages, names
from torchyard.controllers.loop import Controller
from torchyard.controllers.queue.metrics import Metrics
from torchyard.controllers.queue.refs import WORKLOADS
from torchyard.controllers.queue.stores import SOON, State
from torchyard.core.queue.lifecycle import Outcome, QueueSettings, look
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key


class WorkloadController:
    def __init__(self, state: State, recorder: EventRecorder, metrics: Metrics, settings: QueueSettings) -> None:
        self._state, self._recorder, self._metrics, self._settings = state, recorder, metrics, settings
        self._controller = Controller("kueue-workloads", self._reconcile, state.informers)
        self.queue = self._controller.queue
        state.workloads.on_change(self._workload_changed)
        for informer in (state.cluster_queues, state.local_queues):
            informer.on_change(self._queue_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _workload_changed(self, change: str, obj: Object, _before: Object | None) -> None:
        if change == "DELETED":
            return
        outcome = self._look(obj)
        key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
        if outcome.status is not None or outcome.deactivate:
            self.queue.add(key)
        elif outcome.wake_after is not None:
            self.queue.add_after(key, outcome.wake_after)

    def _queue_changed(self, _change: str, obj: Object, before: Object | None) -> None:
        """A queue that stops may have to take back what it gave; one that opens has nothing to take."""
        policy = _stop_policy(obj)
        if policy == names.NO_STOP or (before is not None and policy == _stop_policy(before)):
            return
        metadata = obj["metadata"]
        for item in self._state.book.holders(metadata.get("namespace", ""), metadata["name"]):
            self.queue.add(item.key)

    def _look(self, obj: Object) -> Outcome:
        has_owner = bool(obj["metadata"].get("ownerReferences"))
        return look(obj, self._state.now(), self._settings, stops=partial(self._stops, obj), has_owner=has_owner)

    def _stops(self, obj: Object) -> dict[str, str]:
        """The policies of the queues that stop this workload, which holds quota."""
        namespace, name = obj["metadata"]["namespace"], (obj.get("spec") or {}).get("queueName", "")
        found = {
            names.CLUSTER_QUEUE.kind: self._state.cluster_queues.get("", obj["status"]["admission"]["clusterQueue"]),
            names.LOCAL_QUEUE.kind: self._state.local_queues.get(namespace, name),
        }
        policies = {kind: _stop_policy(queue) for kind, queue in found.items() if queue is not None}
        return {kind: policy for kind, policy in policies.items() if policy != names.NO_STOP}

    async def _reconcile(self, key: Key) -> float | None:
        obj = self._state.current(key)
        if obj is None:
            return None
        if self._state.is_writing(key):
            return SOON  # what is written comes back as a change, but not what is refused
        outcome = self._look(obj)
        written: Object | None = obj
        if outcome.status is not None:
            written = await self._state.write(key, obj, outcome.status)
            if written is None:
                return SOON
            self._tell(written, obj, outcome)
        if outcome.deactivate and written is not None:
            revision = {"resourceVersion": written["metadata"]["resourceVersion"]}
            patch = {"metadata": revision, "spec": {"active": False}}
            await self._state.client.patch(WORKLOADS, key[1], patch, key[0])
        return outcome.wake_after

    def _tell(self, obj: Object, before: Object, outcome: Outcome) -> None:
        about = {"apiVersion": names.API_VERSION, "kind": names.WORKLOAD.kind, "metadata": obj["metadata"]}
        for event in outcome.events:
            self._recorder.event(about, event.kind, event.reason, event.message)
        conditions, old = obj["status"].get("conditions") or (), (before.get("status") or {}).get("conditions") or ()
        queue = (obj["status"].get("admission") or {}).get("clusterQueue", "")
        evicted = find(conditions, messages.EVICTED)
        if evicted is not None and evicted["status"] == "True" and not is_true(old, messages.EVICTED):
            self._metrics.evicted(queue, evicted["reason"])
        if is_true(conditions, messages.ADMITTED) and not is_true(old, messages.ADMITTED):
            item = self._state.book.items.get((obj["metadata"]["namespace"], obj["metadata"]["name"]))
            waited = max(0.0, self._state.now() - item.reserved_at) if item is not None else 0.0
            self._recorder.event(about, "Normal", messages.ADMITTED, messages.admitted_event(queue, waited))
            self._metrics.admitted(queue, waited)


def _stop_policy(queue: Object) -> str:
    return (queue.get("spec") or {}).get("stopPolicy") or names.NO_STOP
