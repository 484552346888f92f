"""Writes a pod's status when it has changed, and tells of back-offs."""

from __future__ import annotations

import time

from torchyard.api.errors import StatusError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.core.pod.status import backoff_message, pod_status
from torchyard.core.pod.view import PodView
from torchyard.kube.client import Client
from torchyard.node.pod.sandbox import PodSandbox


class StatusManager:
    def __init__(self, client: Client, sandbox: PodSandbox) -> None:
        self._client, self._sandbox = client, sandbox
        self._written: Object | None = None
        self._told: set[tuple[str, int]] = set()  # container and restart count of the back-offs that were told

    @property
    def over(self) -> bool:
        """Whether the pod has ended for good, as far as was written."""
        return (self._written or self._sandbox.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    async def report(self, view: PodView) -> None:
        pod = self._sandbox.pod
        before = pod.get("status") or {}
        if self._written is not None:
            # the watch may be behind what we wrote; conditions of others are only seen there
            ours = {one["type"] for one in self._written["conditions"]}
            others = [one for one in before.get("conditions") or () if one["type"] not in ours]
            before = {**before, **self._written, "conditions": [*self._written["conditions"], *others]}
        status = pod_status({**pod, "status": before}, view, now=time.time())
        if status == (self._written or pod.get("status")):
            return
        self._tell_of_backoff(pod, view, status)
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            await self._client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")
        except StatusError as failed:
            if failed.status in (404, 409):
                return  # somebody deleted it, or put another one in its place: the watch will tell
            raise
        self._written = status

    def _tell_of_backoff(self, pod: Object, view: PodView, status: Object) -> None:
        for one in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
            name, which = one["name"], (one["name"], one["restartCount"])
            waits = (one["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff"
            if waits and which not in self._told:
                self._told.add(which)
                whose = backoff_message(pod, name, view.of(name)).partition(" pod=")[2]
                said = f"Back-off restarting failed container {name} in pod {whose}"
                self._sandbox.event("BackOff", said, container=name, kind="Warning")
