"""What the lines of a training's log report: progress bars, counts of steps and epochs, and metrics.

The shapes: `Train Epoch: 1 [640/60000 (1%)] loss=0.3` of PyTorch's examples, the bars of tqdm and Lightning, the
dictionaries of Transformers, and plain `epoch=3 loss=0.3`. A percentage alone is no progress: an accuracy is printed
the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from torchyard.api.escapes import without_escapes
from torchyard.api.objects import Object
from torchyard.core.progress.bars import OTHER_WORK, Bar, BarNest, is_other_bar, parse_bar, parse_rich_bar
from torchyard.core.run.metrics import parse_training_metrics
from torchyard.core.run.progress import parse_progress

MAX_METRICS = 32
_MAX_NAME, _MAX_LINE, _MAX_SEGMENTS = 64, 1024, 8
_MAX_DRAWINGS = 1 << 16  # characters at the end of a line with redrawn bars
MAX_REMAINING = 2**31 - 1  # seconds; the field is an int32
_EPOCH = re.compile(
    r"(?:\bepochs?\b[\"']?[\s:=#\[(]*[\"']?|\bTrain: (?=\d{1,12} \[))"  # `Train: 2 [ 600/1251 ( 48%)]` of timm
    r"(\d{1,12}(?:\.\d+)?)(?!\d)(?:\s*(?:/|\bof\b)\s*(\d{1,12})(?!\d))?",
    re.IGNORECASE,
)
# Around the number of an epoch that only begins: nothing but punctuation, and no word of its end before.
_is_beginning = re.compile(r"\W*(?:(?:start|begin|began|begun)\w*\W*)?", re.IGNORECASE).fullmatch
_END = re.compile(r"\b(?:finish\w*|complet\w*|done|end\w*|after)\b", re.IGNORECASE)
# A line has metrics if one of its names has one of these words.
_is_metric_word = re.compile(
    r"loss|acc|accuracy|lr|rate|epochs?|steps?|perplexity|ppl|f1|precision|recall|auc|mse|mae|rmse|reward|norm|error|"
    r"bleu|rouge|iou|map|throughput|score|dice|wer|cer|top1|top5|r2|samples|tokens",
    re.IGNORECASE,
).fullmatch
_SPLIT = re.compile(r"[_/.\-]|(?<=[a-z])(?=[A-Z])")
# Numbers of a line that are no measure of the training.
_NO_METRICS = frozenset(
    {"v_num", "rank", "local_rank", "world_size", "pid", "port", "seed", "version", "num_workers", "eta"}
)
_find_digit = re.compile(r"\d").search
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
        self._ended: float | None = None  # epochs, where lines say which one it is, and of how many
        self._bars = BarNest()
        self._start: tuple[float, float] | None = None  # percent and time of the first report

    def parse(self, line: str, at: float) -> LineReport | None:
        """What a line that was printed at this time reports; None if it reports nothing."""
        metrics: dict[str, str] = {}
        percent: float | None = None
        remaining: int | None = None
        for segment in _drawings(line):
            text = without_escapes(segment[: 4 * _MAX_LINE])[:_MAX_LINE]
            if rich := parse_rich_bar(text):
                self._epochs, self._ended, self._counts_from_zero = rich.epochs, float(rich.epoch), True
                percent, remaining = rich.share, None
                metrics |= metrics_of(text)
                continue
            bar = parse_bar(text)
            if bar is not None:
                share = self._bar_percent(bar)
                if share is None:
                    continue
                percent = share
                remaining = bar.remaining if self._is_of_whole(bar) else None
                metrics |= metrics_of(bar.label) | metrics_of(bar.rest)
                continue
            if is_other_bar(text):
                continue
            named = metrics_of(text)
            stated = self._stated_percent(text, bool(named))
            if stated is not None:
                percent, remaining = stated, None
            metrics |= named
        if percent is None and not metrics:
            return None
        if percent is not None and remaining is None:
            remaining = self._estimate(percent, at)
        return LineReport(percent, None if remaining is None else min(remaining, MAX_REMAINING), metrics)

    def _is_of_whole(self, bar: Bar) -> bool:
        if bar.is_of_epochs:
            return True
        return _EPOCH.search(bar.label) is None and self._ended is None and not self._bars.is_nested

    def _bar_percent(self, bar: Bar) -> float | None:
        """None for a bar of something else than the training."""
        if bar.is_of_epochs and bar.total and not OTHER_WORK.search(bar.label):
            self._epochs, self._ended = bar.total, float(bar.done)
            return bar.share
        share = self._bars.share(bar)
        return None if share is None else self._whole(share, _EPOCH.search(bar.label))

    def _stated_percent(self, text: str, has_metrics: bool) -> float | None:
        epoch = _EPOCH.search(text) if "poch" in text or "POCH" in text or "Train: " in text else None
        if epoch is not None and OTHER_WORK.search(text[: epoch.start()]):
            return None
        self._note(epoch)
        stated = parse_progress(text)
        if stated is not None and (epoch is None or epoch[2] is None or stated.epoch is not None):
            return None if _is_of_other_work(text) else self._whole(stated.percent, epoch)
        if epoch is None or not self._epochs:
            return None
        ended = float(epoch[1])
        if "." not in epoch[1]:  # a fraction is the progress itself
            begins = not has_metrics and _is_beginning(text[epoch.end() :]) and not _END.search(text[: epoch.start()])
            ended += self._counts_from_zero - bool(begins)
            self._ended = max(ended, 0.0)
        return max(0.0, min(100 * ended / self._epochs, 100.0))

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
        if not self._epochs or (epoch is None and self._ended is None):
            return share
        if epoch is None:
            return max(0.0, min(100.0, (100 * (self._ended or 0.0) + share) / self._epochs))
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


def _drawings(line: str) -> list[str]:
    """A bar is redrawn after a carriage return: the last drawings count."""
    if "\r" not in line:
        return [line]
    if len(line) > _MAX_DRAWINGS:
        line = line[-_MAX_DRAWINGS:].partition("\r")[2]  # the first one is cut
    return [segment for segment in line.split("\r") if segment.strip()][-_MAX_SEGMENTS:]


def metrics_of(text: str) -> dict[str, str]:
    """The metrics of a line that names at least one that trainings have, as texts."""
    named = parse_training_metrics(text)
    if not any([_is_metric(name) for name in named]):  # noqa: C419 - a generator takes longer
        return {}
    return {
        name: f"{value:.6g}"
        for name, value in named.items()
        if len(name) <= _MAX_NAME and name.lower() not in _NO_METRICS
    }


def merged_metrics(before: dict[str, str], new: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The last value of every name; further names are left out beyond `MAX_METRICS`."""
    merged = dict(before)
    for name, value in new:
        if name in merged or len(merged) < MAX_METRICS:
            merged[name] = value
    return merged


@lru_cache(maxsize=512)  # the lines of a log have the same names
def _is_metric(name: str) -> bool:
    return name.lower() not in _NO_METRICS and any(_is_metric_word(part) for part in _SPLIT.split(name))


def _is_of_other_work(text: str) -> bool:
    """Whether the line begins with the name of an evaluation: `validation step 5/10`."""
    first = _find_digit(text)
    return first is not None and _names_other_work(text[: first.start()])


@lru_cache(maxsize=512)  # the lines of a log begin alike
def _names_other_work(text: str) -> bool:
    return OTHER_WORK.search(text) is not None
