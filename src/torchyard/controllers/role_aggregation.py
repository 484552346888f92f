"""Aggregated cluster roles: writes the rules of the selected roles into each.

The API server computes the same rules when it authorizes; these are for readers of the role.
"""

from __future__ import annotations

from torchyard.api.access.aggregation import aggregated_rules
from torchyard.api.gvr import CLUSTER_ROLES
from torchyard.controllers.loop import Controller
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class RoleAggregationController:
    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self._client = client
        self._roles = informers.for_resource(CLUSTER_ROLES)
        self.controller = Controller("clusterrole-aggregation", self._reconcile, [self._roles], workers=1)
        self._roles.on_change(lambda _change, _role, _before: self._enqueue_aggregated())

    async def run(self) -> None:
        await self.controller.run()

    def _enqueue_aggregated(self) -> None:
        """Any role may be a part of any other."""
        for role in self._roles.all():
            if role.get("aggregationRule"):
                self.controller.queue.add(key_of(role))

    async def _reconcile(self, key: Key) -> None:
        role = self._roles.get(*key)
        if role is None or not role.get("aggregationRule"):
            return
        rules = aggregated_rules(role, self._roles.all())
        if rules != (role.get("rules") or []):
            desired = {
                "apiVersion": CLUSTER_ROLES.api_version,
                "kind": "ClusterRole",
                "metadata": {"name": key[1]},
                "rules": rules,
            }
            await self._client.patch(CLUSTER_ROLES, key[1], desired, kind="apply", force=True)
