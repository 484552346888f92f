"""What to do about a PyTorchJob. One pass decides everything; the controller only applies the decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torchyard.api.metadata import is_terminating
from torchyard.api.objects import Object
from torchyard.api.pod.phases import phase
from torchyard.api.pytorchjob import messages, names
from torchyard.api.pytorchjob.validation import validate
from torchyard.api.times import parse_rfc3339, shift
from torchyard.core.events import Event
from torchyard.core.pytorchjob import failure_events, gang
from torchyard.core.pytorchjob.autoscaler import desired_autoscaler
from torchyard.core.pytorchjob.environment import needs_token
from torchyard.core.pytorchjob.failures import Failures, is_past_backoff
from torchyard.core.pytorchjob.replicas import make_pod, make_service, owner_reference
from torchyard.core.pytorchjob.status import PyTorchJobStatus
from torchyard.core.pytorchjob.view import PyTorchJobSettings, PyTorchJobView, Restarts, Slot
from torchyard.core.training.pods import runs_since_before


@dataclass(frozen=True, slots=True)
class ChildDeletion:
    object: Object
    force: bool = False  # the node does not answer: delete without a grace period


# A job may ask for two billion replicas. So many objects are created in one pass, which decides in less than 100 ms.
MAX_CREATED_PER_PASS = 2500


@dataclass(slots=True)
class PyTorchJobDecision:
    """In the order in which it is applied: restarts, status, then the other writes concurrently; events last."""

    restarts: Restarts | None = None
    status: Object | None = None  # None: no change
    create: list[Object] = field(default_factory=list)
    update: list[Object] = field(default_factory=list)  # with the metadata of the existing object
    annotate: list[tuple[Object, dict[str, str]]] = field(default_factory=list)
    delete: list[ChildDeletion] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    delete_job: bool = False
    wake_after: float | None = None  # seconds

    def wake(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)
        self.wake_after = seconds if self.wake_after is None else min(self.wake_after, seconds)


def is_managed_here(job: Object) -> bool:
    manager = ((job.get("spec") or {}).get("runPolicy") or {}).get("managedBy")
    return manager is None or manager in ("", names.MANAGED_HERE)


def decide(view: PyTorchJobView, settings: PyTorchJobSettings) -> PyTorchJobDecision:
    if not is_managed_here(view.job) or is_terminating(view.job):
        return PyTorchJobDecision()
    sync = _PyTorchJobSync(view, settings)
    sync.run()
    status = sync.status.object()
    if status != (view.job.get("status") or {}):
        sync.decision.status = status
    return sync.decision


class _PyTorchJobSync:
    """One pass over one job. Methods fill the decision and the status."""

    def __init__(self, view: PyTorchJobView, settings: PyTorchJobSettings) -> None:
        self.view, self.settings = view, settings
        self.status = PyTorchJobStatus(view.job.get("status"), view.now)
        self.decision = PyTorchJobDecision()

    def run(self) -> None:
        view, status = self.view, self.status
        status.set(messages.CREATED, messages.IS_CREATED, messages.created(view.name))
        self._force_delete_lost_pods()
        if status.finished:
            self._clean_up()
        elif view.run_policy.get("suspend"):
            self._suspend()
        elif not self._is_invalid() and view.replicas:
            self._resume()
            self._sync_active_job()

    def _is_invalid(self) -> bool:
        """Whether the job fails validation. Without a webhook such a job can exist; it stays as it is."""
        if self.view.pods:
            return False
        errs = validate(self.view.job)
        if errs:
            metadata = self.view.job["metadata"]
            once = (metadata["uid"], str(metadata.get("generation")), messages.NOT_VALID)
            self.decision.events.append(Event("Warning", messages.NOT_VALID, messages.not_valid(errs), once))
        return bool(errs)

    def _record_event(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self.decision.events.append(Event(kind, reason, message))

    def _clean_up(self) -> None:
        if self.status.holds(messages.SUCCEEDED):
            self.status.count_active_as_succeeded()
        policy = self.view.run_policy["cleanPodPolicy"]
        for slot, pod in self.view.pods.items():
            is_cleaned = policy == names.CLEAN_RUNNING and phase(pod) in ("Running", "Pending")
            if policy == names.CLEAN_ALL or is_cleaned or self._came_too_late(pod):
                self._remove(slot)
        if policy != names.CLEAN_NONE and self.status.holds(messages.FAILED):
            self.status.clear_active()
        self._remove_pod_group()
        ttl, ended = self.view.run_policy.get("ttlSecondsAfterFinished"), self.status.completion_time
        if ttl is None or ended is None or self.view.run_policy.get("suspend"):
            return
        seconds_left = (shift(ended, ttl) - self.view.now).total_seconds()
        if seconds_left > 0:
            self.decision.wake(seconds_left)
        else:
            self.decision.delete_job = True

    def _came_too_late(self, pod: Object) -> bool:
        """Whether a worker of the elastic runtime would wait for a coordinator that has ended with the training."""
        ended = self.status.completion_time
        if ended is None or not (self.status.holds(messages.SUCCEEDED) and needs_token(self.view.job)):
            return False
        return phase(pod) in ("Running", "Pending") and not runs_since_before(pod, names.CONTAINER, ended)

    def _suspend(self) -> None:
        view, status = self.view, self.status
        for slot in {**view.pods, **view.services}:
            self._remove(slot)
        self._remove_pod_group()
        if view.autoscaler is not None:
            self._delete(view.autoscaler)
        message = messages.suspended(view.name)
        if status.holds(messages.RUNNING):
            status.set(messages.RUNNING, messages.IS_SUSPENDED, message, status="False")
        status.clear_active()
        if status.set(messages.SUSPENDED, messages.IS_SUSPENDED, message):
            self._record_event("Normal", messages.IS_SUSPENDED, message)

    def _resume(self) -> None:
        view, status = self.view, self.status
        if status.holds(messages.SUSPENDED):
            message = messages.resumed(view.name)
            status.set(messages.SUSPENDED, messages.IS_RESUMED, message, status="False")
            self._record_event("Normal", messages.IS_RESUMED, message)
            status.start()

    def _remove(self, slot: Slot) -> None:
        """Delete the pod and the service of a replica."""
        for obj in (self.view.pods.get(slot), self.view.services.get(slot)):
            if obj is not None:
                self._delete(obj)

    def _delete(self, obj: Object) -> None:
        if not is_terminating(obj):
            self.decision.delete.append(ChildDeletion(obj))

    def _remove_pod_group(self) -> None:
        group = self.view.pod_group
        if group is not None and not is_terminating(group):
            self._record_event("Normal", messages.TERMINATED, messages.POD_GROUP_GOES)
            self._delete(group)

    def _force_delete_lost_pods(self) -> None:
        """Force the deletion of pods whose node did not confirm it in time, so that they can be replaced."""
        for pod in self.view.pods.values():
            if not is_terminating(pod) or pod["metadata"].get("finalizers"):
                continue
            due = parse_rfc3339(pod["metadata"]["deletionTimestamp"]).timestamp() + self.settings.lost_after_seconds
            seconds_left = due - self.view.now.timestamp()
            if seconds_left > 0:
                self.decision.wake(seconds_left)
            else:
                self.decision.delete.append(ChildDeletion(pod, force=True))

    def _sync_active_job(self) -> None:
        view, status, settings = self.view, self.status, self.settings
        self.decision.events += failure_events.events(view)
        self._sync_autoscaler()
        if settings.uses_pod_groups:
            self._sync_pod_group()
            if gang.is_waiting(view, settings) and not view.pods:
                status.set_reconcile_time()
                return
        if status.start_time is None:
            status.start(view.pods.values())
        status.count(view)
        self._update_conditions()
        if not status.finished:
            self._sync_replicas()

    def _update_conditions(self) -> None:
        """Set Succeeded, Failed, Running or Restarting, in this order of precedence; Master before Worker."""
        view, status = self.view, self.status
        if self._has_succeeded():
            message = messages.succeeded(view.name, view.namespace, with_master=view.has_master)
            self._end(messages.SUCCEEDED, messages.HAS_SUCCEEDED, message)
            return
        failures = Failures.of(view)
        if failures.permanent:
            self._fail(messages.failed_for_good(view.name, failures.permanent), kind="Warning")
            return
        if self._is_past_deadline():
            self._fail(messages.past_deadline(view.name))
            return
        if is_past_backoff(view, failures):
            self._fail(messages.past_backoff(view.name))
            return
        self._set_running_or_restarting()
        if not status.finished and failures.retryable:
            self._restart(failures)

    def _has_succeeded(self) -> bool:
        view, status = self.view, self.status
        decisive = names.MASTER if view.has_master else names.WORKER
        succeeded = status.number(decisive, "succeeded")
        if view.elastic is not None and not view.has_master:
            return succeeded > 0
        return succeeded == int(view.replicas[decisive]["replicas"])

    def _is_past_deadline(self) -> bool:
        limit, start = self.view.run_policy.get("activeDeadlineSeconds"), self.status.start_time
        if limit is None or start is None:
            return False
        seconds_left = limit - (self.view.now - start).total_seconds()
        if seconds_left > 0:
            self.decision.wake(seconds_left)
        return bool(seconds_left <= 0)

    def _set_running_or_restarting(self) -> None:
        view, status = self.view, self.status
        decisive = names.MASTER if view.has_master else names.WORKER
        up = sum(status.number(kind, counter) for kind in view.replicas for counter in ("active", "succeeded"))
        # A restarting job runs again only when every replica does, so that the condition does not flip in between.
        if status.number(decisive, "active") and (not status.holds(messages.RESTARTING) or up >= view.total):
            message = messages.running(view.name, view.namespace, with_master=view.has_master)
            status.set(messages.RUNNING, messages.IS_RUNNING, message)
        for kind, spec in view.replicas.items():
            failed = status.number(kind, "failed")
            healthy = status.number(kind, "succeeded") + status.number(kind, "active")
            if not failed or int(spec["replicas"]) <= healthy:
                continue
            if spec["restartPolicy"] == names.NEVER:
                self._fail(messages.replicas_failed(view.name, kind, failed))
                return
            if kind not in Failures.of(view).retryable:
                message = messages.replicas_restarting(view.name, kind, failed)
                if status.set(messages.RESTARTING, messages.IS_RESTARTING, message):
                    self._record_event("Warning", messages.IS_RESTARTING, message)

    def _restart(self, failures: Failures) -> None:
        view = self.view
        self.decision.restarts = failures.counted(view)
        message = messages.restarting(view.name, next(iter(failures.retryable)))
        self.status.set(messages.RESTARTING, messages.IS_RESTARTING, message)
        if self.decision.restarts is not None:
            self._record_event("Warning", messages.IS_RESTARTING, message)
        going = view.pods.values() if view.restarts_whole else failures.pods()
        for pod in going:
            self._delete(pod)

    def _fail(self, message: str, *, kind: Literal["Normal", "Warning"] = "Normal") -> None:
        self._end(messages.FAILED, messages.HAS_FAILED, message, kind=kind)

    def _end(self, condition: str, reason: str, message: str, *, kind: Literal["Normal", "Warning"] = "Normal") -> None:
        if self.status.set(condition, reason, message):
            self._record_event(kind, reason, message)

    def _sync_replicas(self) -> None:
        view = self.view
        for slot in sorted({*view.pods, *view.services}, key=lambda key: (key[0], -key[1])):
            if not view.has_slot(slot):
                self._remove(slot)
        gang_annotations = gang.gang_annotations(view, self.settings)
        for kind, spec in view.replicas.items():
            for index in range(int(spec["replicas"])):
                if len(self.decision.create) >= MAX_CREATED_PER_PASS:
                    self.decision.wake(0)
                    return
                self._sync_replica((kind, index), gang_annotations)

    def _sync_replica(self, slot: Slot, gang_annotations: dict[str, str]) -> None:
        view, kind = self.view, slot[0]
        pod = view.pods.get(slot)
        if pod is None:
            self.decision.create.append(make_pod(view, slot, self.settings))
            if view.replicas[kind]["template"]["spec"].get("restartPolicy"):
                self._record_event("Warning", messages.RESTART_POLICY_SET, messages.RESTART_POLICY_OVERWRITTEN)
            if gang.has_other_scheduler(view, kind, self.settings):
                self._record_event("Warning", messages.SCHEDULER_SET, messages.OTHER_SCHEDULER)
        elif gang_annotations and not pod["spec"].get("nodeName"):
            annotations = pod["metadata"].get("annotations") or {}
            if any(annotations.get(key) != value for key, value in gang_annotations.items()):
                self.decision.annotate.append((pod, gang_annotations))
        if slot not in view.services:
            self.decision.create.append(make_service(view, slot))

    def _sync_autoscaler(self) -> None:
        desired, current = desired_autoscaler(self.view, owner_reference(self.view.job)), self.view.autoscaler
        self._create_or_update(desired, current)
        if desired is None and current is not None:
            self._delete(current)

    def _sync_pod_group(self) -> None:
        desired = gang.pod_group(self.view, owner_reference(self.view.job), self.settings)
        self._create_or_update(desired, self.view.pod_group)

    def _create_or_update(self, desired: Object | None, current: Object | None) -> None:
        if desired is None:
            return
        if current is None:
            self.decision.create.append(desired)
        elif not covers(current["spec"], desired["spec"]):
            self.decision.update.append({**current, "spec": {**current["spec"], **desired["spec"]}})


def covers(current: Any, desired: Any) -> bool:
    """Whether `current` has everything in `desired`. Fields that the server added by default are no difference."""
    if isinstance(desired, dict):
        return isinstance(current, dict) and all(covers(current.get(key), value) for key, value in desired.items())
    if isinstance(desired, list):
        same_length = isinstance(current, list) and len(current) == len(desired)
        return same_length and all(covers(*pair) for pair in zip(current, desired, strict=True))
    return bool(current == desired)
