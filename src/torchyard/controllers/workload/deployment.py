"""Deployments: lets `core.workload.deployment` decide about a Deployment and its ReplicaSets, and applies it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.errors import StatusError
from torchyard.api.gvr import DEPLOYMENTS, PODS, REPLICA_SETS
from torchyard.api.metadata import controller_of
from torchyard.api.objects import Object
from torchyard.api.workload import messages
from torchyard.controllers.loop import Controller
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.controllers.workload.ownership import Ownership, with_kind
from torchyard.core.workload.deployment import DeploymentDecision, after_collision, after_failed_creation, decide
from torchyard.core.workload.deployment_view import DeploymentView
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, by_owner, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts


class DeploymentController:
    """`run` until cancelled."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._clock = client, clock
        name = messages.DEPLOYMENT_CONTROLLER
        self._recorder = EventRecorder(client, name, clock=clock)
        self._deployments = informers.for_resource(DEPLOYMENTS)
        self._sets = informers.for_resource(REPLICA_SETS)
        self._pods = informers.for_resource(PODS, indexes={"owner": by_owner})
        self._ownership = Ownership(client, self._deployments, "Deployment", self._sets)
        self._written = MutationCache(self._deployments)
        self._controller = Controller(name, self._reconcile, [self._deployments, self._sets, self._pods])
        self._deployments.on_change(lambda _change, obj, _before: self._controller.queue.add(key_of(obj)))
        self._sets.on_change(self._set_changed)
        self._pods.on_change(self._pod_changed)

    async def run(self) -> None:
        await run_parts(recorder=self._recorder.run, controller=self._controller.run)

    def _set_changed(self, _change: str, replica_set: Object, before: Object | None) -> None:
        for key in self._ownership.affected(replica_set, before):
            self._controller.queue.add(key)

    def _pod_changed(self, change: str, pod: Object, _before: Object | None) -> None:
        """A Recreate rollout waits for the last old pod to be gone or ended."""
        reference = controller_of(pod)
        if reference is None or reference["kind"] != "ReplicaSet":
            return
        if change != "DELETED" and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            return
        replica_set = self._sets.get(pod["metadata"]["namespace"], reference["name"])
        deployment = self._ownership.owner_of(replica_set) if replica_set is not None else None
        if deployment is not None and deployment["spec"]["strategy"]["type"] == "Recreate":
            self._controller.queue.add(key_of(deployment))

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._written.get(key)
        if cached is None:
            return None
        deployment = with_kind(cached, DEPLOYMENTS, "Deployment")
        replica_sets = tuple(await self._ownership.claim(deployment))
        view = DeploymentView(deployment, replica_sets, self._old_pods(deployment, replica_sets), self._clock())
        return await self._apply(view, decide(view))

    def _old_pods(self, deployment: Object, replica_sets: tuple[Object, ...]) -> tuple[Object, ...]:
        if deployment["spec"]["strategy"]["type"] != "Recreate":
            return ()
        new = DeploymentView(deployment, replica_sets, (), self._clock()).new_replica_set()
        old = [replica_set for replica_set in replica_sets if replica_set is not new]
        return tuple(pod for old_set in old for pod in self._pods.by("owner", old_set["metadata"]["uid"]))

    async def _apply(self, view: DeploymentView, decision: DeploymentDecision) -> float | None:
        if decision.create is not None and not await self._create(view, decision.create):
            return None
        for replica_set, event in decision.update:
            self._ownership.cache.record(await self._client.update(REPLICA_SETS, replica_set))
            if event is not None:
                self._recorder.event(view.deployment, event.kind, event.reason, event.message)
        for event in decision.events:
            self._recorder.event(view.deployment, event.kind, event.reason, event.message)
        for replica_set in decision.delete:
            await self._delete(replica_set)
        await self._write_status(view.deployment, decision)
        return decision.wake_after

    async def _create(self, view: DeploymentView, replica_set: Object) -> bool:
        """Create the new ReplicaSet. Another one with its name means that the hashes of two templates are equal."""
        metadata = {key: value for key, value in replica_set["metadata"].items() if key != "uid"}
        deployment = view.deployment
        try:
            created = await self._client.create(REPLICA_SETS, {**replica_set, "metadata": metadata})
        except StatusError as error:
            if error.reason == "AlreadyExists":
                await self._report_collision(view, replica_set)
                return False
            if not error.is_namespace_terminating:
                status, event = after_failed_creation(view, metadata["name"], error.message)
                await self._write_status(deployment, DeploymentDecision(status=status))
                self._recorder.event(deployment, event.kind, event.reason, event.message)
            raise
        self._ownership.cache.record(created)
        return True

    async def _report_collision(self, view: DeploymentView, replica_set: Object) -> None:
        name, namespace = replica_set["metadata"]["name"], replica_set["metadata"]["namespace"]
        other = await self._client.find(REPLICA_SETS, name, namespace)
        if other is not None:
            own = DeploymentView(view.deployment, (other,), (), view.now)
            is_ours = self._ownership.owner_of(other) is not None and own.new_replica_set() is not None
            if is_ours:
                self._ownership.cache.record(other)  # the cache was behind
            else:
                await self._write_status(view.deployment, DeploymentDecision(status=after_collision(view)))
        self._controller.queue.add(key_of(view.deployment))

    async def _delete(self, replica_set: Object) -> None:
        metadata = replica_set["metadata"]
        try:
            await self._client.delete(REPLICA_SETS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except StatusError as error:
            if error.status != 404:
                raise

    async def _write_status(self, deployment: Object, decision: DeploymentDecision) -> None:
        """The status subresource of Deployments also takes annotations, of which the revision is one."""
        if decision.status is None and decision.annotations is None:
            return
        changed = {**deployment, "status": decision.status or deployment.get("status") or {}}
        if decision.annotations is not None:
            changed["metadata"] = {**deployment["metadata"], "annotations": decision.annotations}
        self._written.record(await self._client.update(DEPLOYMENTS, changed, subresource="status"))
