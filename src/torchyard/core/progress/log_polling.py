"""Which logs of a cluster's pods are read for progress, how often, and what is new in them.

A cluster has no files to look at: every look is a request that the API server forwards to a kubelet. So only the
first replica of a job is read, only the end of its log, and seldom if it reports nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar

from torchyard.api.objects import Object
from torchyard.api.pytorchjob import names as pytorchjobs
from torchyard.api.times import TimeError, parse_rfc3339
from torchyard.api.trainjob import names as trainjobs
from torchyard.core.progress.lines import LineParser, epochs_of

# Seconds between two looks at a log that reports something; twice as many after each look at one that does not.
INTERVAL, MAX_INTERVAL = 5.0, 60.0
# Looks at a log that has reported nothing yet before they become rarer: imports and downloads take a while.
PATIENT_LOOKS = 12
MAX_READS_PER_SECOND = 20.0
MAX_BYTES, MAX_LINES = 64 * 1024, 40  # of one look
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_TRAINING_CONTAINERS = (trainjobs.NODE, pytorchjobs.CONTAINER)


def training_container(pod: Object) -> Object | None:
    """The container whose log is read: the one that the pod names, the training's by its name, or the first."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    by_name: dict[str, Object] = {container["name"]: container for container in containers}
    stated = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    for name in (stated, *_TRAINING_CONTAINERS):
        if name in by_name:
            return by_name[name]
    return next(iter(by_name.values()), None)


def slim_training_pod(pod: Object) -> Object:
    """The part of a pod that says whose log it is, with the container that is read and the number of its epochs."""
    metadata = pod["metadata"]
    slim_metadata = {
        key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion", "labels") if key in metadata
    }
    owners = (owner for owner in metadata.get("ownerReferences") or () if owner.get("controller"))
    slim_metadata["ownerReferences"] = [
        {key: owner[key] for key in ("kind", "name", "uid", "controller")} for owner in owners
    ]
    container, containers = training_container(pod), []
    if container is not None:
        epochs = epochs_of(container)
        containers = [{"name": container["name"], **({"args": [f"--epochs={epochs}"]} if epochs else {})}]
    phase = (pod.get("status") or {}).get("phase", "")
    return {"metadata": slim_metadata, "spec": {"containers": containers}, "status": {"phase": phase}}


@dataclass(slots=True)
class LogTail:
    """The lines that are new in each look at the end of a container's log. `lines`: how many the next look asks for."""

    parser: LineParser
    lines: int = MAX_LINES
    seen: datetime | None = None

    def added(self, data: bytes, *, is_cut: bool) -> Iterator[tuple[datetime, str]]:
        """The new lines of a look, with their times. `is_cut`: it was longer than what is read of one."""
        if is_cut:  # the newest lines are missing
            self.lines = max(1, self.lines // 2)
        complete = data[: data.rfind(b"\n") + 1] if is_cut else data
        for line in complete.split(b"\n"):
            stamp, _, text = line.partition(b" ")
            try:
                time = parse_rfc3339(stamp.decode()).astimezone(UTC)
            except (TimeError, UnicodeDecodeError):
                continue  # a message of the kubelet, or the rest of a line
            if text and (self.seen is None or time > self.seen):
                self.seen = time
                yield time, text.decode(errors="replace")


Key = TypeVar("Key")


@dataclass(slots=True)
class _Entry:
    due: float
    silent_looks: int = 0
    has_reported: bool = False
    is_read: bool = False  # just now


@dataclass(slots=True)
class PollSchedule(Generic[Key]):
    """When which log is looked at. No more than `MAX_READS_PER_SECOND` in all, those that wait longest first."""

    _entries: dict[Key, _Entry] = field(default_factory=dict)
    _allowance: float = 0.0
    _time: float | None = None

    def add(self, key: Key, now: float) -> None:
        self._entries.setdefault(key, _Entry(now))

    def hurry(self, key: Key, now: float) -> None:
        """Look at this log next: its program has ended."""
        if entry := self._entries.get(key):
            entry.due = min(entry.due, now)

    def forget(self, key: Key) -> None:
        self._entries.pop(key, None)

    def due(self, now: float) -> list[Key]:
        """The logs to look at now."""
        if self._time is not None:
            self._allowance = min(MAX_READS_PER_SECOND, self._allowance + (now - self._time) * MAX_READS_PER_SECOND)
        self._time = now
        waiting = [(entry.due, key) for key, entry in self._entries.items() if entry.due <= now and not entry.is_read]
        waiting.sort(key=lambda pair: pair[0])
        keys = [key for _, key in waiting[: int(max(self._allowance, 1))]]
        self._allowance -= len(keys)
        for key in keys:
            self._entries[key].is_read = True
        return keys

    def looked(self, key: Key, now: float, *, has_reported: bool) -> None:
        """`has_reported`: whether the log had something new about the training."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.is_read, entry.has_reported = False, entry.has_reported or has_reported
        entry.silent_looks = 0 if has_reported else entry.silent_looks + 1
        patience = 1 if entry.has_reported else PATIENT_LOOKS
        doublings = min(max(entry.silent_looks - patience, 0), 10)
        entry.due = now + min(INTERVAL * 2**doublings, MAX_INTERVAL)
