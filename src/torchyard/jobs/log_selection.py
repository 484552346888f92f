"""Which logs of a job `yard logs` shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.run.ranks import choose_replicas, is_named
from torchyard.core.run.state import short_name

_SINCE = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The options of `yard logs`. `timestamps`: each line has its time in front."""

    ranks: tuple[str, ...]
    container: str
    pattern: re.Pattern[str]
    previous: bool = False
    since_seconds: int | None = None
    tail_lines: int | None = None
    timestamps: bool = False

    def pods(self, pods: list[Object], job: str) -> list[Object]:
        """The pods of the chosen ranks, in the order of their ranks. Raises YardError for a rank that no pod has."""
        return choose_replicas(pods, job, self.ranks)

    def matches(self, pod: Object, job: str) -> bool:
        """Whether the logs of a pod are chosen."""
        return not self.ranks or is_named(pod, job, self.ranks)

    def containers(self, pod: Object, job: str) -> list[tuple[str, str]]:
        """The chosen containers of a pod with the labels of their lines; init containers first."""
        spec = pod["spec"]
        names = [str(part["name"]) for key in ("initContainers", "containers") for part in spec.get(key) or ()]
        if self.container and self.container not in names:
            raise YardError(
                f"{pod['metadata']['name']} has no container {self.container}",
                hint=f"its containers are {', '.join(names)}",
                code="NotFound",
            )
        main = str(spec["containers"][0]["name"])
        label = short_name(str(pod["metadata"]["name"]), job)
        return [
            (label if name == main else f"{label}/{name}", name)
            for name in names
            if not self.container or name == self.container
        ]


def parse_since(text: str) -> int:
    """The seconds of a duration such as 90s, 5m, 1h30m or 7d."""
    match = _SINCE.fullmatch(text)
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
        if match
        else 0
    )
    if not seconds:
        raise YardError(f"--since {text}: it is not a duration", hint="write 30s, 5m, 1h30m or 7d", code="BadOption")
    return seconds
