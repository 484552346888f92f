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
OTHER_WORK = re.compile(
    r"\b(?:val|valid|validat\w*|eval\w*|test\w*|predict\w*|sanity|infer\w*|tokenizer"
    # What precedes a training: `Tokenizing train dataset`, `Saving step`.
    r"|(?:tokeniz|convert|(?:un)?pack|add|truncat|extract|generat|sav|(?:re|down|up)?load|fetch|cach|prepar|pre-?process|"
    r"comput|creat|copy|read|writ|shuffl|filter|install|pull|push|collect|build|mapp|index|check|verify)ing|download)\b",
    re.IGNORECASE,
)
# A rate of bytes, and the one of `datasets`: a download, or the preparation of a data set.
_OTHER_RATE = re.compile(r"\d[kMGTP]?i?B/s\b|\s(?:examples|files|shards|splits)/s\b")
# Lightning's RichProgressBar: `Epoch 3/9  ━━━━━━ 32/63 0:00:01 • 0:00:02`. It counts epochs from 0 to the last one.
_RICH = re.compile(r"^\s*Epoch (\d{1,9})/(\d{1,9})\s+[━╸╺]{3,300}\s+(\d{1,12})/(\d{1,12})(?!\d)")


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


@dataclass(frozen=True, slots=True)
class RichBar:
    """The bar of an epoch; `share` is of the whole training."""

    epoch: int
    epochs: int
    share: float


def parse_rich_bar(text: str) -> RichBar | None:
    match = _RICH.match(text) if "━" in text else None
    if match is None:
        return None
    epoch, last, done, total = map(int, match.groups())
    if epoch > last or not 0 <= done <= total or not total:
        return None
    return RichBar(epoch, last + 1, 100 * (epoch + done / total) / (last + 1))


def is_other_bar(text: str) -> bool:
    """Whether a line with a bar is of a download or of the preparation of data."""
    before, sign, after = text.partition("%|")
    return bool(sign) and (OTHER_WORK.search(before) is not None or _OTHER_RATE.search(after) is not None)


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
        if _OTHER_RATE.search(bar.rest):
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
