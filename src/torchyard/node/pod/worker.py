"""Drives one pod: observes, lets `core.pod` decide, carries it out, writes the status. One task per pod.

A worker may be killed at any moment and another one takes over: all it must remember lies in the pod's directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from torchyard.api.errors import StatusError, YardError
from torchyard.api.times import parse_rfc3339
from torchyard.core.pod.decide import Plan, decide
from torchyard.core.pod.status import backoff_message, pod_status
from torchyard.core.pod.view import ContainerView, PodView, Waiting, every_container
from torchyard.kube.client import Unreachable
from torchyard.kube.refs import PODS
from torchyard.node.context import NodeContext
from torchyard.node.images.model import Image, ImageError
from torchyard.node.pod import starting, stopping
from torchyard.node.pod.environment import ConfigError
from torchyard.node.pod.handlers import act
from torchyard.node.pod.probes import KINDS, Prober
from torchyard.node.pod.surroundings import Surroundings
from torchyard.node.shim.client import ShimGone, ShimRefused
from torchyard.node.shim.pump import stamp
from torchyard.node.volumes.sources import VolumeError

log = logging.getLogger(__name__)

Object = dict[str, Any]
_RETRY_FIRST, _RETRY_LONGEST = 1.0, 120.0
_PULL_FIRST, _PULL_LONGEST = 10.0, 300.0
LOST = "The process that supervised the container was killed"
DEADLINE = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")


class PodWorker:
    def __init__(self, context: NodeContext, pod: Object) -> None:
        self._context = context
        self.pod = pod
        self._around = Surroundings(context, pod)
        self._wake = asyncio.Event()
        self._status: Object | None = None
        self._waiting: dict[str, Waiting] = {}
        self._not_before: dict[str, tuple[float, float]] = {}  # container → (next try, its delay)
        self._images: dict[str, Image] = {}
        self._probers: dict[str, tuple[int, Prober]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._ended: tuple[str, str] | None = None
        self._retry = _RETRY_FIRST
        self._volume_problem = ""
        self._started: float | None = None
        self._gone = False
        self._told: set[tuple[str, int]] = set()

    @property
    def around(self) -> Surroundings:
        return self._around

    def update(self, pod: Object) -> None:
        self.pod = self._around.pod = pod
        self._wake.set()

    def deleted(self) -> None:
        """The object is gone from the API: whatever still runs must end now."""
        self._gone = True
        self._wake.set()

    def names_changed(self) -> None:
        if self._around.ready:
            self._around.refresh_names()

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
                await self._close()
                return
            await self._sleep(wake_at)

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
        if self._around.home.plan() is None:
            return
        if await self._around.alive():
            await self._around.ensure()
            self._listen()
        else:
            self._lost()

    def _lost(self) -> None:
        for name in self._around.home.container_names():
            self._around.home.end_lost(name, message=LOST, now=stamp())
        stopping.kill_strays(self.pod["metadata"]["uid"])
        self._around.ready = False

    def _listen(self) -> None:
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._follow_shim())

    async def _follow_shim(self) -> None:
        """Wake up when something happens to a container; the end of the conversation is the end of the shim."""
        try:
            async with await self._around.shim.channel() as channel:
                channel.send({"op": "subscribe"})
                while True:
                    await channel.receive()
                    self._wake.set()
        except ShimGone:
            if self._around.ready:
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
        if not deleting and not self._ended and not self._over() and not self._around.ready:
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
            self._stop(name)
        await self._write_status(view)
        if not deleting:
            wake_at = _sooner(wake_at, await self._refresh_volumes(now))
        if plan.finished:
            await self._finish(deleting)
            if deleting:
                return 0.0
        return _sooner(_sooner(wake_at, plan.wake_at), self._deadline())

    def _over(self) -> bool:
        return (self._status or self.pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def _deadline(self) -> float | None:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or self._started is None or self._ended or self._over():
            return None
        return self._started + float(limit)

    def _check_deadline(self, now: float) -> None:
        limit = self._deadline()
        if limit is not None and now >= limit:
            self._ended = DEADLINE
            self._event("DeadlineExceeded", DEADLINE[1])

    async def _bring_up(self) -> float | None:
        try:
            await self._around.ensure()
        except VolumeError as failed:
            if str(failed) != self._volume_problem:
                self._volume_problem = str(failed)
            self._event("FailedMount", f"MountVolume.SetUp failed: {failed}", kind="Warning")
            return self._later()
        except YardError as failed:
            if failed.code == "UnexpectedAdmissionError":
                self._ended = (failed.code, failed.message)
                self._event(failed.code, failed.message, kind="Warning")
                return None
            self._event("FailedCreatePodSandBox", f"Failed to create pod sandbox: {failed}", kind="Warning")
            return self._later()
        self._retry = _RETRY_FIRST
        self._listen()
        return None

    async def _refresh_volumes(self, now: float) -> float | None:
        try:
            return await self._around.refresh_volumes(now)
        except VolumeError as failed:
            # the pod keeps what it has
            self._event("FailedMount", f"MountVolume.SetUp failed: {failed}", kind="Warning")
            return now + self._context.settings.volume_refresh_seconds

    def _view(self) -> PodView:
        containers = {}
        for container in every_container(self.pod):
            name = container["name"]
            attempts = self._around.home.attempts(container)
            prober = self._probe(container, attempts[-1].number if attempts and attempts[-1].running else None)
            image = self._images.get(name)
            containers[name] = ContainerView(
                attempts=attempts,
                waiting=self._waiting.get(name),
                started=prober.started if prober else True,
                ready=prober.ready if prober else True,
                image=image.name if image else self._known(name, "image"),
                image_id=image.id if image else self._known(name, "imageID"),
            )
        return PodView(
            containers=containers,
            sandbox=self._around.ready,
            ip=self._around.ip,
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

    def _probe(self, container: Object, attempt: int | None) -> Prober | None:
        """The prober of the running attempt, started with it and ended with it."""
        name = container["name"]
        known = self._probers.get(name)
        if known and known[0] != attempt:
            del self._probers[name]
            task = asyncio.ensure_future(known[1].close())
            task.add_done_callback(lambda _: None)
            known = None
        if known:
            return known[1]
        if attempt is None or not any(container.get(kind) for kind in KINDS):
            return None
        prober = Prober(
            self._around.shim,
            container,
            host=self._around.ip,
            changed=self._wake.set,
            failed=lambda kind, said: self._event(
                "Unhealthy", f"{kind} probe failed: {said}", container=name, kind="Warning"
            ),
            kill=lambda kind: self._kill_unhealthy(container, kind),
        )
        self._probers[name] = (attempt, prober)
        return prober

    def _kill_unhealthy(self, container: Object, kind: str) -> None:
        name = container["name"]
        self._event("Killing", f"Container {name} failed {kind} probe, will be restarted", container=name)
        grace = (container.get(f"{kind}Probe") or {}).get("terminationGracePeriodSeconds")
        self._stop(name, announce=False, grace=grace)

    async def _start_all(self, plan: Plan, now: float) -> float | None:
        """Start what was decided; the answer is when to try those again that could not be started."""
        wake_at: float | None = None
        for name, attempt in plan.start:
            next_try = self._not_before.get(name, (0.0, 0.0))[0]
            if next_try > now:
                self._pull_backoff(name)
                wake_at = _sooner(wake_at, next_try)
                continue
            container = next(one for one in every_container(self.pod) if one["name"] == name)
            if not await self._start(container, attempt):
                wake_at = _sooner(wake_at, self._not_before[name][0])
        return wake_at

    def _pull_backoff(self, name: str) -> None:
        waiting = self._waiting.get(name)
        if waiting and waiting.reason == "ErrImagePull":
            container = next(one for one in every_container(self.pod) if one["name"] == name)
            message = f'Back-off pulling image "{container["image"]}": {waiting.reason}: {waiting.message}'
            self._waiting[name] = Waiting("ImagePullBackOff", message)
            self._event("BackOff", f'Back-off pulling image "{container["image"]}"', container=name)
            self._event("Failed", "Error: ImagePullBackOff", container=name, kind="Warning")

    async def _start(self, container: Object, attempt: int) -> bool:
        name = container["name"]
        if ending := self._stopping.pop(name, None):
            ending.cancel()  # or else the kill meant for the attempt before would hit this one
        try:
            image = await self._image(container)
            started = await starting.start(self._context, self._around, container, image, attempt)
        except (ImageError, ConfigError, VolumeError, ShimRefused, OSError) as failed:
            self._could_not_start(container, failed)
            return False
        self._waiting.pop(name, None)
        self._not_before.pop(name, None)
        self._event("Created", f"Created container: {name}", container=name)
        if started["state"] == "exited":
            self._event("Failed", f"Error: {started.get('message', '')}", container=name, kind="Warning")
        else:
            self._event("Started", f"Started container {name}", container=name)
            await self._after_start(container)
        return True

    async def _image(self, container: Object) -> Image:
        name = container["name"]
        try:
            image = await self._around.image(container["image"])
        except ImageError as failed:
            if failed.code != "ErrImagePull" or container.get("imagePullPolicy") != "Never":
                raise
            said = f'Container image "{container["image"]}" is not present with pull policy of Never'
            raise ImageError(said, code="ErrImageNeverPull", hint=failed.hint) from failed
        self._images[name] = image
        self._event("Pulled", f'Container image "{container["image"]}" already present on machine', container=name)
        return image

    def _could_not_start(self, container: Object, failed: Exception) -> None:
        name = container["name"]
        code = failed.code if isinstance(failed, YardError) else "CreateContainerError"
        pull = code == "ErrImagePull"
        before = self._not_before.get(name)
        delay = min(before[1] * 2, _PULL_LONGEST) if before else (_PULL_FIRST if pull else _RETRY_FIRST)
        self._not_before[name] = (time.time() + delay, delay)
        self._waiting[name] = Waiting(code, str(failed))
        if pull:
            image = container["image"]
            self._event("Pulling", f'Pulling image "{image}"', container=name)
            self._event("Failed", f'Failed to pull image "{image}": {failed}', container=name, kind="Warning")
            self._event("Failed", "Error: ErrImagePull", container=name, kind="Warning")
        elif code == "ErrImageNeverPull":
            self._event(code, str(failed), container=name, kind="Warning")
            self._event("Failed", f"Error: {code}", container=name, kind="Warning")
        elif code == "InvalidImageName":
            self._event("InspectFailed", str(failed), container=name, kind="Warning")
            self._event("Failed", "Error: InvalidImageName", container=name, kind="Warning")
        else:
            self._event("Failed", f"Error: {failed}", container=name, kind="Warning")

    async def _after_start(self, container: Object) -> None:
        hook = (container.get("lifecycle") or {}).get("postStart")
        if not hook:
            return
        outcome = await act(self._around.shim, container, hook, host=self._around.ip, seconds=3600)
        if not outcome.passed:
            name = container["name"]
            self._event(
                "FailedPostStartHook", f"PostStartHook failed: {outcome.message}", container=name, kind="Warning"
            )
            self._event("Killing", "FailedPostStartHook", container=name)
            self._stop(name, announce=False)

    def _stop(self, name: str, *, announce: bool = True, grace: float | None = None) -> None:
        """End a container in the background, once."""
        running = self._stopping.get(name)
        if running and not running.done():
            if self._seconds_left() <= 0:
                running.cancel()  # a shorter grace period came in: go on with the kill
            else:
                return
        if announce:
            self._event("Killing", f"Stopping container {name}", container=name)
        container = next(one for one in every_container(self.pod) if one["name"] == name)
        seconds = grace if grace is not None else self._seconds_left()
        work = stopping.stop(self._around.shim, container, host=self._around.ip, seconds=seconds)
        self._stopping[name] = asyncio.create_task(work)

    def _announce_end(self) -> None:
        """The object went without waiting for its containers; they are killed with the shim."""
        for container in every_container(self.pod):
            attempts = self._around.home.attempts(container)
            if attempts and attempts[-1].running:
                self._event("Killing", f"Stopping container {container['name']}", container=container["name"])

    def _seconds_left(self) -> float:
        """What is left of the grace period; before a deletion, all of it."""
        metadata = self.pod["metadata"]
        if metadata.get("deletionTimestamp"):
            end = parse_rfc3339(metadata["deletionTimestamp"]).timestamp()
            if metadata.get("deletionGracePeriodSeconds") == 0:
                return 0.0
            return max(1.0, end - time.time())
        grace = self.pod["spec"].get("terminationGracePeriodSeconds")
        return 30.0 if grace is None else float(grace)

    async def _write_status(self, view: PodView) -> None:
        before = self.pod.get("status") or {}
        if self._status is not None:
            ours = {one["type"] for one in self._status["conditions"]}
            others = [one for one in before.get("conditions") or () if one["type"] not in ours]
            before = {**before, **self._status, "conditions": [*self._status["conditions"], *others]}
        status = pod_status({**self.pod, "status": before}, view, now=time.time())
        if status == (self._status or self.pod.get("status")):
            return
        self._tell_backoff(view, status)
        metadata = self.pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            await self._context.client.patch(PODS, metadata["name"], patch, metadata["namespace"], subresource="status")
        except StatusError as failed:
            if failed.status in (404, 409):
                return  # somebody deleted it, or put another one in its place: the watch will tell
            raise
        self._status = status

    def _tell_backoff(self, view: PodView, status: Object) -> None:
        for group in ("containerStatuses", "initContainerStatuses"):
            for one in status.get(group) or ():
                name, count = one["name"], one["restartCount"]
                if (one["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff" and (
                    name,
                    count,
                ) not in self._told:
                    self._told.add((name, count))
                    whose = backoff_message(self.pod, name, view.of(name)).partition(" pod=")[2]
                    message = f"Back-off restarting failed container {name} in pod {whose}"
                    self._event("BackOff", message, container=name, kind="Warning")

    async def _finish(self, deleting: bool) -> None:
        """Nothing will run again: let the shim go; after a deletion, let the object go too."""
        if self._around.ready or await self._around.alive():
            await self._around.stop_shim()
            await self._write_status(self._view())
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

    async def _close(self) -> None:
        for _, prober in self._probers.values():
            await prober.close()
        tasks = [task for task in (*self._stopping.values(), self._listening) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._around.tear_down()

    async def leave(self) -> None:
        """The agent ends; the pod goes on."""
        for _, prober in self._probers.values():
            await prober.close()
        tasks = [task for task in (*self._stopping.values(), self._listening) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _event(self, reason: str, message: str, *, container: str = "", kind: str = "Normal") -> None:
        self._context.recorder.pod(self.pod, reason, message, container=container, kind=kind)


def _sooner(left: float | None, right: float | None) -> float | None:
    return min(left, right) if left is not None and right is not None else left if right is None else right
