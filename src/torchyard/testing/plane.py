"""A plane in a thread of the test's process."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import NAMESPACES, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.kube.discovery import find_resource
from torchyard.testing.clock import AdjustableClock, AdjustableLoop
from torchyard.testing.reset import Snapshot, restore, settle, take_snapshot
from torchyard.yard.plane import Plane
from torchyard.yard.settings import PlaneSettings

T = TypeVar("T")
_START_SECONDS = 60.0
_NAMESPACE_SECONDS = 30.0
# The controllers of a new plane create objects, such as the certificates of namespaces: those belong to its state.
_QUIET_SECONDS = 0.1
_SETTLE_SECONDS = 5.0


class LocalPlane:
    """An API server with its controllers, for the duration of a `with` statement.

    node: also run pods on this machine.
    controllers: which controllers run, in kube-controller-manager's syntax.
    """

    def __init__(self, *, node: bool = False, controllers: str = "*") -> None:
        self._node, self._controllers = node, controllers
        self._loop = AdjustableLoop()
        self.clock = AdjustableClock(self._loop)
        self._directory = tempfile.TemporaryDirectory(prefix="torchyard-testing-")
        self._thread = threading.Thread(target=self._loop.run_forever, name="torchyard-plane", daemon=True)
        self._plane: Plane | None = None
        self._snapshot: Snapshot = {}

    def __enter__(self) -> LocalPlane:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the plane and wait until it serves and its controllers run."""
        settings = PlaneSettings(
            state=Path(self._directory.name) / "state",
            port=0,
            controllers=self._controllers,
            node=self._node,
            watchdog_threshold=0,
            history_days=0,
        )
        self._thread.start()
        self._plane = Plane(settings, clock=self.clock.now)
        self._run(self._plane.__aenter__(), seconds=_START_SECONDS)
        self._run(self._wait_for_account("default"), seconds=_NAMESPACE_SECONDS)
        self._run(settle(self._running.registry.store, quiet=_QUIET_SECONDS, limit=_SETTLE_SECONDS))
        self._snapshot = take_snapshot(self._running.registry.store)

    def stop(self) -> None:
        """Stop the plane and remove its files."""
        if self._plane is not None:
            self._plane.stops_pods = True
            self._run(self._plane.__aexit__(None, None, None), seconds=_START_SECONDS)
            self._plane = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._directory.cleanup()

    @property
    def url(self) -> str:
        return self._running.url

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self._running.settings.kubeconfig

    def reset(self) -> None:
        """Remove everything that was created since the start, and restore what was changed."""
        self._run(restore(self._running.registry.store, self._snapshot), seconds=_START_SECONDS)

    def apply(self, obj: Object) -> Object:
        """Apply an object, as `kubectl apply --server-side` does, and return it."""
        return self._run(self._apply(obj))

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return an object, or None if it does not exist."""
        return self._run(self._get(api_version, kind, name, namespace))

    def create_namespace(self, name: str) -> None:
        """Create a namespace and wait for its service account, without which it accepts no pods."""
        self._run(self._create_namespace(name), seconds=_NAMESPACE_SECONDS)

    @property
    def _running(self) -> Plane:
        if self._plane is None:
            raise YardError("the plane is not running", hint="use it in a `with` statement, or call start()")
        return self._plane

    def _run(self, work: Coroutine[Any, Any, T], *, seconds: float = 60.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def _apply(self, obj: Object) -> Object:
        client = self._running.client("torchyard-testing")
        gvr = await find_resource(client, obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default") if gvr.namespaced else ""
        return await client.patch(gvr, metadata["name"], obj, namespace, kind="apply", force=True)

    async def _get(self, api_version: str, kind: str, name: str, namespace: str) -> Object | None:
        client = self._running.client("torchyard-testing")
        gvr = await find_resource(client, api_version, kind)
        return await client.find(gvr, name, (namespace or "default") if gvr.namespaced else "")

    async def _create_namespace(self, name: str) -> None:
        client = self._running.client("torchyard-testing")
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await self._wait_for_account(name)

    async def _wait_for_account(self, namespace: str) -> None:
        """A namespace accepts pods when it has its service account, which a controller creates."""
        if "serviceaccount-controller" not in self._running.registry.controllers:
            return
        client = self._running.client("torchyard-testing")
        while True:
            try:
                await client.get(SERVICE_ACCOUNTS, "default", namespace)
            except StatusError as error:
                if error.status != 404:
                    raise
                await asyncio.sleep(0.002)
            else:
                return
