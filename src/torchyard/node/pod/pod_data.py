"""What the API contributes to a pod's volumes and variables: config maps, secrets, tokens, downward-API fields."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from torchyard.api.gvr import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.core.pod.view import every_container
from torchyard.node.context import NodeContext
from torchyard.node.pod.environment import field_value, resource_value
from torchyard.node.volumes.mounter import decode_data

# Kinds that a volume or a variable of a pod may refer to.
_RESOURCES = {
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
    "PersistentVolume": PERSISTENT_VOLUMES,
}
_TOKEN_SECONDS, _RENEW_AFTER = 3600, 0.8  # of a token's life, as the kubelet does


class PodData:
    """`pod` and `ip` return the current object and address of the pod."""

    def __init__(self, context: NodeContext, *, pod: Callable[[], Object], ip: Callable[[], str]) -> None:
        self._context, self._pod, self._ip = context, pod, ip
        self._tokens: dict[str, tuple[str, float]] = {}  # source of a token → token, when to renew it

    async def fetch(self, kind: str, name: str) -> Object | None:
        resource = _RESOURCES[kind]
        namespace = self._pod()["metadata"]["namespace"] if resource.namespaced else ""
        return await self._context.client.find(resource, name, namespace)

    async def variables(self, kind: str, name: str) -> dict[str, str] | None:
        """The keys of a config map or secret as text, for environment variables."""
        source = await self.fetch(kind, name)
        if source is None:
            return None
        return {key: value.decode(errors="replace") for key, value in decode_data(kind, source).items()}

    async def token(self, source: Object) -> str:
        """A token of the pod's service account; renewed when four fifths of its life are over."""
        key = json.dumps(source, sort_keys=True)
        cached = self._tokens.get(key)
        if cached and time.time() < cached[1]:
            return cached[0]
        pod = self._pod()
        metadata = pod["metadata"]
        seconds = source.get("expirationSeconds") or _TOKEN_SECONDS
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [source["audience"]] if source.get("audience") else [],
                "expirationSeconds": seconds,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        account = pod["spec"].get("serviceAccountName") or "default"
        response = await self._context.client.create(
            SERVICE_ACCOUNTS, request, metadata["namespace"], name=account, subresource="token"
        )
        token = str(response["status"]["token"])
        self._tokens[key] = (token, time.time() + _RENEW_AFTER * seconds)
        return token

    def field(self, kind: str, reference: Object, container: Object) -> str:
        """The value of a fieldRef or resourceFieldRef."""
        pod = self._pod()
        if kind == "fieldRef":
            ip, host_ip = self._ip(), self._context.host_ip
            status = {"podIP": ip, "podIPs": [{"ip": ip}], "hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}
            return field_value(pod, reference["fieldPath"], status=status)
        return resource_value(every_container(pod), reference, container, self._context.allocatable)
