"""The progress of a training, parsed from its log lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"(\d{1,3}(?:\.\d+)?)"
_COUNT = r"(\d{1,12})(?!\d)"  # longer ones are no counts, and too large for a float
# Shapes that only progress has. A percentage alone is none: an accuracy or a load is printed the same way.
_PERCENT = (
    re.compile(rf"(?<![\d.]){_NUMBER}\s?%\s?\|"),  # a bar of tqdm: ` 45%|####    | 9/20`
    re.compile(rf"\[\s*\d+\s*/\s*\d+\s*\(\s*{_NUMBER}\s?%\s*\)"),  # PyTorch's examples: `[640/60000 (1%)]`
    re.compile(rf"\b(?:progress|completed?|done)\b[\s:=]*{_NUMBER}\s?%", re.IGNORECASE),
    re.compile(rf"(?<![\d.]){_NUMBER}\s?%\s+(?:done|completed?)\b", re.IGNORECASE),
)
_STEPS = re.compile(
    rf"\b(?:steps?|iter(?:ation)?s?|batch(?:es)?)\b[\s:=#\[(]*{_COUNT}\s*(?:/|\bof\b)\s*{_COUNT}", re.IGNORECASE
)
_EPOCHS = re.compile(rf"\bepochs?\b[\s:=#\[(]*{_COUNT}\s*(?:/|\bof\b)\s*{_COUNT}", re.IGNORECASE)
_EPOCH = re.compile(rf"\bepoch\b[\s:=#\[(]*{_COUNT}", re.IGNORECASE)


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
    has_percent, has_count = "%" in line, "/" in line or " of " in line
    if not has_percent and not has_count:  # most lines; the patterns take longer
        return None
    epoch = _EPOCH.search(line)
    number = int(epoch[1]) if epoch else None
    for pattern in _PERCENT if has_percent else ():
        share = pattern.search(line)
        if share is not None and float(share[1]) <= 100:
            return TrainingProgress(float(share[1]), number)
    if steps := _STEPS.search(line):
        return _share(steps, number)
    if epochs := _EPOCHS.search(line):
        return _share(epochs, None)
    return None


def _share(counts: re.Match[str], epoch: int | None) -> TrainingProgress | None:
    done, total = int(counts[1]), int(counts[2])
    return TrainingProgress(100 * done / total, epoch) if total > 0 and done <= total else None
