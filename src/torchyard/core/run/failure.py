"""The first failure among the pods of a job, and the exit code it gives a shell."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.core.run.state import RunState

OOM_KILLED = "OOMKilled"


@dataclass(frozen=True, slots=True)
class ContainerFailure:
    """A container that exited with an error."""

    pod: str
    container: str
    exit_code: int
    reason: str
    at: str
    message: str = ""
    is_init: bool = False

    def __str__(self) -> str:
        killed = "" if self.reason == OOM_KILLED else signal_name(self.exit_code)
        detail = ", ".join(part for part in (self.reason, killed, self.message) if part)
        container = f", init container {self.container}" if self.is_init else ""
        return f"{self.pod}{container}, exit code {self.exit_code}" + (f" ({detail})" if detail else "")


def signal_name(code: int) -> str:
    """The signal that an exit code of a shell stands for, such as SIGSEGV for 139; empty for other codes."""
    return signal.Signals(code - 128).name if code - 128 in set(signal.Signals) else ""


def first_failure(pods: list[Object]) -> ContainerFailure | None:
    """The container that failed first; the other failures usually follow from it."""
    failures = [failure for pod in pods for failure in _failures(pod)]
    return min(failures, key=lambda failure: failure.at, default=None)


def _failures(pod: Object) -> Iterator[ContainerFailure]:
    status = pod.get("status") or {}
    init = [(True, container) for container in status.get("initContainerStatuses") or ()]
    for is_init, container in (*init, *((False, container) for container in status.get("containerStatuses") or ())):
        for state in (container.get("state"), container.get("lastState")):
            ended = (state or {}).get("terminated")
            if ended and ended.get("exitCode"):
                reason = ended.get("reason") or ""
                message = ended.get("message") or ""
                if reason == OOM_KILLED:
                    message = message or _memory_limit(pod, container["name"])
                yield ContainerFailure(
                    pod["metadata"]["name"],
                    container["name"],
                    ended["exitCode"],
                    reason,
                    ended.get("finishedAt") or "",
                    message.strip(),
                    is_init,
                )


def _memory_limit(pod: Object, name: str) -> str:
    """The limit that an OOM-killed container exceeded, in words; without one, the node ran out of memory."""
    spec = pod.get("spec") or {}
    limits = [(spec.get("resources") or {}).get("limits") or {}]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if container["name"] == name:
            limits.insert(0, (container.get("resources") or {}).get("limits") or {})
    memory = next((limit["memory"] for limit in limits if limit.get("memory")), None)
    return f"memory limit {memory}" if memory else "no memory limit is set: the node ran out of memory"


def exit_code(result: RunState, failure: ContainerFailure | None) -> int:
    """The exit code for a shell: 0, or the first failed container's code if there is one."""
    if result.succeeded:
        return 0
    return failure.exit_code if failure is not None else 1
