"""Writes a pod's status when it has changed, and an event for each back-off."""

from __future__ import annotations

import time

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.core.pod.status import backoff_message, own_part, pod_status
from torchyard.core.pod.view import PodView
from torchyard.kube.client import Client
from torchyard.node.pod.sandbox import PodSandbox


class StatusManager:
    def __init__(self, client: Client, sandbox: PodSandbox) -> None:
        self._client, self._sandbox = client, sandbox
        self._written: Object | None = None  # the kubelet's own part of the status last written
        self._announced: set[tuple[str, int]] = set()  # container and restart count of back-offs with an event

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended for good, by the status last written."""
        return (self._written or self._sandbox.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    async def write(self, view: PodView) -> None:
        pod = self._sandbox.pod
        before = pod.get("status") or {}
        if self._written is not None:
            # The watch may be behind what was written here; conditions of others are only seen there.
            own = {condition["type"] for condition in self._written["conditions"]}
            others = [condition for condition in before.get("conditions") or () if condition["type"] not in own]
            before = {**before, **self._written, "conditions": [*self._written["conditions"], *others]}
        status = own_part(pod_status({**pod, "status": before}, view, now=time.time()))
        if status == (self._written or own_part(before)):
            return
        self._announce_back_off(pod, view, status)
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": _as_strategic_patch(status)}
        name, namespace = metadata["name"], metadata["namespace"]
        try:
            # A strategic patch leaves the conditions of others as they are by now.
            await self._client.patch(PODS, name, patch, namespace, kind="strategic", subresource="status")
        except StatusError as error:
            if error.status in (404, 409):
                return  # the pod was deleted or replaced: the watch will show it
            raise
        self._written = status

    def _announce_back_off(self, pod: Object, view: PodView, status: Object) -> None:
        statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
        for container in statuses:
            name, key = container["name"], (container["name"], container["restartCount"])
            waiting = container["state"].get("waiting") or {}
            if waiting.get("reason") == messages.REASON_CRASH_LOOP and key not in self._announced:
                self._announced.add(key)
                pod_id = backoff_message(pod, name, view.of(name)).partition(" pod=")[2]
                message = messages.crash_back_off(name, pod_id)
                self._sandbox.event(messages.REASON_BACK_OFF, message, container=name, kind="Warning")


def _as_strategic_patch(status: Object) -> Object:
    """A patch to this status: lists of addresses are replaced, and reasons that do not hold any more are removed."""
    lists: Object = {key: [*status[key], {"$patch": "replace"}] for key in ("hostIPs", "podIPs") if key in status}
    conditions = [{"reason": None, "message": None, **condition} for condition in status["conditions"]]
    return {**status, **lists, "conditions": conditions}
