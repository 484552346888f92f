"""How far a training is, read from the lines it prints."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PERCENT = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d+)?)\s?%")
_EPOCH = re.compile(r"\bepoch\b[\s:=#\[]*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """`percent` of the epoch, or of the whole where no epoch is named."""

    percent: float
    epoch: int | None = None

    def __str__(self) -> str:
        share = f"{self.percent:.0f}%"
        return f"epoch {self.epoch}, {share}" if self.epoch is not None else share


def parse_progress(line: str) -> TrainingProgress | None:
    """What a line of a log says about it; None when it says nothing."""
    share = _PERCENT.search(line)
    if share is None or float(share[1]) > 100:
        return None
    epoch = _EPOCH.search(line)
    return TrainingProgress(float(share[1]), int(epoch[1]) if epoch else None)
