"""What to do about a Deployment. One pass decides about its ReplicaSets and its status, as upstream's pass does.

Every pass takes one step of a rollout: the new ReplicaSet grows, or the old ones shrink, or old ones are deleted.
The change of a ReplicaSet's status leads to the next pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import has_ended
from torchyard.api.workload import labels, messages
from torchyard.core.events import Event
from torchyard.core.workload import deployment_status as statuses
from torchyard.core.workload.deployment_replicasets import (
    expired,
    make_replica_set,
    new_size,
    next_revision,
    replica_annotations,
    revision_annotations,
)
from torchyard.core.workload.deployment_scaling import Sizes, rolling_sizes, scale_sizes, was_scaled
from torchyard.core.workload.deployment_view import (
    DeploymentView,
    active,
    annotation,
    count,
    size,
    with_annotations,
)


@dataclass(slots=True)
class DeploymentDecision:
    """In the order in which it is applied; an event follows its write."""

    create: Object | None = None
    update: list[tuple[Object, Event | None]] = field(default_factory=list)  # ReplicaSets
    delete: list[Object] = field(default_factory=list)  # ReplicaSets
    status: Object | None = None  # None: no change
    annotations: dict[str, str] | None = None  # of the Deployment; None: no change
    events: list[Event] = field(default_factory=list)
    wake_after: float | None = None  # seconds


def decide(view: DeploymentView) -> DeploymentDecision:
    sync = _DeploymentSync(view)
    if not any((view.spec.get("selector") or {}).values()):
        text = messages.selects_everything("deployment")
        sync.decision.events.append(Event("Warning", messages.SELECTING_ALL, text))
        sync.status = {**view.status, "observedGeneration": view.deployment["metadata"].get("generation", 0)}
    else:
        sync.run()
    return sync.finish()


def after_collision(view: DeploymentView) -> Object:
    """The status after another ReplicaSet had the name of the new one: the next hash will differ."""
    return {**view.status, "collisionCount": (view.status.get("collisionCount") or 0) + 1}


def after_failed_creation(view: DeploymentView, name: str, why: str) -> tuple[Object, Event]:
    """The status and event after the new ReplicaSet could not be created."""
    text = messages.replica_set_not_created(name, why)
    held = statuses.Conditions(view.status.get("conditions") or [], view.now)
    if view.has_progress_deadline:
        held.set(messages.PROGRESSING, "False", messages.REPLICA_SET_NOT_CREATED, text)
    event = Event("Warning", messages.REPLICA_SET_NOT_CREATED, text)
    return ({**view.status, "conditions": held.items} if held.items else view.status), event


class _DeploymentSync:
    """One pass over one Deployment."""

    def __init__(self, view: DeploymentView) -> None:
        self.view, self.decision = view, DeploymentDecision()
        self.conditions = statuses.Conditions(view.status.get("conditions") or [], view.now)
        self.new = view.new_replica_set()
        self.old = view.old_replica_sets(self.new)
        self.status: Object = view.status

    @property
    def all_sets(self) -> list[Object]:
        return [*self.old, *([self.new] if self.new is not None else [])]

    def run(self) -> None:
        view = self.view
        if is_terminating(view.deployment):
            self._sync_revision()
            self._set_status()
            return
        self._check_paused()
        self._sync_revision()
        if view.spec.get("paused") or was_scaled(view, self.all_sets):
            self._scale(scale_sizes(view, self.new, self.old))
            if view.spec.get("paused"):
                self.decision.delete = expired(view, self.old)
            self._set_status()
        elif view.is_rolling:
            self._roll()
            self._set_rollout_status()
        else:
            self._recreate()
            self._set_rollout_status()

    def _check_paused(self) -> None:
        """The deadline does not count while paused, and counts again from the moment when the rollout resumes."""
        current = self.conditions.find(messages.PROGRESSING)
        reason = current["reason"] if current else ""
        if not self.view.has_progress_deadline or reason == messages.PROGRESS_DEADLINE_EXCEEDED:
            return
        was_paused, is_paused = reason == messages.PAUSED[0], bool(self.view.spec.get("paused"))
        if is_paused and not was_paused:
            self.conditions.set(messages.PROGRESSING, "Unknown", *messages.PAUSED)
        elif was_paused and not is_paused:
            self.conditions.set(messages.PROGRESSING, "Unknown", *messages.RESUMED)

    def _sync_revision(self) -> None:
        """Give an existing new ReplicaSet its revision, and the Deployment the same."""
        view, new = self.view, self.new
        if new is None:
            return
        wanted = revision_annotations(view, new, next_revision(self.old))
        seconds = view.spec.get("minReadySeconds") or 0
        if wanted != (new["metadata"].get("annotations") or {}) or seconds != (new["spec"].get("minReadySeconds") or 0):
            self._replace(new, with_annotations(new, annotations=wanted, spec={"minReadySeconds": seconds}), None)
        self._set_revision(wanted.get(labels.REVISION, ""))
        if view.has_progress_deadline and self.conditions.find(messages.PROGRESSING) is None:
            text = messages.found_replica_set(new["metadata"]["name"])
            self.conditions.set(messages.PROGRESSING, "True", messages.FOUND_REPLICA_SET, text)

    def _set_revision(self, revision: str) -> None:
        if annotation(self.view.deployment, labels.REVISION) != revision:
            own = self.view.deployment["metadata"].get("annotations") or {}
            self.decision.annotations = {**own, labels.REVISION: revision}

    def _create(self) -> None:
        view, new_set = self.view, make_replica_set(self.view, self.old)
        self.decision.create = self.new = new_set
        name = new_set["metadata"]["name"]
        if size(new_set):
            self.decision.events.append(Event("Normal", messages.SCALING, messages.scaled(name, 0, size(new_set))))
        self._set_revision(new_set["metadata"]["annotations"][labels.REVISION])
        if view.has_progress_deadline:
            text = messages.created_replica_set(name)
            self.conditions.set(messages.PROGRESSING, "True", messages.NEW_REPLICA_SET, text)

    def _roll(self) -> None:
        view = self.view
        if self.new is None:
            self._create()
        assert self.new is not None
        name = self.new["metadata"]["name"]
        larger = view.replicas if size(self.new) > view.replicas else new_size(view, self.all_sets, self.new)
        if self._scale({name: larger}, only_sizes=True):
            return
        if self._scale(rolling_sizes(view, self.new, self.old), only_sizes=True):
            return
        self._clean_up()

    def _recreate(self) -> None:
        view = self.view
        if self._scale({old_set["metadata"]["name"]: 0 for old_set in active(self.old)}, only_sizes=True):
            return
        if any(count(old_set, "replicas") for old_set in self.old) or not all(map(has_ended, view.pods)):
            return
        if self.new is None:
            self._create()
        assert self.new is not None
        self._scale({self.new["metadata"]["name"]: view.replicas}, only_sizes=True)
        self._clean_up()

    def _clean_up(self) -> None:
        if statuses.is_complete(self.view, self.view.status):
            self.decision.delete = expired(self.view, self.old)

    def _scale(self, sizes: Sizes, *, only_sizes: bool = False) -> bool:
        """Scale ReplicaSets; returns whether a size changed. `only_sizes`: not to correct annotations alone."""
        has_changed = False
        for replica_set in self.all_sets:
            name = replica_set["metadata"]["name"]
            wanted, before = sizes.get(name), size(replica_set)
            if wanted is None or (only_sizes and wanted == before):
                continue
            annotations = {**(replica_set["metadata"].get("annotations") or {}), **replica_annotations(self.view)}
            changed = with_annotations(replica_set, annotations=annotations, spec={"replicas": wanted})
            if changed == replica_set:
                continue
            text = messages.scaled(name, before, wanted)
            self._replace(replica_set, changed, Event("Normal", messages.SCALING, text) if wanted != before else None)
            has_changed = has_changed or wanted != before
        return has_changed

    def _replace(self, before: Object, after: Object, event: Event | None) -> None:
        """Update a ReplicaSet; a second change of the same one joins the first."""
        uid = before["metadata"]["uid"]
        updates = self.decision.update
        for index, (other, earlier) in enumerate(updates):
            if other["metadata"]["uid"] == uid:
                updates[index] = (after, event or earlier)
                break
        else:
            updates.append((after, event))
        if self.new is not None and self.new["metadata"]["uid"] == uid:
            self.new = after
        self.old = [after if old_set["metadata"]["uid"] == uid else old_set for old_set in self.old]

    def _set_status(self) -> None:
        self.status = statuses.compute_status(self.view, self.all_sets, self.new, self.conditions)

    def _set_rollout_status(self) -> None:
        self._set_status()
        statuses.estimate_progress(self.view, self.status, self.new, self.conditions)
        statuses.copy_failure(self.all_sets, self.new, self.conditions)
        status = {**self.status, "conditions": self.conditions.items}
        self.decision.wake_after = statuses.seconds_until_deadline(self.view, status)

    def finish(self) -> DeploymentDecision:
        status = {**self.status, "conditions": self.conditions.items} if self.conditions.items else self.status
        if status != self.view.status:
            self.decision.status = status
        return self.decision
