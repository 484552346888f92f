"""The metrics that a training prints: the last value of every name, from its log lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchyard.api.escapes import without_escapes

_THOUSANDS = r"\d{1,3}(?:,\d{3}){1,4}(?!,?\d)"  # `1,000`; the 1 of `1,000/10,000` is no number
_NUMBER = (
    rf"[-+]?(?:\d+\.\d*|\.\d+|\d{{4,}}|{_THOUSANDS}|\d{{1,3}}(?!\d|,\d{{3}}(?!\d)))(?:[eE][-+]?\d+)?"
    r"|[-+]?(?:nan|inf)"
)
_SOURCE_FILE = r"[\w./-]{0,100}\.(?:py|cc|cpp|cu|h)\b"  # of a log line: `run.py:766]`
# The first letter is tested before the lookaheads, and those are bounded: the time must be linear in a line's length.
# `loss=0.25`, `loss: 0.25`, `"val_loss": 2.5e-1`, `'loss': '0.25'`, `accuracy = 91.5%`; not `12:30:00` or `v1=`
_METRIC = re.compile(
    rf"(?<![\w./:-])[\"']?(?P<name>(?=[A-Za-z_])(?!is\b)(?!{_SOURCE_FILE})[A-Za-z_][A-Za-z0-9_/.-]*)[\"']?\s*[:=]\s*"
    rf"[\"']?(?P<value>{_NUMBER})(?P<percent>\s?%)?"
    r"(?!\d|\.\d|[\w:/.-]*[A-Za-z_:/])",
    re.IGNORECASE,
)
# `Loss 2.345e+00`, `train loss 0.5`, `ppl 18.2`, `Acc@1 12.5`: without a sign only these names, and only fractions.
_SPACED = re.compile(
    r"(?<![\w./-])(?P<name>(?:[A-Za-z]{1,20}_)?loss|ppl|perplexity|lr|acc|accuracy|acc@[15])\s{1,20}"
    r"(?P<value>[-+]?\d{0,12}\.\d+(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf))(?![\w.%])",
    re.IGNORECASE,
)
# What is measured from here on in a line: `train loss: 0.5, val loss: 0.6`, `Test set: Average loss: 0.05`.
_MEASURED = re.compile(
    r"(?<![\w/])(?:train(?:ing)?|(?P<other>val|valid|validation|eval|evaluation|test))(?![\w/])", re.IGNORECASE
)
# Without one of these a line is not searched for the above, which takes as long as all the rest.
_SPACED_HINTS = ("loss ", "loss\t", "lr ", "acc ", "acc@", "accuracy ", "ppl ", "perplexity ")
_MAX_NAMES = 100


def parse_metrics(line: str) -> dict[str, float]:
    """The named numbers of a line. A percentage keeps its number."""
    return {name: value for name, value, _ in _metrics(without_escapes(line))}


def parse_training_metrics(line: str) -> dict[str, float]:
    """The same, but those of an evaluation are named after it: `val_loss` for `val loss: 0.6`."""
    line = without_escapes(line)
    has_other = "val" in line or "Val" in line or "est" in line or "VAL" in line or "EST" in line
    if not has_other:
        return {name: value for name, value, _ in _metrics(line)}
    measured = [(match.start(), match["other"]) for match in _MEASURED.finditer(line)]
    metrics = {}
    for name, value, start in _metrics(line):
        other = next((word for at, word in reversed(measured) if at < start), None)
        metrics[f"{other.lower()}_{name}" if other else name] = value
    return metrics


def _metrics(line: str) -> list[tuple[str, float, int]]:
    """Names, values and where they are, in the order of the line."""
    matches = list(_METRIC.finditer(line))
    lower = line.lower()
    if any([hint in lower for hint in _SPACED_HINTS]):  # noqa: C419 - a generator takes three times as long
        matches = sorted([*matches, *_SPACED.finditer(line)], key=lambda match: match.start())
    return [(match["name"], float(match["value"].replace(",", "")), match.start()) for match in matches]


def last_metrics(lines: Iterable[str]) -> dict[str, float]:
    """The last value of every name, in the order in which the names appear; at most a hundred names."""
    metrics: dict[str, float] = {}
    for line in lines:
        for name, value in parse_metrics(line).items():
            if name in metrics or len(metrics) < _MAX_NAMES:
                metrics[name] = value
    return metrics
