"""Node lifecycle, as far as taints go: they follow what a node says of itself."""

from __future__ import annotations

from torchyard.controllers.loop import Controller
from torchyard.core.node.taints import taints
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informers import Informers
from torchyard.kube.refs import NODES


class NodeTaintController:
    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._nodes = informers.of(NODES)
        self.controller = Controller("node-lifecycle", self._reconcile, [self._nodes], workers=1)
        self._nodes.on_change(lambda _change, node, _before: self.controller.queue.add(key_of(node)))

    async def run(self) -> None:
        await self.controller.run()

    async def _reconcile(self, key: Key) -> None:
        node = self._nodes.get(*key)
        if node is None:
            return
        wanted = taints(node)
        if wanted != (node.get("spec", {}).get("taints") or []):
            metadata = node["metadata"]
            # only if nobody, such as `kubectl taint`, has written since
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"taints": wanted or None}}
            await self._client.patch(NODES, metadata["name"], patch)
