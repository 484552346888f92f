"""How long a worker waits for a coordinator that does not answer, and what it prints meanwhile.

A worker that has taken part in the job waits for the next coordinator for ever: it may hold the newest state. A worker
that comes when the job is over has nothing to wait for, but cannot know that: the coordinator has ended with the job.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from torchyard.elastic.errors import ElasticError

JOIN_WITHIN = 600.0
"""As torchrun's `join_timeout`."""
FIRST_LINE_AFTER = 10.0
REPEAT_EVERY = 60.0


class CoordinatorWait:
    """The time since the coordinator has answered last.

    Args:
        address: host and port of the coordinator.
        clock: returns the present time in seconds.
        write_line: prints a line.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        clock: Callable[[], float] = time.monotonic,
        write_line: Callable[[str], object] = lambda line: sys.stderr.write(line + "\n"),
    ) -> None:
        self._address = f"{address[0]}:{address[1]}"
        self._clock = clock
        self._write_line = write_line
        self._answered = False
        self._since: float | None = None
        self._line_due = FIRST_LINE_AFTER

    def answered(self) -> None:
        """The coordinator has sent a message."""
        self._answered, self._since, self._line_due = True, None, FIRST_LINE_AFTER

    def failed(self, error: Exception) -> None:
        """A connection could not be made, or was closed. Raise if the worker has waited for its first one too long."""
        now = self._clock()
        self._since = now if self._since is None else self._since
        seconds, text = now - self._since, str(error) or type(error).__name__
        if seconds >= JOIN_WITHIN and not self._answered:
            raise ElasticError(
                "NoCoordinator",
                f"no coordinator has answered at {self._address} for {seconds:.0f} s: {text}",
                hint="if the job has ended, delete this worker; otherwise check the pod that runs the coordinator",
            )
        if seconds >= self._line_due:
            self._line_due = seconds + REPEAT_EVERY
            self._write_line(f"waiting for the coordinator: address={self._address} seconds={seconds:.0f} error={text}")
