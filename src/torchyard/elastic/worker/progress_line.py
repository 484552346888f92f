"""Prints how far the training is, for the readers of its pods' logs.

Only in pods, where the job shows it: a program on a terminal prints what it wants to. A line every few seconds of the
first worker, as others of a log: `elastic: step 90/200 loss=0.25 records=2880`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping

from torchyard.elastic.coordinator.event_line import is_in_pod
from torchyard.elastic.sampler import StepSampler

_INTERVAL = 5.0


class ProgressPrinter:
    """Prints the first step, the last one, and one in `_INTERVAL` seconds."""

    def __init__(
        self, environment: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_in_pod = is_in_pod(environment)
        self._clock = clock
        self._printed: float | None = None

    def applied(self, step: int, sampler: StepSampler, loss: float, rank: int) -> None:
        if not self._is_in_pod or rank != 0:
            return
        now, steps = self._clock(), sampler.steps
        if self._printed is not None and now - self._printed < _INTERVAL and step < steps:
            return
        self._printed = now
        records = sampler.records_until(step)
        sys.stderr.write(f"elastic: step {step}/{steps} loss={loss:.6g} records={records}\n")
        sys.stderr.flush()
