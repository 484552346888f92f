"""The progress of a training, parsed from its log lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PERCENT = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d+)?)\s?%")
_EPOCH = re.compile(r"\bepoch\b[\s:=#\[]*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """`percent` of the epoch, or of the whole training if no epoch is named."""

    percent: float
    epoch: int | None = None

    def __str__(self) -> str:
        share = f"{self.percent:.0f}%"
        return f"epoch {self.epoch}, {share}" if self.epoch is not None else share


def parse_progress(line: str) -> TrainingProgress | None:
    """The progress that a log line reports; None if it reports none."""
    share = _PERCENT.search(line)
    if share is None or float(share[1]) > 100:
        return None
    epoch = _EPOCH.search(line)
    return TrainingProgress(float(share[1]), int(epoch[1]) if epoch else None)
