"""A pod that represents the controllers of the plane, where users look for the training operator.

Manuals check with `kubectl get pods -n kubeflow` that the operator runs. The pod has no node and no process of its own:
it is Running as long as the plane is, and its log is that of the controllers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import NAMESPACES, PODS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.controllers.loop import Controller
from torchyard.kube.client import Client
from torchyard.kube.informer import Key
from torchyard.kube.informer_factory import InformerFactory

# A new namespace has no service account at first.
_ACCOUNT_SECONDS = 0.2
NAMESPACE, NAME = "kubeflow", "training-operator-0"
CONTAINER, IMAGE = "training-operator", "torchyard.dev/training-operator:embedded"
LABELS = {"control-plane": "kubeflow-training-operator"}


class OperatorPodController:
    def __init__(self, client: Client, informers: InformerFactory, clock: Callable[[], datetime]) -> None:
        self._client, self._clock = client, clock
        self._pods = informers.for_resource(PODS, namespace=NAMESPACE, fields=f"metadata.name={NAME}")
        self.controller = Controller("operator-mirror", self._reconcile, [self._pods], workers=1)
        self._pods.on_change(lambda _change, _obj, _before: self.controller.queue.add((NAMESPACE, NAME)))
        self.controller.queue.add((NAMESPACE, NAME))

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> float | None:
        pod = self._pods.get(*key)
        if pod is None:
            await self._ensure(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            if await self._client.find(SERVICE_ACCOUNTS, "default", NAMESPACE) is None:
                return _ACCOUNT_SECONDS
            await self._ensure(PODS, _pod())
        elif (pod.get("status") or {}).get("phase") != "Running" and not pod["metadata"].get("deletionTimestamp"):
            await self._client.patch(PODS, NAME, {"status": self._status()}, NAMESPACE, subresource="status")
        return None

    async def _ensure(self, ref: GroupVersionResource, obj: Object) -> None:
        try:
            await self._client.create(ref, obj)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise

    def _status(self) -> Object:
        now = to_rfc3339(self._clock())
        container = {
            "name": CONTAINER,
            "image": IMAGE,
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ]
        return {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": [container]}


def _pod() -> Object:
    # A scheduler that does not exist keeps the pod off every node.
    spec = {
        "schedulerName": "none",
        "automountServiceAccountToken": False,
        "containers": [{"name": CONTAINER, "image": IMAGE, "imagePullPolicy": "Never"}],
    }
    return {"metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS}, "spec": spec}
