"""The input of a decision about a TrainJob."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from torchyard.api.objects import Object
from torchyard.core.training.failures import ContainerFailure


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """The first node that failed, and the end of its log."""

    container: ContainerFailure
    log: str = ""


@dataclass(frozen=True, slots=True)
class TrainJobView:
    job: Object
    now: datetime
    jobset: Object | None = None
    failure: NodeFailure | None = None
    not_made: str = ""  # why the job's objects cannot be created

    @property
    def is_suspended(self) -> bool:
        return bool(self.job["spec"].get("suspend"))
