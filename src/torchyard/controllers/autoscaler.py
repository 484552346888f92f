"""HorizontalPodAutoscalers: reads the usage of a target's pods, lets `core.autoscaler` decide, and scales the target.

Any resource with a scale subresource can be a target. Usage comes from the resource metrics API only.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import HORIZONTAL_POD_AUTOSCALERS, PODS
from torchyard.api.objects import Object
from torchyard.api.workload import autoscaler_messages as messages
from torchyard.controllers.loop import Controller
from torchyard.core.autoscaler.behavior import ScaleHistory
from torchyard.core.autoscaler.decide import AutoscalerDecision, AutoscalerView, decide, decide_without_scale
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

USAGE = GroupVersionResource("metrics.k8s.io", "v1beta1", "pods")
# kube-controller-manager's --horizontal-pod-autoscaler-sync-period
PERIOD_SECONDS = 15.0


class AutoscalerController:
    """`run` until cancelled. `target` returns the resource of an apiVersion and kind."""

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        target: Callable[[str, str], GroupVersionResource | None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        period: float = PERIOD_SECONDS,
    ) -> None:
        self._client, self._target, self._clock, self._period = client, target, clock, period
        self._recorder = EventRecorder(client, messages.CONTROLLER, clock=clock)
        self._autoscalers = informers.for_resource(HORIZONTAL_POD_AUTOSCALERS)
        self._histories: dict[str, ScaleHistory] = {}
        self.controller = Controller(messages.CONTROLLER, self._reconcile, [self._autoscalers], workers=1)
        self._autoscalers.on_change(self._changed)

    async def run(self) -> None:
        await run_parts(recorder=self._recorder.run, controller=self.controller.run)

    def _changed(self, change: str, hpa: Object, before: Object | None) -> None:
        """The controller's own status updates are ignored; a new or changed spec is reconciled at once."""
        if change == "DELETED":
            self._histories.pop(hpa["metadata"]["uid"], None)
        if before is None or hpa["spec"] != before["spec"]:
            self.controller.queue.add(key_of(hpa))

    async def _reconcile(self, key: Key) -> float | None:
        hpa = self._autoscalers.get(*key)
        if hpa is None or hpa["metadata"].get("deletionTimestamp"):
            return None
        hpa = {**hpa, "apiVersion": HORIZONTAL_POD_AUTOSCALERS.api_version, "kind": "HorizontalPodAutoscaler"}
        decision = await self._decision(hpa)
        if decision.status != (hpa.get("status") or {}):
            await self._client.update(
                HORIZONTAL_POD_AUTOSCALERS, {**hpa, "status": decision.status}, subresource="status"
            )
        for event in decision.events:
            self._recorder.event(hpa, event.kind, event.reason, event.message)
        return self._period

    async def _decision(self, hpa: Object) -> AutoscalerDecision:
        target, namespace, now = hpa["spec"]["scaleTargetRef"], hpa["metadata"]["namespace"], self._clock()
        ref = self._target(target.get("apiVersion", ""), target["kind"])
        if ref is None:
            return decide_without_scale(hpa, messages.no_kind(target["kind"], target.get("apiVersion")), now)
        try:
            scale = await self._client.get(ref, target["name"], namespace, subresource="scale")
        except StatusError as error:
            return decide_without_scale(hpa, error.message, now)
        current, selector = scale["spec"].get("replicas") or 0, (scale.get("status") or {}).get("selector") or ""
        uid = hpa["metadata"]["uid"]
        pods = (await self._client.list(PODS, namespace, labels=selector)).items if selector else []
        usage = await self._usage(namespace, selector)
        decision = decide(AutoscalerView(hpa, current, pods, usage, self._histories.get(uid, ScaleHistory()), now))
        if decision.replicas is not None:
            scale["spec"]["replicas"] = decision.replicas
            await self._client.update(ref, scale, subresource="scale")
        self._histories[uid] = decision.history
        return decision

    async def _usage(self, namespace: str, selector: str) -> dict[str, Object]:
        """Empty without a metrics API; the decision reports that."""
        if not selector:
            return {}
        try:
            pod_metrics = await self._client.list(USAGE, namespace, labels=selector)
        except StatusError as error:
            if error.status not in (404, 503):
                raise
            return {}
        return {metrics["metadata"]["name"]: metrics for metrics in pod_metrics.items}
