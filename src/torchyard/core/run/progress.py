"""The progress of a training, parsed from its log lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchyard.api.escapes import without_escapes

_NUMBER = r"(\d{1,3}(?:\.\d+)?)"
_COUNT = r"(\d{1,3}(?:,\d{3}){1,3}|\d{1,12})(?!\d|,\d{3})"  # longer ones are no counts, and too large for a float
_OF = rf"{_COUNT}\s*(?:/|\bof\b)\s*{_COUNT}"
_STEP, _BEFORE = r"(?:steps?|iter(?:ation)?s?|batch(?:es)?)", r"(?<![\w./:,-])"
# Shapes that only progress has. A percentage alone is none: an accuracy or a load is printed the same way.
_PERCENT = (
    re.compile(rf"(?<![\d.]){_NUMBER}\s?%\s?\|"),  # a bar of tqdm: ` 45%|####    | 9/20`
    re.compile(rf"\[\s*\d+\s*/\s*\d+\s*\(\s*{_NUMBER}\s?%\s*\)"),  # PyTorch's examples: `[640/60000 (1%)]`
    re.compile(rf"\b(?:progress|completed?|done)\b[\s:=]*{_NUMBER}\s?%", re.IGNORECASE),
    re.compile(rf"(?<![\d.]){_NUMBER}\s?%\s+(?:done|completed?)\b", re.IGNORECASE),
)
# Each with the words of which a line must have one: a pattern takes longer.
_WORDS = ("step", "iter", "batch")
_STEPS = (
    (_WORDS, re.compile(rf"\b{_STEP}\b(?:\(train\))?[\s:=#\[(]*{_OF}", re.IGNORECASE)),
    # `200/ 2983 batches`
    (tuple(f" {word}" for word in _WORDS), re.compile(rf"{_BEFORE}{_OF}\s+{_STEP}\b", re.IGNORECASE)),
    # `Epoch: [3][ 10/500]`
    (("][",), re.compile(rf"\bepoch\b(?:\(train\))?[\s:]*\[\s*\d{{1,12}}\]\[\s*{_OF}", re.IGNORECASE)),
    # fairseq: `epoch 001:    100 / 1094 loss=13.5`
    (("epoch",), re.compile(rf"\bepoch\s+\d{{1,12}}:\s+{_OF}", re.IGNORECASE)),
    # Keras: ` 45/100 [====>....]`
    ((" [=", " [>", " \u2501"), re.compile(rf"^\s*{_OF}\s+(?:\[[=>.]{{3,200}}\]|\u2501)")),
)
_EPOCHS = (
    (("epoch",), re.compile(rf"\bepochs?\b[\s:=#\[(]*{_OF}", re.IGNORECASE)),
    ((" epochs",), re.compile(rf"{_BEFORE}{_OF}\s+epochs\b", re.IGNORECASE)),
)
_EPOCH = re.compile(rf"\bepoch\b(?:\(train\))?[\s:=#\[(]*{_COUNT}", re.IGNORECASE)


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
    line = without_escapes(line)
    epoch = _EPOCH.search(line)
    number = _count(epoch[1]) if epoch else None
    for pattern in _PERCENT if has_percent else ():
        share = pattern.search(line)
        if share is not None and float(share[1]) <= 100:
            return TrainingProgress(float(share[1]), number)
    if not has_count:
        return None
    lower = line.lower()
    for words, pattern in _STEPS:
        if any(word in lower for word in words) and (steps := pattern.search(line)):
            return _share(steps, number)
    for words, pattern in _EPOCHS:
        if any(word in lower for word in words) and (epochs := pattern.search(line)):
            return _share(epochs, None)
    return None


def _share(counts: re.Match[str], epoch: int | None) -> TrainingProgress | None:
    done, total = _count(counts[1]), _count(counts[2])
    return TrainingProgress(100 * done / total, epoch) if total > 0 and done <= total else None


def _count(text: str) -> int:
    return int(text.replace(",", ""))
