"""PodDisruptionBudgets: lets `core.workload.budget` decide how many disruptions each allows now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from torchyard.api import selectors
from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from torchyard.api.metadata import controller_of
from torchyard.api.objects import Object
from torchyard.api.workload import messages
from torchyard.controllers.loop import Controller
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.controllers.orphans import selector_key
from torchyard.controllers.service_pods import label_keys
from torchyard.controllers.workload.ownership import with_kind
from torchyard.core.workload.budget import BudgetView, after_failure, decide, needs_scales, owners
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, by_namespace, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

# The kinds whose number of replicas is read from the cache; the others are asked for their scale.
_CACHED = {
    "Deployment": DEPLOYMENTS,
    "ReplicaSet": REPLICA_SETS,
    "ReplicationController": REPLICATION_CONTROLLERS,
    "StatefulSet": STATEFUL_SETS,
}


class DisruptionController:
    """`run` until cancelled. `resource` returns the resource of an apiVersion and kind."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        resource: Callable[[str, str], GroupVersionResource | None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._resource, self._clock = client, resource, clock
        self._recorder = EventRecorder(client, messages.DISRUPTION_CONTROLLER, clock=clock)
        self._budgets = informers.for_resource(POD_DISRUPTION_BUDGETS, indexes={"selector": _selector_keys})
        self._pods = informers.for_resource(PODS, indexes={"label": label_keys, "namespace": by_namespace})
        self._written = MutationCache(self._budgets)
        self._workloads = {(ref.api_version, kind): informers.for_resource(ref) for kind, ref in _CACHED.items()}
        caches = [self._budgets, self._pods, *self._workloads.values()]
        self._controller = Controller("disruption-controller", self._reconcile, caches)
        self._budgets.on_change(lambda _change, obj, _before: self._controller.queue.add(key_of(obj)))
        self._pods.on_change(self._pod_changed)

    async def run(self) -> None:
        await run_parts(recorder=self._recorder.run, controller=self._controller.run)

    def _pod_changed(self, _change: str, pod: Object, before: Object | None) -> None:
        if self._budgets.is_empty:
            return
        for state in (pod, before):
            for budget in self._budgets_of(state) if state is not None else ():
                self._controller.queue.add(key_of(budget))

    def _budgets_of(self, pod: Object) -> Iterator[Object]:
        for key in (f"{pod['metadata']['namespace']}/", *label_keys(pod)):
            for budget in self._budgets.by("selector", key):
                if _selector(budget).matches(pod["metadata"].get("labels")):
                    yield budget

    def _pods_of(self, budget: Object) -> list[Object]:
        (key,) = _selector_keys(budget)
        namespace = budget["metadata"]["namespace"]
        pods = self._pods.by("namespace", namespace) if key.endswith("/") else self._pods.by("label", key)
        matches = _selector(budget).matches
        return [pod for pod in pods if matches(pod["metadata"].get("labels"))]

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._written.get(key)
        if cached is None:
            return None
        budget = with_kind(cached, POD_DISRUPTION_BUDGETS, "PodDisruptionBudget")
        pods, now = self._pods_of(budget), self._clock()
        try:
            scales = await self._scales(pods) if needs_scales(budget) else {}
        except YardError as error:
            text = messages.no_expected_count(error.message)
            self._recorder.event(budget, "Warning", messages.NO_EXPECTED_COUNT, text)
            await self._write_status(budget, after_failure(budget, error.message, now))
            raise
        decision = decide(BudgetView(budget, tuple(pods), scales, now))
        await self._write_status(budget, decision.status)
        for event in decision.events:
            self._recorder.event(budget, event.kind, event.reason, event.message)
        return decision.wake_after

    async def _scales(self, pods: list[Object]) -> dict[str, int]:
        """How many replicas the controllers of pods want; of a Deployment's ReplicaSets, the Deployment."""
        scales: dict[str, int] = {}
        for reference in owners(pods).values():
            namespace = next(pod["metadata"]["namespace"] for pod in pods)
            top = await self._top_controller(reference, namespace)
            if top["uid"] not in scales:
                scales[top["uid"]] = await self._scale(top, namespace)
        return scales

    async def _top_controller(self, reference: Object, namespace: str) -> Object:
        if reference["kind"] != "ReplicaSet":
            return reference
        replica_set = self._cached(reference, namespace)
        ref = self._resource(reference["apiVersion"], reference["kind"])
        if replica_set is None and ref is not None:
            replica_set = await self._client.find(ref, reference["name"], namespace)
        owner = controller_of(replica_set) if replica_set is not None else None
        return owner if owner is not None and owner["kind"] == "Deployment" else reference

    def _cached(self, reference: Object, namespace: str) -> Object | None:
        informer = self._workloads.get((reference["apiVersion"], reference["kind"]))
        workload = informer.get(namespace, reference["name"]) if informer is not None else None
        return workload if workload is not None and workload["metadata"]["uid"] == reference["uid"] else None

    async def _scale(self, reference: Object, namespace: str) -> int:
        workload = self._cached(reference, namespace)
        if workload is None:
            workload = await self._get_scale(reference, namespace)
        return int((workload.get("spec") or {}).get("replicas") or 0)

    async def _get_scale(self, reference: Object, namespace: str) -> Object:
        ref = self._resource(reference["apiVersion"], reference["kind"])
        if ref is None:
            raise YardError(messages.no_scale(reference["kind"]))
        try:
            return await self._client.get(ref, reference["name"], namespace, subresource="scale")
        except StatusError as error:
            if error.status != 404 or await self._client.find(ref, reference["name"], namespace) is None:
                raise
            raise YardError(messages.no_scale(f"{ref.plural}.{ref.group}".rstrip("."))) from None

    async def _write_status(self, budget: Object, status: Object) -> None:
        if status != (budget.get("status") or {}):
            changed = {**budget, "status": status}
            self._written.record(await self._client.update(POD_DISRUPTION_BUDGETS, changed, subresource="status"))


def _selector(budget: Object) -> selectors.LabelSelector:
    return selectors.from_object((budget.get("spec") or {}).get("selector"))


def _selector_keys(budget: Object) -> list[str]:
    required = ((budget.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    return [selector_key(budget["metadata"]["namespace"], required)]
