"""What the node has observed of one pod: the input of `decide` and `status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torchyard.api.objects import Object

State = Literal["starting", "running", "exited"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a container and how it went. Times are seconds since the epoch."""

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
    node_stopped: bool = False  # it was ended because its node was stopped

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
    """Why a container is not there: shown as its waiting state."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ContainerView:
    attempts: tuple[Attempt, ...] = ()
    waiting: Waiting | None = None  # what kept the last start from happening
    started: bool = True  # what the startup probe says; True without one
    ready: bool = True  # what the readiness probe says; True without one
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
    sandbox: bool = False  # namespaces, network and volumes are there
    ip: str = ""
    host_ip: str = ""
    started: float | None = None  # when the node took the pod up
    ended: tuple[str, str] | None = None  # reason and message of an end the node decided on (deadline, eviction)

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
    """An init container that stays: started in its turn, kept running beside the others."""
    return container.get("restartPolicy") == "Always"


def every_container(pod: Object) -> list[Object]:
    return init_containers(pod) + main_containers(pod) + ephemeral_containers(pod)
