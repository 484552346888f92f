"""Which logs of a job `yard logs` shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.run.ranks import rank_of
from torchyard.core.run.state import short_name

_SINCE = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The options of `yard logs`."""

    ranks: tuple[str, ...]
    container: str
    pattern: re.Pattern[str]
    previous: bool = False
    since_seconds: int | None = None
    tail_lines: int | None = None

    def pods(self, pods: list[Object], job: str) -> list[Object]:
        """The pods of the chosen ranks, in the order of their ranks. Raises YardError for a rank that no pod has."""
        ordered = sorted(pods, key=_order)
        if not self.ranks:
            return ordered
        names = {name: pod for pod in ordered for name in _names(pod, job)}
        unknown = [rank for rank in self.ranks if rank not in names]
        if unknown:
            known = ", ".join("/".join(_names(pod, job)) for pod in ordered) or "none yet"
            raise YardError(f"{job} has no rank {unknown[0]}", hint=f"its ranks are {known}")
        return [pod for pod in ordered if any(rank in _names(pod, job) for rank in self.ranks)]

    def matches(self, pod: Object, job: str) -> bool:
        """Whether the logs of a pod are chosen."""
        return not self.ranks or any(rank in _names(pod, job) for rank in self.ranks)

    def containers(self, pod: Object, job: str) -> list[tuple[str, str]]:
        """The chosen containers of a pod with the labels of their lines; init containers first."""
        spec = pod["spec"]
        names = [str(part["name"]) for key in ("initContainers", "containers") for part in spec.get(key) or ()]
        if self.container and self.container not in names:
            raise YardError(
                f"{pod['metadata']['name']} has no container {self.container}",
                hint=f"its containers are {', '.join(names)}",
            )
        main = str(spec["containers"][0]["name"])
        label = short_name(str(pod["metadata"]["name"]), job)
        return [
            (label if name == main else f"{label}/{name}", name)
            for name in names
            if not self.container or name == self.container
        ]


def parse_since(text: str) -> int:
    """The seconds of a duration such as 90s, 5m or 1h30m."""
    match = _SINCE.fullmatch(text)
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    )
    if not seconds:
        raise YardError(f"--since {text}: it is no duration", hint="write 30s, 5m, 2h or 1h30m")
    return seconds


def _order(pod: Object) -> tuple[int, str]:
    rank = rank_of(pod)
    return (rank if rank is not None else 1 << 30), str(pod["metadata"]["name"])


def _names(pod: Object, job: str) -> list[str]:
    rank = rank_of(pod)
    name = short_name(str(pod["metadata"]["name"]), job)
    return [name] if rank is None else [str(rank), name]
