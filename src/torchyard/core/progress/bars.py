"""Progress bars as tqdm draws them, also several that are nested: which of them count, and for how much.

`Epoch 3:  45%|####    | 9/20 [00:03<00:04, 2.9it/s, loss=0.3]`
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Counts have at most 12 digits: a program may print any number, and a larger one overflows a float or a timedelta.
_BAR = re.compile(
    r"^(?P<label>[^|]{0,200}?)(?<![\d.])(?P<percent>\d{1,3})%\|[^|]{0,300}\|\s*"
    r"(?P<done>\d{1,12})/(?P<total>\d{1,12})(?!\d)(?:\s*\[(?P<elapsed>[\d:]{1,20})<(?P<left>[\d:]{1,20}(?![\d:]))?)?"
)
_TRAINING_BAR = re.compile(r"train|epoch|step|iter|fit|batch|progress|optimi[sz]|loss", re.IGNORECASE)
_RANK = re.compile(r"^\s*\[(?:rank|default)\s?\d{1,6}\]:?\s*")  # torchrun's --tee and torch's own prefix
_BAR_OF_EPOCHS = re.compile(r"\bepochs?\b[^\d]*$", re.IGNORECASE)
# Words before a count or a bar that is not the training's.
OTHER_WORK = re.compile(r"\b(?:val|valid|validat\w*|eval\w*|test\w*|predict\w*|sanity|infer\w*)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bar:
    """One drawing of a bar. `rest` is what follows its counts."""

    label: str
    done: int
    total: int
    remaining: int | None
    rest: str

    @property
    def share(self) -> float:
        return min(100 * self.done / self.total, 100.0)

    @property
    def kind(self) -> str:
        """The label without the numbers that change: `loss: 0.31`."""
        return re.sub(r"[\d.,+-]", "", self.label)

    @property
    def is_of_epochs(self) -> bool:
        """Whether each step of the bar is an epoch: `Epochs:  30%|###   | 3/10`."""
        return _BAR_OF_EPOCHS.search(self.label) is not None


def parse_bar(text: str) -> Bar | None:
    if "%|" not in text:
        return None
    text = _RANK.sub("", text, count=1)
    match = _BAR.match(text)
    if match is None:
        return None
    label = match["label"].strip(" :\t")
    return Bar(label, int(match["done"]), int(match["total"]), _seconds(match["left"]), text[match.end() :])


@dataclass(slots=True)
class BarNest:
    """The bars of one program: a bar that starts while a shorter one is not complete is a step of that one."""

    _last: Bar | None = None
    _outer: Bar | None = None

    def share(self, bar: Bar) -> float | None:
        """The share of the training that a bar shows; None for a bar of something else."""
        if not bar.total or (bar.label and (not _TRAINING_BAR.search(bar.label) or OTHER_WORK.search(bar.label))):
            return None
        last, outer = self._last, self._outer
        if outer is not None and bar.total == outer.total and bar.kind == outer.kind:
            self._outer = bar if bar.done < bar.total else None
            return bar.share
        # An evaluation between the steps of a training has a bar of its own, without a label and shorter.
        if last is not None and bar.total < last.total and not bar.label:
            return None
        if last is not None and last.done < last.total < bar.total:
            outer = self._outer = last
        self._last = bar
        return bar.share if outer is None else 100 * (outer.done + bar.share / 100) / outer.total

    @property
    def is_nested(self) -> bool:
        return self._outer is not None


def _seconds(clock: str | None) -> int | None:
    """`1:02:03` in seconds."""
    if not clock:
        return None
    total = 0
    for part in clock.split(":"):
        if not part.isdecimal():
            return None
        total = total * 60 + int(part)
    return total
