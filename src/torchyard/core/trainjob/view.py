"""The input of a decision about a TrainJob."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from torchyard.api import conditions
from torchyard.api.objects import Object
from torchyard.api.trainjob import messages
from torchyard.core.training.failures import FailedContainer


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """The first node that failed, and the end of its log."""

    container: FailedContainer
    log: str = ""


@dataclass(frozen=True, slots=True)
class TrainJobView:
    job: Object
    now: datetime
    jobset: Object | None = None  # only the job's own
    failure: NodeFailure | None = None
    not_made: str = ""  # why the job's objects cannot be created

    @property
    def is_suspended(self) -> bool:
        return bool(self.job["spec"].get("suspend"))

    @property
    def is_being_resumed(self) -> bool:
        """Whether the stored status is still that of a suspended job."""
        return not self.is_suspended and conditions.has_true_condition(self.job, messages.SUSPENDED)
