"""Drives one pod: observes, lets `core.pod` decide, carries it out, writes the status. One task per pod.

A worker may be killed at any moment and another one takes over: all it must remember lies in the pod's directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from torchyard.api.errors import StatusError, YardError
from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339
from torchyard.core.pod.decide import PodActions, decide
from torchyard.core.pod.view import ContainerView, PodView, every_container
from torchyard.kube.client import Unreachable
from torchyard.node.context import NodeContext
from torchyard.node.pod.container_starter import ContainerStarter
from torchyard.node.pod.container_stopper import ContainerStopper, kill_leftovers
from torchyard.node.pod.handlers import act
from torchyard.node.pod.probes import ProbeManager
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.pod.status_manager import StatusManager
from torchyard.node.shim import records
from torchyard.node.shim.client import ShimNotRunning
from torchyard.node.shim.output import stamp
from torchyard.node.volumes.mounter import VolumeError

log = logging.getLogger(__name__)

_RETRY_FIRST, _RETRY_LONGEST = 1.0, 120.0
_HOOK_SECONDS = 3600.0
_ADMISSION_SECONDS, _ADMISSION_RETRY = 30.0, 0.1
DEADLINE = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


class PodWorker:
    def __init__(self, context: NodeContext, pod: Object) -> None:
        self._context = context
        self.pod = pod
        self._sandbox = PodSandbox(context, pod)
        self._wake = asyncio.Event()
        self._starter = ContainerStarter(context, self._sandbox)
        self._stopper = ContainerStopper(self._sandbox)
        self._probers = ProbeManager(self._sandbox, changed=self._wake.set, kill=self._kill_unhealthy)
        self._reporter = StatusManager(context.client, self._sandbox)
        self._listening: asyncio.Task[None] | None = None
        self._ended: tuple[str, str] | None = None
        self._retry = _RETRY_FIRST
        self._started: float | None = None
        self._gone = False

    def update(self, pod: Object) -> None:
        self.pod = self._sandbox.pod = pod
        self._wake.set()

    def deleted(self) -> None:
        """The object is gone from the API: whatever still runs must end now."""
        self._gone = True
        self._wake.set()

    def names_changed(self) -> None:
        if self._sandbox.ready:
            self._sandbox.refresh_names()

    async def run(self) -> None:
        """Until the pod is gone."""
        await self._adopt()
        while True:
            self._wake.clear()
            try:
                wake_at = await self._sync()
            except Unreachable:
                wake_at = time.time() + _RETRY_FIRST
            except YardError as failed:
                log.warning("pod %s: %s", self._name, failed)
                wake_at = self._later()
            if wake_at == 0.0:
                await self.leave()
                await self._sandbox.tear_down()
                return
            await self._sleep(wake_at)

    async def leave(self) -> None:
        """Stop looking after the pod, which goes on."""
        await self._probers.close()
        await self._stopper.close()
        if self._listening:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    @property
    def _name(self) -> str:
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    async def _sleep(self, wake_at: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if wake_at is None else max(0.0, wake_at - time.time())):
                await self._wake.wait()

    def _later(self) -> float:
        delay, self._retry = self._retry, min(self._retry * 2, _RETRY_LONGEST)
        return time.time() + delay

    async def _adopt(self) -> None:
        """A pod whose directory is there was taken up before: find out what became of it."""
        status = self.pod.get("status") or {}
        if status.get("startTime"):
            self._started = parse_rfc3339(status["startTime"]).timestamp()
        if status.get("reason") == DEADLINE[0]:
            self._ended = DEADLINE
        if self._sandbox.dir.plan() is None:
            return
        if not await self._sandbox.alive():
            self._lost()
            return
        if await self._sandbox.ensure():  # the one that was asked has died since
            kill_leftovers(self.pod["metadata"]["uid"])
        self._listen()

    def _lost(self) -> None:
        records.end_lost(str(self._sandbox.dir.path), stamp())
        kill_leftovers(self.pod["metadata"]["uid"])
        self._sandbox.ready = False

    def _listen(self) -> None:
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._follow_shim())

    async def _follow_shim(self) -> None:
        """Wake up when something happens to a container; the end of the conversation is the end of the shim."""
        try:
            async with await self._sandbox.shim.channel() as channel:
                channel.send({"op": "subscribe"})
                while True:
                    await channel.receive()
                    self._wake.set()
        except ShimNotRunning:
            if self._sandbox.ready:
                self._lost()
            self._wake.set()

    async def _sync(self) -> float | None:
        """One round. Answers when to come back; None: when something happens; 0: the pod is gone."""
        now = time.time()
        if self._gone:
            self._announce_end()
            return 0.0
        deleting = bool(self.pod["metadata"].get("deletionTimestamp"))
        self._check_deadline(now)
        wake_at: float | None = None
        if not deleting and not self._ended and not self._reporter.over and not self._sandbox.ready:
            if self._started is None:
                self._started = now
            wake_at = await self._bring_up()
        view = self._view()
        plan = decide(self.pod, view, now=now)
        if plan.start:
            waits = await self._start_all(plan, now)
            wake_at = _sooner(wake_at, waits)
            view = self._view()
            if not waits:
                plan = decide(self.pod, view, now=time.time())
        for name in plan.stop:
            self._stopper.stop(name)
        await self._reporter.report(view)
        if not deleting:
            wake_at = _sooner(wake_at, await self._refresh_volumes(now))
        if plan.finished:
            await self._finish(deleting)
            if deleting:
                return 0.0
        return _sooner(_sooner(wake_at, plan.wake_at), self._deadline())

    def _deadline(self) -> float | None:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or self._started is None or self._ended or self._reporter.over:
            return None
        return self._started + float(limit)

    def _check_deadline(self, now: float) -> None:
        limit = self._deadline()
        if limit is not None and now >= limit:
            self._ended = DEADLINE
            self._sandbox.event("DeadlineExceeded", DEADLINE[1])

    async def _bring_up(self) -> float | None:
        tell = self._sandbox.event
        try:
            await self._sandbox.ensure()
        except VolumeError as failed:
            tell("FailedMount", f"MountVolume.SetUp failed: {failed}", kind="Warning")
            return self._later()
        except YardError as failed:
            if failed.code == "UnexpectedAdmissionError":
                # the one who had the device may be gone from the API, though not yet from the machine
                if self._started is None or time.time() < self._started + _ADMISSION_SECONDS:
                    return time.time() + _ADMISSION_RETRY
                self._ended = (failed.code, failed.message)
                tell(failed.code, failed.message, kind="Warning")
                return None
            tell("FailedCreatePodSandBox", f"Failed to create pod sandbox: {failed}", kind="Warning")
            return self._later()
        self._retry = _RETRY_FIRST
        self._listen()
        return None

    async def _refresh_volumes(self, now: float) -> float | None:
        try:
            return await self._sandbox.refresh_volumes(now)
        except VolumeError as failed:
            # the pod keeps what it has
            self._sandbox.event("FailedMount", f"MountVolume.SetUp failed: {failed}", kind="Warning")
            return now + self._context.settings.volume_refresh_seconds

    def _view(self) -> PodView:
        containers = {}
        for container in every_container(self.pod):
            name = container["name"]
            attempts = self._sandbox.dir.attempts(container)
            prober = self._probers.of(container, attempts[-1].number if attempts and attempts[-1].running else None)
            image = self._starter.image(name)
            containers[name] = ContainerView(
                attempts=attempts,
                waiting=self._starter.waiting(name),
                started=prober.started if prober else True,
                ready=prober.ready if prober else True,
                image=image.name if image else self._known(name, "image"),
                image_id=image.id if image else self._known(name, "imageID"),
            )
        return PodView(
            containers=containers,
            sandbox=self._sandbox.ready,
            ip=self._sandbox.ip,
            host_ip=self._context.host_ip,
            started=self._started,
            ended=self._ended,
        )

    def _known(self, name: str, field: str) -> str:
        status = self.pod.get("status") or {}
        for group in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
            for one in status.get(group) or ():
                if one["name"] == name:
                    return str(one.get(field) or "")
        return ""

    def _kill_unhealthy(self, container: Object, kind: str) -> None:
        name = container["name"]
        self._sandbox.event("Killing", f"Container {name} failed {kind} probe, will be restarted", container=name)
        grace = (container.get(f"{kind}Probe") or {}).get("terminationGracePeriodSeconds")
        self._stopper.stop(name, announce=False, grace=grace)

    async def _start_all(self, plan: PodActions, now: float) -> float | None:
        """Start what was decided; the answer is when to try those again that could not be started."""
        wake_at: float | None = None
        by_name = {one["name"]: one for one in every_container(self.pod)}
        for name, attempt in plan.start:
            container = by_name[name]
            if await self._starter.may_try(container, now):
                self._stopper.forget(name)
                if await self._starter.start(container, attempt):
                    await self._after_start(container)
            wake_at = _sooner(wake_at, self._starter.next_look(name, time.time()))
        return wake_at

    async def _after_start(self, container: Object) -> None:
        hook = (container.get("lifecycle") or {}).get("postStart")
        if not hook:
            return
        outcome = await act(self._sandbox.shim, container, hook, host=self._sandbox.ip, seconds=_HOOK_SECONDS)
        if not outcome.passed:
            name, tell = container["name"], self._sandbox.event
            tell("FailedPostStartHook", f"PostStartHook failed: {outcome.message}", container=name, kind="Warning")
            tell("Killing", "FailedPostStartHook", container=name)
            self._stopper.stop(name, announce=False)

    def _announce_end(self) -> None:
        """The object went without waiting for its containers; they are killed with the shim."""
        for container in every_container(self.pod):
            attempts = self._sandbox.dir.attempts(container)
            if attempts and attempts[-1].running:
                name = container["name"]
                self._sandbox.event("Killing", f"Stopping container {name}", container=name)

    async def _finish(self, deleting: bool) -> None:
        """Nothing will run again: let the shim go; after a deletion, let the object go too."""
        if self._sandbox.ready or await self._sandbox.alive():
            await self._sandbox.stop_shim()
            await self._reporter.report(self._view())
        if not deleting:
            return
        metadata = self.pod["metadata"]
        try:
            await self._context.client.delete(
                PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace=0
            )
        except StatusError as failed:
            if failed.status not in (404, 409):
                raise


def _sooner(left: float | None, right: float | None) -> float | None:
    return min(left, right) if left is not None and right is not None else left if right is None else right
