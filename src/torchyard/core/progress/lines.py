"""What the lines of a training's log report: progress bars, counts of steps and epochs, and metrics.

The shapes: `Train Epoch: 1 [640/60000 (1%)] loss=0.3` of PyTorch's examples, the bars of tqdm and Lightning, the
dictionaries of Transformers, and plain `epoch=3 loss=0.3`. A percentage alone is no progress: an accuracy is printed
the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchyard.api.objects import Object
from torchyard.core.run.metrics import parse_metrics
from torchyard.core.run.progress import TrainingProgress, parse_progress

MAX_METRICS = 32
_MAX_NAME, _MAX_LINE, _MAX_SEGMENTS = 64, 1024, 8
MAX_REMAINING = 2**31 - 1  # seconds; the field is an int32
# Counts have at most 12 digits: a program may print any number, and a larger one overflows a float or a timedelta.
# `Epoch 3:  45%|####    | 9/20 [00:03<00:04, 2.9it/s, loss=0.3]`
_BAR = re.compile(
    r"^(?P<label>[^|]{0,200}?)(?<![\d.])(?P<percent>\d{1,3})%\|[^|]{0,300}\|\s*"
    r"(?P<done>\d{1,12})/(?P<total>\d{1,12})(?!\d)(?:\s*\[(?P<elapsed>[\d:]{1,20})<(?P<left>[\d:]{1,20}(?![\d:]))?)?"
)
_EPOCH = re.compile(
    r"\bepochs?\b[\"']?[\s:=#\[(]*[\"']?(\d{1,12}(?:\.\d+)?)(?!\d)(?:\s*(?:/|\bof\b)\s*(\d{1,12})(?!\d))?",
    re.IGNORECASE,
)
_TRAINING_BAR = re.compile(r"train|epoch|step|iter|fit|batch|progress|optimi[sz]", re.IGNORECASE)
# Words before a count or a bar that is not the training's.
_OTHER_WORK = re.compile(r"\b(?:val|valid|validat\w*|eval\w*|test\w*|predict\w*|sanity|infer\w*)\b", re.IGNORECASE)
# A line has metrics if one of its names has one of these words.
_is_metric_word = re.compile(
    r"loss|acc|accuracy|lr|rate|epochs?|steps?|perplexity|ppl|f1|precision|recall|auc|mse|mae|rmse|reward|norm|error|"
    r"bleu|rouge|iou|map|throughput|score|dice|wer|cer|top1|top5|r2|samples|tokens",
    re.IGNORECASE,
).fullmatch
_SPLIT = re.compile(r"[_/.\-]|(?<=[a-z])(?=[A-Z])")
# Numbers of a line that are no measure of the training.
_NO_METRICS = frozenset({"v_num", "rank", "local_rank", "world_size", "pid", "port", "seed", "version", "num_workers"})
_EPOCHS_OPTION = re.compile(r"(?<![\w-])--(?:[\w-]{0,40}[-_])?epochs[= ](\d{1,12})\b")


def epochs_of(container: Object) -> int | None:
    """The number of epochs that the command of a container names, such as `--epochs 10`."""
    option = _EPOCHS_OPTION.search(" ".join([*(container.get("command") or ()), *(container.get("args") or ())]))
    return int(option[1]) or None if option else None


@dataclass(frozen=True, slots=True)
class LineReport:
    """`percent` is of the whole training where the number of epochs is known, else of the epoch."""

    percent: float | None = None
    remaining: int | None = None
    metrics: dict[str, str] = field(default_factory=dict)


class LineParser:
    """Parses the lines of one container, in order. `epochs` is the number of epochs, if it is known."""

    def __init__(self, epochs: int | None = None) -> None:
        self._epochs = epochs
        self._counts_from_zero = False
        self._bar_total = 0
        self._start: tuple[float, float] | None = None  # percent and time of the first report

    def parse(self, line: str, at: float) -> LineReport | None:
        """What a line that was printed at this time reports; None if it reports nothing."""
        metrics: dict[str, str] = {}
        percent: float | None = None
        remaining: int | None = None
        # A bar is redrawn after a carriage return: the last drawing counts.
        segments = [segment for segment in line.split("\r") if segment.strip()]
        for segment in segments[-_MAX_SEGMENTS:]:
            text = segment[:_MAX_LINE]
            bar = _BAR.match(text) if "%|" in text else None
            if bar is not None:
                if not self._is_of_training(bar):
                    continue
                percent = self._bar_percent(bar)
                remaining = _seconds(bar["left"]) if self._is_of_whole(bar) else None
            else:
                stated = self._stated_percent(text)
                if stated is not None:
                    percent, remaining = stated, None
            metrics |= metrics_of(text)
        if percent is None and not metrics:
            return None
        if percent is not None and remaining is None:
            remaining = self._estimate(percent, at)
        return LineReport(percent, None if remaining is None else min(remaining, MAX_REMAINING), metrics)

    def _is_of_training(self, bar: re.Match[str]) -> bool:
        label = bar["label"].strip(" :\t")
        if label and (not _TRAINING_BAR.search(label) or _OTHER_WORK.search(label)):
            return False
        total = int(bar["total"])
        # An evaluation between the steps of a training has a bar of its own, without a label and shorter.
        if total < self._bar_total and not label:
            return False
        self._bar_total = total
        return total > 0

    def _is_of_whole(self, bar: re.Match[str]) -> bool:
        return _EPOCH.search(bar["label"]) is None

    def _bar_percent(self, bar: re.Match[str]) -> float:
        share = min(100 * int(bar["done"]) / int(bar["total"]), 100.0)
        return self._whole(share, _EPOCH.search(bar["label"]))

    def _stated_percent(self, text: str) -> float | None:
        epoch = _EPOCH.search(text) if "poch" in text or "POCH" in text else None
        self._note(epoch)
        stated = parse_progress(text)
        if stated is not None:
            return None if _is_of_other_work(text) else self._of_stated(stated, epoch)
        if epoch is not None and self._epochs and not _OTHER_WORK.search(text[: epoch.start()]):
            done = float(epoch[1])
            if "." not in epoch[1]:  # the number of an epoch that has ended; a fraction is the progress itself
                done += self._counts_from_zero
            return min(100 * done / self._epochs, 100.0)
        return None

    def _of_stated(self, stated: TrainingProgress, epoch: re.Match[str] | None) -> float:
        return stated.percent if stated.epoch is None else self._whole(stated.percent, epoch)

    def _note(self, epoch: re.Match[str] | None) -> None:
        if epoch is None:
            return
        if epoch[2] is not None and int(epoch[2]) > 0:
            self._epochs = int(epoch[2])
        if epoch[1] == "0":
            self._counts_from_zero = True

    def _whole(self, share: float, epoch: re.Match[str] | None) -> float:
        """The share of the training, from the share of an epoch."""
        self._note(epoch)
        if epoch is None or not self._epochs:
            return share
        before = int(float(epoch[1])) - (0 if self._counts_from_zero else 1)
        return max(0.0, min(100.0, (100 * before + share) / self._epochs))

    def _estimate(self, percent: float, at: float) -> int | None:
        """The time that is left at the speed since the first report."""
        if self._start is None or percent < self._start[0]:
            self._start = percent, at
        first, since = self._start
        if percent >= 100:
            return 0
        return None if percent <= first or at <= since else round((100 - percent) * (at - since) / (percent - first))


def metrics_of(text: str) -> dict[str, str]:
    """The metrics of a line that names at least one that trainings have, as texts."""
    named = {name: value for name, value in parse_metrics(text).items() if name.lower() not in _NO_METRICS}
    if not any(_is_metric(name) for name in named):
        return {}
    return {name: f"{value:.6g}" for name, value in named.items() if len(name) <= _MAX_NAME}


def merged_metrics(before: dict[str, str], new: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The last value of every name; further names are left out beyond `MAX_METRICS`."""
    merged = dict(before)
    for name, value in new:
        if name in merged or len(merged) < MAX_METRICS:
            merged[name] = value
    return merged


def _is_metric(name: str) -> bool:
    return any(_is_metric_word(part) for part in _SPLIT.split(name))


def _is_of_other_work(text: str) -> bool:
    """Whether the line begins with the name of an evaluation: `validation step 5/10`."""
    first = re.search(r"\d", text)
    return first is not None and _OTHER_WORK.search(text[: first.start()]) is not None


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
