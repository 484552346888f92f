"""Which containers to start and to stop, and when to look again.

Mirrors the kubelet's computePodActions and back-off.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchyard.api.objects import Object
from torchyard.core.pod.view import (
    Attempt,
    ContainerView,
    PodView,
    ephemeral_containers,
    init_containers,
    is_sidecar,
    main_containers,
)

BACKOFF_FIRST, BACKOFF_LONGEST, BACKOFF_FORGOTTEN = 10.0, 300.0, 600.0


@dataclass(frozen=True, slots=True)
class PodActions:
    """`start` holds (container, attempt), `stop` container names. `finished`: nothing will run again."""

    start: tuple[tuple[str, int], ...] = ()
    stop: tuple[str, ...] = ()
    wake_at: float | None = None
    finished: bool = False


@dataclass(slots=True)
class _ActionsBuilder:
    start: list[tuple[str, int]] = field(default_factory=list)
    wake_at: float | None = None

    def wake(self, when: float) -> None:
        self.wake_at = when if self.wake_at is None else min(self.wake_at, when)


def decide(pod: Object, view: PodView, *, now: float) -> PodActions:
    if view.ended or pod["metadata"].get("deletionTimestamp"):
        return _stop_containers(pod, view)
    if not view.sandbox:
        return PodActions()
    if is_over(pod, view):
        return _stop_containers(pod, view)
    draft = _ActionsBuilder()
    if _initialize(pod, view, draft, now):
        for container in main_containers(pod):
            _start_or_restart(pod, container, view, draft, now)
    # As the kubelet does, even before the pod is initialized: that may be what the user wants to debug.
    for container in ephemeral_containers(pod):
        if not view.of(container["name"]).attempts:
            draft.start.append((container["name"], 0))
    return PodActions(start=tuple(draft.start), wake_at=draft.wake_at)


def _initialize(pod: Object, view: PodView, draft: _ActionsBuilder, now: float) -> bool:
    """Run init containers one after the other and keep sidecars running; True when the main containers may start."""
    main_started = any(view.of(main["name"]).attempts for main in main_containers(pod))
    for container in init_containers(pod):
        seen = view.of(container["name"])
        if is_sidecar(container):
            _start_or_restart(pod, container, view, draft, now)
            if not main_started and not (seen.running and seen.started):
                return False
        elif not main_started and not (seen.last and seen.last.succeeded):
            _start_or_restart(pod, container, view, draft, now)
            return False
    return True


def _start_or_restart(pod: Object, container: Object, view: PodView, draft: _ActionsBuilder, now: float) -> None:
    seen = view.of(container["name"])
    last = seen.last
    if last is None:
        draft.start.append((container["name"], 0))
        return
    if not last.exited or not restarts(pod, container, last):
        return
    when = restart_time(seen)
    if when <= now:
        draft.start.append((container["name"], last.number + 1))
    else:
        draft.wake(when)


def restarts(pod: Object, container: Object, ended: Attempt) -> bool:
    """Whether the restart policy restarts an ended container."""
    if is_sidecar(container):
        return True
    policy = pod["spec"].get("restartPolicy") or "Always"
    if container in init_containers(pod):
        return policy != "Never" and not ended.succeeded
    return policy == "Always" or (policy == "OnFailure" and not ended.succeeded)


def backoff(attempts: tuple[Attempt, ...]) -> float:
    """Seconds between a container's end and its next start: none the first time, then 10 s, doubled up to 5 min.

    A run of more than ten minutes resets the back-off, as in the kubelet's flowcontrol.Backoff.
    """
    delay = 0.0
    for attempt in attempts[1:]:
        ran = (attempt.finished or attempt.created) - attempt.created
        delay = BACKOFF_FIRST if not delay or ran > BACKOFF_FORGOTTEN else min(delay * 2, BACKOFF_LONGEST)
    return delay


def restart_time(seen: ContainerView) -> float:
    last = seen.last
    assert last is not None
    return (last.finished or last.created) + backoff(seen.attempts)


def is_over(pod: Object, view: PodView) -> bool:
    """All main containers have ended for good, or an init container has failed for good."""
    for container in init_containers(pod):
        last = view.of(container["name"]).last
        if (
            last
            and last.exited
            and not is_sidecar(container)
            and not last.succeeded
            and not restarts(pod, container, last)
        ):
            return True
    return all(_ended_for_good(pod, main, view) for main in main_containers(pod))


def _ended_for_good(pod: Object, container: Object, view: PodView) -> bool:
    last = view.of(container["name"]).last
    return last is not None and last.exited and not restarts(pod, container, last)


def _stop_containers(pod: Object, view: PodView) -> PodActions:
    """Stop main and ephemeral containers first, all at once; then sidecars, the last one started first."""
    ordinary = [container["name"] for container in [*main_containers(pod), *ephemeral_containers(pod)]]
    ordinary += [container["name"] for container in init_containers(pod) if not is_sidecar(container)]
    alive = tuple(name for name in ordinary if _alive(view.of(name)))
    if alive:
        return PodActions(stop=alive)
    sidecars = [container["name"] for container in init_containers(pod) if is_sidecar(container)]
    for name in reversed(sidecars):
        if _alive(view.of(name)):
            return PodActions(stop=(name,))
    return PodActions(finished=True)


def _alive(seen: ContainerView) -> bool:
    return seen.last is not None and not seen.last.exited
