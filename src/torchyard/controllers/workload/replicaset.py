"""ReplicaSets and ReplicationControllers: lets `core.workload.replicaset` decide, and applies the decision."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_active
from torchyard.api.workload import messages
from torchyard.controllers.loop import Controller
from torchyard.controllers.workload.ownership import Ownership, with_kind
from torchyard.controllers.workload.pod_writer import PodWriter
from torchyard.core.workload.pods import pod_from_template
from torchyard.core.workload.replicaset import ReplicaSetDecision, decide, status
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts


class ReplicaSetController:
    """`run` until cancelled. `kind`: ReplicaSet or ReplicationController, which differ in their selector only."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        kind: str = "ReplicaSet",
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._kind, self._clock = client, kind, clock
        self._ref = REPLICA_SETS if kind == "ReplicaSet" else REPLICATION_CONTROLLERS
        name = messages.REPLICA_SET_CONTROLLER if kind == "ReplicaSet" else messages.REPLICATION_CONTROLLER
        self._recorder = EventRecorder(client, name, clock=clock)
        self._sets = informers.for_resource(self._ref, indexes={"owner": by_owner})
        self._pods = informers.for_resource(PODS)
        self._ownership = Ownership(client, self._sets, kind, self._pods)
        self._writer = PodWriter(client, self._recorder, self._pods, self._ownership.cache)
        self._controller = Controller(name, self._reconcile, [self._sets, self._pods])
        self._sets.on_change(self._set_changed)
        self._pods.on_change(self._pod_changed)

    async def run(self) -> None:
        await run_parts(recorder=self._recorder.run, controller=self._controller.run)

    def _set_changed(self, _change: str, replica_set: Object, _before: Object | None) -> None:
        self._controller.queue.add(key_of(replica_set))

    def _pod_changed(self, _change: str, pod: Object, before: Object | None) -> None:
        for key in self._ownership.affected(pod, before):
            self._controller.queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._sets.get(*key)
        if cached is None:
            return None
        replica_set = with_kind(cached, self._ref, self._kind)
        pods = self._writer.present(await self._ownership.claim(replica_set, among=is_active))
        now = self._clock()
        decision = decide(replica_set, pods, self._related(replica_set, pods), now)
        error = await self._apply(replica_set, decision)
        pods = self._writer.present(self._ownership.cache.by_index(replica_set["metadata"]["uid"]))
        await self._write_status(replica_set, status(replica_set, pods, error.message if error else None, now))
        if error is not None:
            raise error
        return decision.wake_after

    def _related(self, replica_set: Object, pods: list[Object]) -> list[Object]:
        """The pods of all ReplicaSets of the same Deployment."""
        related = [sibling for owner in by_owner(replica_set) for sibling in self._sets.by("owner", owner)]
        if not related:
            return pods
        return [pod for sibling in related for pod in self._pods.by("owner", sibling["metadata"]["uid"])]

    async def _apply(self, replica_set: Object, decision: ReplicaSetDecision) -> StatusError | None:
        if decision.create:
            template, reference = replica_set["spec"]["template"], self._ownership.reference(replica_set)
            pod = pod_from_template(replica_set, template, reference)
            return await self._writer.create(replica_set, [pod] * decision.create)
        return await self._writer.delete(replica_set, decision.delete)

    async def _write_status(self, replica_set: Object, new: Object) -> None:
        if new != (replica_set.get("status") or {}):
            await self._client.update(self._ref, {**replica_set, "status": new}, subresource="status")
