"""Claims and volumes: lets `core.volume` decide about one or the other, and applies the decision.

Claims and volumes have separate queues, as in kube-controller-manager: what one pass leaves half done, another
completes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, to_rfc3339
from torchyard.controllers.loop import Controller
from torchyard.core.events import Event
from torchyard.core.volume.claims import ClaimView, decide_claim
from torchyard.core.volume.view import (
    CLAIM,
    VOLUME,
    VolumeDecision,
    Write,
    candidate_keys,
    claims_of,
    class_names,
    class_of,
    phase,
    wanted_keys,
)
from torchyard.core.volume.volumes import VolumeView, decide_volume
from torchyard.kube.client import Client
from torchyard.kube.event_recorder import EventRecorder
from torchyard.kube.informer import Informer, Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.supervisor import run_parts

REFS = {CLAIM: PERSISTENT_VOLUME_CLAIMS, VOLUME: PERSISTENT_VOLUMES}
NAME = "persistentvolume-controller"  # the source of its events


# A claim that is older when the process starts has its events from an earlier process.
_OLD = timedelta(minutes=1)


class VolumeBinder:
    def __init__(
        self, client: Client, informers: InformerFactory, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client, self._clock = client, clock
        self.recorder = EventRecorder(client, NAME, clock=clock)
        self._claims = informers.for_resource(PERSISTENT_VOLUME_CLAIMS, indexes={"unbound": unbound})
        self._volumes = informers.for_resource(PERSISTENT_VOLUMES, indexes={"candidate": candidate_keys})
        self._classes = informers.for_resource(STORAGE_CLASSES)
        self._pods = informers.for_resource(PODS, indexes={"claim": by_claim})
        sources = (self._claims, self._volumes, self._classes, self._pods)
        self.claims = Controller("persistentvolume-binder-controller claims", self._sync_claim, sources)
        self.volumes = Controller("persistentvolume-binder-controller volumes", self._sync_volume, sources)
        self._claims.on_change(self._claim_changed)
        self._volumes.on_change(self._volume_changed)
        self._classes.on_change(self._class_changed)
        self._pods.on_change(self._pod_changed)
        self._reported: dict[str, list[Event]] = {}  # the events of pending claims, by UID
        self._reported_before: set[str] = set()  # UIDs of claims that an earlier process has looked at

    async def run(self) -> None:
        await run_parts(recorder=self.recorder.run, claims=self.claims.run, volumes=self.volumes.run)

    def _claim_changed(self, change: str, claim: Object, before: Object | None) -> None:
        uid = claim["metadata"]["uid"]
        if change == "DELETED":
            self._reported.pop(uid, None)
            self._reported_before.discard(uid)
        elif not self._claims.synced.is_set() and self._clock() - _created(claim) > _OLD:
            self._reported_before.add(uid)
        self.claims.queue.add(key_of(claim))
        for state in (claim, before):
            if state is not None and (name := state["spec"].get("volumeName")):
                self.volumes.queue.add(("", name))

    def _volume_changed(self, _change: str, volume: Object, before: Object | None) -> None:
        self.volumes.queue.add(key_of(volume))
        for state in (volume, before):
            if state is not None and (reference := state["spec"].get("claimRef")):
                self.claims.queue.add((reference.get("namespace", ""), reference["name"]))
        self._enqueue_unbound(f"volume {volume['metadata']['name']}")
        if not volume["spec"].get("claimRef"):
            self._enqueue_unbound(f"class {class_of(volume)}")

    def _class_changed(self, _change: str, obj: Object, before: Object | None) -> None:
        """Look at the claims of the class, and at those of no class, of which it may be the default."""
        for claim in unbound_claims_of(self._claims, obj, before):
            self.claims.queue.add(key_of(claim))

    def _pod_changed(self, change: str, pod: Object, before: Object | None) -> None:
        if change == "DELETED" or before is None or before["spec"].get("nodeName") != pod["spec"].get("nodeName"):
            for name in claims_of(pod).values():
                self.claims.queue.add((pod["metadata"]["namespace"], name))

    def _enqueue_unbound(self, key: str) -> None:
        for claim in self._claims.by("unbound", key):
            self.claims.queue.add(key_of(claim))

    async def _sync_claim(self, key: Key) -> None:
        claim = self._claims.get(*key)
        if claim is None:
            return
        waiting = [pod for pod in self._pods.by("claim", "/".join(key)) if not pod["spec"].get("nodeName")]
        view = ClaimView(
            claim,
            named=self._volumes.get("", claim["spec"].get("volumeName") or ""),
            volumes=candidate_volumes(self._volumes, claim),
            classes=self._classes.all(),
            waiting_pods=sorted(pod["metadata"]["name"] for pod in waiting),
        )
        decision, uid = decide_claim(view), claim["metadata"]["uid"]
        if phase(claim) in ("Bound", "Lost"):
            self._reported.pop(uid, None)
            await self._apply(claim, CLAIM, decision)
            return
        events = list(decision.events)
        if self._reported.get(uid) == events or uid in self._reported_before:
            decision.events.clear()  # a pending claim gets events when the reason changes
        await self._apply(claim, CLAIM, decision)
        self._reported[uid] = events
        self._reported_before.discard(uid)

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


def _created(claim: Object) -> datetime:
    return parse_rfc3339(claim["metadata"]["creationTimestamp"])


def unbound(claim: Object) -> tuple[str, ...]:
    """What an unbound claim waits for: a volume of its class, or the volume that it names."""
    if phase(claim) in ("Bound", "Lost"):
        return ()
    volume = claim["spec"].get("volumeName")
    return (f"class {class_of(claim)}", *((f"volume {volume}",) if volume else ()))


def unbound_claims_of(claims: Informer, *states: Object | None) -> list[Object]:
    """The unbound claims that the states of a storage class concern."""
    names = {name for state in states if state is not None for name in class_names(state)}
    keys = claims.values("unbound") if "*" in names else [f"class {name}" for name in ("", *names)]
    return [claim for key in keys for claim in claims.by("unbound", key)]


def candidate_volumes(volumes: Informer, claim: Object) -> list[Object]:
    """The volumes that are for a claim, and the free ones of its class."""
    return [volume for key in wanted_keys(claim) for volume in volumes.by("candidate", key)]


def by_claim(pod: Object) -> list[str]:
    """The claims a pod uses, as `namespace/name`."""
    return [f"{pod['metadata']['namespace']}/{name}" for name in claims_of(pod).values()]
