"""Drives one pod: observe, decide (`core.pod`), act, write the status. One task per pod.

A worker may be killed at any moment and another takes over: all that it must remember is in the pod's directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import NamedTuple

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.pod import kubelet_messages as messages
from torchyard.api.times import parse_rfc3339
from torchyard.core.pod.admission import rejection
from torchyard.core.pod.decide import decide
from torchyard.core.pod.view import PodView, every_container, main_containers
from torchyard.core.scheduling.node_info import host_ports
from torchyard.kube.client import Unreachable
from torchyard.node.context import NodeContext
from torchyard.node.pod import create_container
from torchyard.node.pod.background import retry_after_errors
from torchyard.node.pod.container_starter import ContainerStarter
from torchyard.node.pod.container_stopper import ContainerStopper, kill_leftovers
from torchyard.node.pod.handlers import run_hook
from torchyard.node.pod.observe import observe
from torchyard.node.pod.probes import ProbeManager
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.pod.status_manager import StatusManager
from torchyard.node.pod.storage import StorageMonitor
from torchyard.node.shim import records
from torchyard.node.shim.client import ShimNotRunning
from torchyard.node.shim.output import timestamp
from torchyard.node.volumes.mounter import VolumeError

log = logging.getLogger(__name__)

_RETRY_FIRST, _RETRY_LONGEST = 1.0, 120.0
_HOOK_SECONDS = 3600.0
_ADMISSION_SECONDS, _ADMISSION_RETRY = 30.0, 0.1
_EVICTION_GRACE_SECONDS = 1.0  # as the kubelet's for evictions by a limit
_LONGEST_SLEEP = 60.0  # a clock that was set forward is noticed within this time, as in the kubelet
DEADLINE = (messages.REASON_DEADLINE, messages.DEADLINE)


class SyncResult(NamedTuple):
    """What one sync of a pod says about the next."""

    wake_at: float | None = None  # None: when something happens
    terminated: bool = False  # the pod is gone; there is no next sync


class PodWorker:
    def __init__(self, context: NodeContext, pod: Object) -> None:
        self._context = context
        self.pod = pod
        self._sandbox = PodSandbox(context, pod)
        self._wake = asyncio.Event()
        self._starter = ContainerStarter(context, self._sandbox)
        self._stopper = ContainerStopper(self._sandbox)
        self._probes = ProbeManager(self._sandbox, changed=self._wake.set, kill=self._kill_unhealthy)
        self._status = StatusManager(context.client, self._sandbox)
        self._storage = StorageMonitor(context, self._sandbox, evict=self._evict)
        self._subscription: asyncio.Task[None] | None = None
        self._missed_events = False  # of the shim, until the next subscription
        self._ended: tuple[str, str] | None = None
        self._rejected = False
        self._retry = _RETRY_FIRST
        self._started: float | None = None
        self._refused_since: float | None = None
        self._deleted = False

    def update(self, pod: Object) -> None:
        before, self.pod = self.pod, pod
        self._sandbox.pod = pod
        if self._sandbox.ready:
            self._resize(before)
        self._wake.set()

    def _resize(self, before: Object) -> None:
        """Apply the limits that the resize subresource changed."""
        resources = {container["name"]: container.get("resources") for container in main_containers(before)}
        for container in main_containers(self.pod):
            if resources.get(container["name"]) != container.get("resources"):
                try:
                    create_container.resize(self._context, self._sandbox, container)
                except OSError as error:
                    log.warning("limits not changed: pod=%s error=%r", self._name, str(error))

    def deleted(self) -> None:
        """The object is gone from the API: whatever still runs must end now."""
        self._deleted = True
        self._wake.set()

    def names_changed(self) -> None:
        if self._sandbox.ready:
            self._sandbox.refresh_etc_files()

    async def run(self) -> None:
        """Until the pod is gone."""
        await self._adopt()
        if self._sandbox.ready and not self._status.terminal:
            self._claim_host_ports()
        while True:
            self._wake.clear()
            try:
                result = await self._sync()
            except Unreachable:
                result = SyncResult(time.time() + _RETRY_FIRST)
            except (YardError, OSError) as error:
                log.warning("pod sync failed: pod=%s error=%r", self._name, str(error))
                result = SyncResult(self._next_retry())
            if result.terminated or self._status.terminal:
                self._release_host_ports()
            if result.terminated:
                await self.leave()
                await self._sandbox.tear_down()
                return
            await self._sleep(result.wake_at)

    async def leave(self) -> None:
        """Stop working on the pod, which runs on."""
        await self._probes.close()
        await self._stopper.close()
        await self._storage.close()
        if self._subscription:
            self._subscription.cancel()
            await asyncio.gather(self._subscription, return_exceptions=True)

    @property
    def _name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    async def _sleep(self, wake_at: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            seconds = None if wake_at is None else min(max(0.0, wake_at - time.time()), _LONGEST_SLEEP)
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _next_retry(self) -> float:
        delay, self._retry = self._retry, min(self._retry * 2, _RETRY_LONGEST)
        return time.time() + delay

    async def _adopt(self) -> None:
        """A pod that has a record was admitted before: find out what became of it."""
        status = self.pod.get("status") or {}
        if status.get("startTime"):
            self._started = parse_rfc3339(status["startTime"]).timestamp()
        if status.get("reason") == messages.REASON_DEADLINE:
            self._ended = DEADLINE
        if self._sandbox.record is None:
            return
        if not await self._sandbox.alive():
            self._shim_lost()
            return
        if await self._sandbox.adopt():  # the shim that replied has died since
            kill_leftovers(self.pod["metadata"]["uid"])
        self._subscribe()

    def _shim_lost(self) -> None:
        records.mark_lost(str(self._sandbox.dir.path), timestamp())
        kill_leftovers(self.pod["metadata"]["uid"])
        self._sandbox.ready = False

    def _subscribe(self) -> None:
        if self._subscription is None or self._subscription.done():
            work = retry_after_errors(self._follow_shim, name="events of the shim", pod=self._name)
            self._subscription = asyncio.create_task(work)

    async def _follow_shim(self) -> None:
        """Wake up when a container changes state. The connection ends when the shim does."""
        try:
            async with await self._sandbox.shim.channel() as channel:
                channel.send({"op": "subscribe"})
                if self._missed_events:
                    self._missed_events = False
                    self._wake.set()
                while True:
                    await channel.receive()
                    self._wake.set()
        except ShimNotRunning:
            if self._sandbox.ready:
                self._shim_lost()
            self._wake.set()
        except Exception:
            self._missed_events = True
            raise

    async def _sync(self) -> SyncResult:
        now = time.time()
        if self._deleted:
            self._announce_kill()
            return SyncResult(terminated=True)
        deleting = bool(self.pod["metadata"].get("deletionTimestamp"))
        self._check_deadline(now)
        wake_at: float | None = None
        if not deleting and not self._ended and not self._status.terminal and not self._sandbox.ready:
            if self._started is None:
                self._started = now
            wake_at = await self._create_sandbox() if self._admit() else None
        view = self._observe()
        decision = decide(self.pod, view, now=now)
        if decision.start:
            retry_at = await self._start_containers(decision.start)
            wake_at = _earlier(wake_at, retry_at)
            view = self._observe()
            if not retry_at:
                decision = decide(self.pod, view, now=time.time())
        evicted = self._ended is not None and self._ended[0] == messages.REASON_EVICTED
        for name in decision.stop:
            self._stopper.stop(name, grace=_EVICTION_GRACE_SECONDS if evicted else None)
        if self._sandbox.ready:
            self._storage.start()
        await self._status.write(view)
        if not deleting:
            wake_at = _earlier(wake_at, await self._refresh_volumes(now))
        if decision.finished:
            await self._finish(deleting)
            if deleting:
                return SyncResult(terminated=True)
        return SyncResult(_earlier(_earlier(wake_at, decision.wake_at), self._deadline()))

    def _deadline(self) -> float | None:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or self._started is None or self._ended or self._status.terminal:
            return None
        return self._started + float(limit)

    def _check_deadline(self, now: float) -> None:
        limit = self._deadline()
        if limit is not None and now >= limit:
            self._ended = DEADLINE
            self._sandbox.event(*DEADLINE)

    def _evict(self, message: str) -> None:
        self._ended = (messages.REASON_EVICTED, message)
        self._sandbox.event(messages.REASON_EVICTED, message, kind="Warning")
        self._wake.set()

    def _admit(self) -> bool:
        """Whether the node accepts the pod; a rejected pod has failed."""
        uid, accepted = self.pod["metadata"]["uid"], self._context.host_port_pods
        rejected = rejection(self.pod, [pod for other, pod in accepted.items() if other != uid])
        if rejected is None:
            self._claim_host_ports()
            return True
        reason, message = rejected
        self._ended, self._rejected = (reason, messages.rejected(message)), True
        self._sandbox.event(reason, message, kind="Warning")
        return False

    def _claim_host_ports(self) -> None:
        if host_ports(self.pod):
            self._context.host_port_pods[self.pod["metadata"]["uid"]] = self.pod

    def _release_host_ports(self) -> None:
        self._context.host_port_pods.pop(self.pod["metadata"]["uid"], None)

    async def _create_sandbox(self) -> float | None:
        """Returns when to try again, if it failed."""
        emit = self._sandbox.event
        try:
            await self._sandbox.ensure()
        except VolumeError as error:
            emit(messages.REASON_FAILED_MOUNT, messages.mount_failed(error.volume, error), kind="Warning")
            return self._next_retry()
        except YardError as error:
            if error.code == messages.REASON_ADMISSION_ERROR:
                # The pod that had the device may be gone from the API, but not yet from the machine.
                if self._refused_since is None:
                    self._refused_since = time.monotonic()
                if time.monotonic() < self._refused_since + _ADMISSION_SECONDS:
                    return time.time() + _ADMISSION_RETRY
                self._ended = (error.code, error.message)
                emit(error.code, error.message, kind="Warning")
                return None
            emit(messages.REASON_FAILED_SANDBOX, messages.sandbox_failed(error), kind="Warning")
            return self._next_retry()
        except OSError as error:
            emit(messages.REASON_FAILED_SANDBOX, messages.sandbox_failed(error), kind="Warning")
            return self._next_retry()
        for text in self._sandbox.ignored_fields:
            emit(messages.REASON_FIELD_IGNORED, text, kind="Warning")
        self._retry = _RETRY_FIRST
        self._subscribe()
        return None

    async def _refresh_volumes(self, now: float) -> float | None:
        try:
            return await self._sandbox.refresh_volumes(now)
        except VolumeError as error:
            # the pod keeps the content that it has
            self._sandbox.event(
                messages.REASON_FAILED_MOUNT, messages.mount_failed(error.volume, error), kind="Warning"
            )
            return now + self._context.settings.volume_refresh_seconds

    def _observe(self) -> PodView:
        return observe(
            self._sandbox,
            self._starter,
            self._probes,
            host_ip=self._context.host_ip,
            started=self._started,
            ended=self._ended,
            rejected=self._rejected,
        )

    def _kill_unhealthy(self, container: Object, kind: str) -> None:
        name = container["name"]
        self._sandbox.event(messages.REASON_KILLING, messages.killed_by_probe(name, kind), container=name)
        grace = (container.get(f"{kind}Probe") or {}).get("terminationGracePeriodSeconds")
        self._stopper.stop(name, announce=False, grace=grace)

    async def _start_containers(self, starts: tuple[tuple[str, int], ...]) -> float | None:
        """Start attempts of containers; returns when to try those again that failed."""
        retry_at: float | None = None
        containers = {container["name"]: container for container in every_container(self.pod)}
        for name, attempt in starts:
            container = containers[name]
            if await self._starter.may_start(container):
                self._stopper.forget(name)
                if await self._starter.start(container, attempt):
                    await self._run_post_start_hook(container)
            retry_at = _earlier(retry_at, self._starter.retry_at(name, time.time()))
        return retry_at

    async def _run_post_start_hook(self, container: Object) -> None:
        hook = (container.get("lifecycle") or {}).get("postStart")
        if not hook:
            return
        host = self._sandbox.ip
        result = await run_hook(self._sandbox.shim, container, hook, host=host, seconds=_HOOK_SECONDS)
        if not result.passed:
            name, emit = container["name"], self._sandbox.event
            reason = messages.REASON_FAILED_POST_START_HOOK
            emit(reason, messages.post_start_failed(result.message), container=name, kind="Warning")
            emit(messages.REASON_KILLING, reason, container=name)
            self._stopper.stop(name, announce=False)

    def _announce_kill(self) -> None:
        """The object was removed before its containers ended; they are killed with the shim."""
        for container in every_container(self.pod):
            attempts = self._sandbox.dir.attempts(container)
            if attempts and attempts[-1].running:
                name = container["name"]
                self._sandbox.event(messages.REASON_KILLING, messages.stopping(name), container=name)

    async def _finish(self, deleting: bool) -> None:
        """Nothing will run again: end the shim; when the pod is being deleted, remove the object too."""
        if self._sandbox.ready or await self._sandbox.alive():
            await self._sandbox.stop_shim()
            await self._status.write(self._observe())
        if not deleting:
            return
        metadata = self.pod["metadata"]
        try:
            await self._context.client.delete(
                PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace=0
            )
        except StatusError as error:
            if error.status not in (404, 409):
                raise


def _earlier(left: float | None, right: float | None) -> float | None:
    return min(left, right) if left is not None and right is not None else left if right is None else right
