"""Claims and volumes: lets `core.volume` decide about one or the other, and applies the decision.

Claims and volumes have separate queues, as in kube-controller-manager: what one pass leaves half done, another
completes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.controllers.loop import Controller
from torchyard.core.events import Event
from torchyard.core.volume.claims import ClaimView, decide_claim
from torchyard.core.volume.view import CLAIM, VOLUME, VolumeDecision, Write, claims_of, phase
from torchyard.core.volume.volumes import VolumeView, decide_volume
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

REFS = {CLAIM: PERSISTENT_VOLUME_CLAIMS, VOLUME: PERSISTENT_VOLUMES}
NAME = "persistentvolume-controller"  # the source of its events
# No event reports a provisioner that never acts, so unbound claims are looked at again: first after the time of
# upstream's resync, then after twice as long each time.
_RESYNC, _MAX_RESYNC = timedelta(seconds=15), timedelta(minutes=5)


class _Report(NamedTuple):
    """The events of a pending claim, and when they are repeated. Other changes only look at the claim again."""

    events: list[Event]
    due: datetime
    pause: timedelta


class VolumeBinder:
    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._clock = client, clock
        self.recorder = EventRecorder(client, NAME, clock=clock)
        self._claims = informers.for_resource(PERSISTENT_VOLUME_CLAIMS, indexes={"unbound": unbound})
        self._volumes = informers.for_resource(PERSISTENT_VOLUMES)
        self._classes = informers.for_resource(STORAGE_CLASSES)
        self._pods = informers.for_resource(PODS, indexes={"claim": by_claim})
        sources = (self._claims, self._volumes, self._classes, self._pods)
        self.claims = Controller("persistentvolume-binder-controller claims", self._sync_claim, sources)
        self.volumes = Controller("persistentvolume-binder-controller volumes", self._sync_volume, sources)
        self._claims.on_change(self._claim_changed)
        self._volumes.on_change(self._volume_changed)
        self._classes.on_change(lambda *_: self._enqueue_unbound())
        self._pods.on_change(self._pod_changed)
        self._reports: dict[str, _Report] = {}  # by the claim's UID

    async def run(self) -> None:
        await run_parts(recorder=self.recorder.run, claims=self.claims.run, volumes=self.volumes.run)

    def _claim_changed(self, change: str, claim: Object, before: Object | None) -> None:
        if change == "DELETED":
            self._reports.pop(claim["metadata"]["uid"], None)
        self.claims.queue.add(key_of(claim))
        for state in (claim, before):
            if state is not None and (name := state["spec"].get("volumeName")):
                self.volumes.queue.add(("", name))

    def _volume_changed(self, _change: str, volume: Object, before: Object | None) -> None:
        self.volumes.queue.add(key_of(volume))
        for state in (volume, before):
            if state is not None and (reference := state["spec"].get("claimRef")):
                self.claims.queue.add((reference.get("namespace", ""), reference["name"]))
        if not volume["spec"].get("claimRef"):
            self._enqueue_unbound()

    def _pod_changed(self, _change: str, pod: Object, before: Object | None) -> None:
        if before is None or before["spec"].get("nodeName") != pod["spec"].get("nodeName"):
            for name in claims_of(pod).values():
                self.claims.queue.add((pod["metadata"]["namespace"], name))

    def _enqueue_unbound(self) -> None:
        for claim in self._claims.by("unbound", "yes"):
            self.claims.queue.add(key_of(claim))

    async def _sync_claim(self, key: Key) -> float | None:
        claim = self._claims.get(*key)
        if claim is None:
            return None
        waiting = [pod for pod in self._pods.by("claim", "/".join(key)) if not pod["spec"].get("nodeName")]
        view = ClaimView(
            claim,
            named=self._volumes.get("", claim["spec"].get("volumeName") or ""),
            volumes=self._volumes.all(),
            classes=self._classes.all(),
            waiting_pods=sorted(pod["metadata"]["name"] for pod in waiting),
        )
        decision, uid = decide_claim(view), claim["metadata"]["uid"]
        if phase(claim) in ("Bound", "Lost"):
            self._reports.pop(uid, None)
            await self._apply(claim, CLAIM, decision)
            return None
        report = self._reports.get(uid)
        now = self._clock()
        if report is None or report.events != decision.events:
            report = _Report(list(decision.events), now + _RESYNC, _RESYNC)
        elif now >= report.due:
            pause = min(report.pause * 2, _MAX_RESYNC)
            report = _Report(report.events, now + pause, pause)
        else:
            decision.events.clear()  # reported already
        self._reports[uid] = report
        await self._apply(claim, CLAIM, decision)
        return (report.due - now).total_seconds()

    async def _sync_volume(self, key: Key) -> None:
        volume = self._volumes.get(*key)
        if volume is not None:
            await self._apply(volume, VOLUME, decide_volume(VolumeView(volume, await self._claim_of(volume))))

    async def _claim_of(self, volume: Object) -> Object | None:
        """From the cache. If it is missing there, the server is asked, because data may be deleted as a result."""
        reference = volume["spec"].get("claimRef") or {}
        if not reference.get("uid"):
            return None
        namespace, name = reference.get("namespace", ""), reference["name"]
        cached = self._claims.get(namespace, name)
        if cached is not None and cached["metadata"]["uid"] == reference["uid"]:
            return cached
        return await self._client.find(PERSISTENT_VOLUME_CLAIMS, name, namespace)

    async def _apply(self, subject: Object, kind: str, decision: VolumeDecision) -> None:
        latest: dict[tuple[str, Key], Object] = {}
        for write in decision.writes:
            key = (write.kind, key_of(write.object))
            current = latest.get(key, write.object)
            if write.status is not None:
                updated: Object = {**current, "status": self._timed(write)}
                latest[key] = await self._client.update(REFS[write.kind], updated, subresource="status")
            else:
                revision = current["metadata"]["resourceVersion"]
                updated = {**write.object, "metadata": {**write.object["metadata"], "resourceVersion": revision}}
                latest[key] = await self._client.update(REFS[write.kind], updated)
        for event in decision.events:
            self.recorder.event({"apiVersion": "v1", "kind": kind, **subject}, event.kind, event.reason, event.message)

    def _timed(self, write: Write) -> Object:
        """A volume's status with the time of its phase transition."""
        status = write.status or {}
        if write.kind != VOLUME or status["phase"] == phase(write.object):
            return status
        return {**status, "lastPhaseTransitionTime": to_rfc3339(self._clock())}


def unbound(claim: Object) -> tuple[str, ...]:
    return () if phase(claim) in ("Bound", "Lost") else ("yes",)


def by_claim(pod: Object) -> list[str]:
    """The claims a pod uses, as `namespace/name`."""
    return [f"{pod['metadata']['namespace']}/{name}" for name in claims_of(pod).values()]
