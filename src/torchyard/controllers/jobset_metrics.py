"""Counters of ended JobSets, with upstream's names, in the text format of Prometheus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from torchyard.api.jobset import messages

_NAMES = {messages.FAILED: "failed", messages.COMPLETED: "completed"}


class JobSetMetrics:
    def __init__(self) -> None:
        self._ended: Counter[tuple[str, str, str]] = Counter()

    def ended(self, condition: str, namespace: str, name: str) -> None:
        self._ended[condition, namespace, name] += 1

    @classmethod
    def merged(cls, parts: Iterable[JobSetMetrics]) -> JobSetMetrics:
        """The metrics of several controllers as one: in a text each metric may appear only once."""
        merged = cls()
        for part in parts:
            merged._ended.update(part._ended)
        return merged

    def text(self) -> bytes:
        lines: list[str] = []
        for condition, word in _NAMES.items():
            metric = f"jobset_{word}_total"
            lines += [f"# HELP {metric} The total number of {word} JobSets", f"# TYPE {metric} counter"]
            for (ended, namespace, name), count in sorted(self._ended.items()):
                if ended == condition:
                    labels = f"jobset_name={json.dumps(name)},namespace={json.dumps(namespace)}"
                    lines.append(f"{metric}{{{labels}}} {count}")
        return "\n".join([*lines, ""]).encode()
