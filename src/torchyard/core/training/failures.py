"""The first failed pod of a training job. When one rank fails, the others fail after it, with less useful messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.pod.phases import container_statuses


@dataclass(frozen=True, slots=True)
class FailedContainer:
    """A container that ended with an exit code other than 0."""

    pod: str
    container: str
    exit_code: int
    finished: str  # RFC 3339
    message: str = ""  # the termination message
    restarted: bool = False  # its log is the previous container's


def container_failures(pod: Object) -> list[FailedContainer]:
    failures = []
    for status in container_statuses(pod):
        for state, restarted in ((status.get("lastState"), True), (status.get("state"), False)):
            ended = (state or {}).get("terminated")
            if ended and ended.get("exitCode"):
                failures.append(
                    FailedContainer(
                        pod["metadata"]["name"],
                        status["name"],
                        int(ended["exitCode"]),
                        str(ended.get("finishedAt") or ""),
                        str(ended.get("message") or ""),
                        restarted,
                    )
                )
    return failures


def first_of(failures: Iterable[FailedContainer]) -> FailedContainer | None:
    """The container that failed first. Those that a signal ended (code 128 and above) often only followed another."""
    return min(failures, key=lambda failure: (failure.exit_code >= 128, failure.finished, failure.pod), default=None)


def is_same(failure: FailedContainer, other: FailedContainer) -> bool:
    """Whether both describe the same end of a container, which may have been restarted in the meantime."""
    return (failure.pod, failure.container, failure.exit_code, failure.finished) == (
        other.pod,
        other.container,
        other.exit_code,
        other.finished,
    )
