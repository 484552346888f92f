"""The objects that every namespace has: the `default` service account and the cluster's CA certificate."""

from __future__ import annotations

from torchyard.api.cluster import messages
from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.kube.client import Client
from torchyard.kube.informer import Key
from torchyard.kube.informer_factory import InformerFactory

ROOT_CA = "kube-root-ca.crt"


class NamespaceObjectController:
    """Creates one object of a fixed name in every namespace, and restores it if it is deleted or changed."""

    def __init__(
        self, name: str, client: Client, informers: InformerFactory, ref: GroupVersionResource, desired: Object
    ) -> None:
        self._client = client
        self._namespaces = informers.for_resource(NAMESPACES)
        self._ref = ref
        self._desired = desired
        fields = f"metadata.name={desired['metadata']['name']}"
        self._objects = informers.for_resource(ref, fields=fields)
        self.controller = Controller(name, self._reconcile, [self._namespaces, self._objects])
        self._namespaces.on_change(
            lambda _change, obj, _before: self.controller.queue.add(("", obj["metadata"]["name"]))
        )
        self._objects.on_change(
            lambda _change, obj, _before: self.controller.queue.add(("", obj["metadata"]["namespace"]))
        )

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> float | None:
        namespace = self._namespaces.get(*key)
        if namespace is None or namespace["metadata"].get("deletionTimestamp"):
            return None
        current = self._objects.get(key[1], self._desired["metadata"]["name"])
        try:
            if current is None:
                await self._client.create(
                    self._ref, {**self._desired, "metadata": dict(self._desired["metadata"])}, key[1]
                )
            elif "data" in self._desired and current.get("data") != self._desired["data"]:
                await self._client.update(self._ref, {**current, "data": self._desired["data"]})
        except StatusError as error:
            # the namespace is terminating, or another client created the object
            if error.status not in (403, 404, 409):
                raise
        return None


def default_service_account(client: Client, informers: InformerFactory) -> NamespaceObjectController:
    desired = {"metadata": {"name": "default"}}
    return NamespaceObjectController("serviceaccount", client, informers, SERVICE_ACCOUNTS, desired)


def root_ca_publisher(client: Client, informers: InformerFactory, authority: str) -> NamespaceObjectController:
    description = {"kubernetes.io/description": messages.ROOT_CA_DESCRIPTION}
    desired = {"metadata": {"name": ROOT_CA, "annotations": description}, "data": {"ca.crt": authority}}
    return NamespaceObjectController("root-ca-certificate-publisher", client, informers, CONFIG_MAPS, desired)
