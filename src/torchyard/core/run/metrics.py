"""The metrics that a training prints: the last value of every name, from its log lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = r"[-+]?(?:\d+\.\d*|\.?\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)"
_SOURCE_FILE = r"[\w./-]{0,100}\.(?:py|cc|cpp|cu|h)\b"  # of a log line: `run.py:766]`
# The first letter is tested before the lookaheads, and those are bounded: the time must be linear in a line's length.
# `loss=0.25`, `loss: 0.25`, `"val_loss": 2.5e-1`, `'loss': '0.25'`, `accuracy = 91.5%`; not `12:30:00` or `v1=`
_METRIC = re.compile(
    rf"(?<![\w./:-])[\"']?(?P<name>(?=[A-Za-z_])(?!is\b)(?!{_SOURCE_FILE})[A-Za-z_][A-Za-z0-9_/.-]*)[\"']?\s*[:=]\s*"
    rf"[\"']?(?P<value>{_NUMBER})(?P<percent>\s?%)?"
    r"(?!\d|\.\d|[\w:/.-]*[A-Za-z_:/])",
    re.IGNORECASE,
)
_MAX_NAMES = 100


def parse_metrics(line: str) -> dict[str, float]:
    """The named numbers of a line. A percentage keeps its number."""
    return {match["name"]: float(match["value"]) for match in _METRIC.finditer(line)}


def last_metrics(lines: Iterable[str]) -> dict[str, float]:
    """The last value of every name, in the order in which the names appear; at most a hundred names."""
    metrics: dict[str, float] = {}
    for line in lines:
        for name, value in parse_metrics(line).items():
            if name in metrics or len(metrics) < _MAX_NAMES:
                metrics[name] = value
    return metrics
