"""Prints the coordinator's events in pods, where whoever may read the log sees what the job went through.

One line for each: `elastic: WorkerLost worker-1 died [step 40, detect_ms 3.2]`. The console reads workers over time,
recoveries and checkpoints from these lines: the coordinator's port needs the job's token, which viewers do not have.
Facts have no `=` and no `:` in front of a number, so that they are not taken for metrics of the training.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

_LONGEST_MESSAGE = 300


def is_in_pod(environment: Mapping[str, str] = os.environ) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environment and "TORCHYARD_ELASTIC_JOB" in environment


def event_line(reason: str, message: str, facts: Mapping[str, Any]) -> str:
    """The line of an event, with the facts that are a number or a word; of members, only how many there are."""
    first = " ".join(message.split("\n", 1)[0].split())[:_LONGEST_MESSAGE]
    if "members" in facts:
        facts = {"workers": len(facts["members"]), **facts}
    pairs = [f"{name} {_text(value)}" for name, value in facts.items() if _is_short(value)]
    return f"elastic: {reason} {first}" + (f" [{', '.join(pairs)}]" if pairs else "")


def print_event(reason: str, message: str, facts: Mapping[str, Any]) -> None:
    if is_in_pod():
        sys.stderr.write(f"{event_line(reason, message, facts)}\n")
        sys.stderr.flush()


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= 80 and value.isprintable() and not set(value) & set(",[]")
    return isinstance(value, int | float)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else str(value)
