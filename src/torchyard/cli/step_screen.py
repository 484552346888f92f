"""A screen that notices the first step of a training."""

from __future__ import annotations

import asyncio

from torchyard.cli.screen import Replica, Screen
from torchyard.core.run.line_splitter import LogLine
from torchyard.core.run.metrics import parse_metrics
from torchyard.core.run.progress import parse_progress


class StepScreen:
    """Passes everything on to another screen. `step` is set by the first line with progress or a metric."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.step = asyncio.Event()
        self.line = ""

    def note(self, text: str) -> None:
        self._screen.note(text)

    def log(self, replica: str, line: LogLine) -> None:
        self._screen.log(replica, line)
        if not self.step.is_set() and (parse_progress(line.text) or parse_metrics(line.text)):
            self.line = line.text
            self.step.set()

    def show(self, state: str, replicas: list[Replica], progress: str = "", *, job: str = "") -> None:
        self._screen.show(state, replicas, progress, job=job)

    def close(self) -> None:
        self._screen.close()
