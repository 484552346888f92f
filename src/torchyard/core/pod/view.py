"""The observed state of a pod and its containers: the input of `decide` and `status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torchyard.api.objects import Object

State = Literal["starting", "running", "exited"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a container and its result. Times are seconds since the epoch."""

    number: int
    id: str
    state: State
    created: float
    started: float | None = None
    finished: float | None = None
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    node_stopped: bool = False  # ended because the node was stopped

    @property
    def exited(self) -> bool:
        return self.state == "exited"

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def succeeded(self) -> bool:
        return self.exited and self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run: its `waiting` state."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContainerView:
    attempts: tuple[Attempt, ...] = ()
    waiting: Waiting | None = None  # why the last start did not happen
    started: bool = True  # the startup probe's result; True without a probe
    ready: bool = True  # the readiness probe's result; True without a probe
    image: str = ""
    image_id: str = ""

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def running(self) -> bool:
        return bool(self.attempts) and self.attempts[-1].running


@dataclass(frozen=True, slots=True)
class PodView:
    containers: Mapping[str, ContainerView] = field(default_factory=dict)
    sandbox: bool = False  # whether namespaces, network and volumes are set up
    ip: str = ""
    host_ip: str = ""
    started: float | None = None  # when the node accepted the pod
    ended: tuple[str, str] | None = None  # reason and message of an end that the node decided (deadline, eviction)
    rejected: bool = False  # the node did not accept the pod: it has no containers to speak of

    def of(self, name: str) -> ContainerView:
        return self.containers.get(name) or _NOTHING


_NOTHING = ContainerView()


def init_containers(pod: Object) -> list[Object]:
    return list(pod["spec"].get("initContainers") or ())


def main_containers(pod: Object) -> list[Object]:
    return list(pod["spec"].get("containers") or ())


def ephemeral_containers(pod: Object) -> list[Object]:
    return list(pod["spec"].get("ephemeralContainers") or ())


def is_sidecar(container: Object) -> bool:
    """An init container with restartPolicy Always: started in order, then kept running with the others."""
    return container.get("restartPolicy") == "Always"


def every_container(pod: Object) -> list[Object]:
    return init_containers(pod) + main_containers(pod) + ephemeral_containers(pod)
