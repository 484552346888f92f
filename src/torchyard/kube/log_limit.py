"""A limit on repeated log lines: what fails a thousand times a second is logged once a second, with a count.

Lines are the same if they come from one logging call with one kind of exception; their values may differ.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

# Of the same line, so many at once, and then so many a second: problems, and the record of ordinary work.
_PROBLEM_BURST, _PROBLEMS_PER_SECOND = 50.0, 1.0
_INFO_BURST, _INFOS_PER_SECOND = 1000.0, 50.0
# So many different lines are counted; beyond that, the one that was logged the longest time ago is forgotten.
_MAX_LINES = 1000

_LineKey = tuple[str, int, str, str]


@dataclass(slots=True)
class _Repetition:
    tokens: float
    at: float
    suppressed: int = 0


class LogLimit(logging.Filter):
    """A filter of a handler. The next line that passes says how many were suppressed before it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._repetitions: OrderedDict[_LineKey, _Repetition] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        is_problem = record.levelno >= logging.WARNING
        burst, rate = (_PROBLEM_BURST, _PROBLEMS_PER_SECOND) if is_problem else (_INFO_BURST, _INFOS_PER_SECOND)
        repetition = self._repetition(_key(record), burst)
        now = self._clock()
        repetition.tokens = min(burst, repetition.tokens + (now - repetition.at) * rate)
        repetition.at = now
        if repetition.tokens < 1:
            repetition.suppressed += 1
            return False
        repetition.tokens -= 1
        if repetition.suppressed:
            record.msg, record.args = f"{record.getMessage()} suppressed={repetition.suppressed}", ()
            repetition.suppressed = 0
        return True

    def _repetition(self, key: _LineKey, burst: float) -> _Repetition:
        repetition = self._repetitions.get(key)
        if repetition is None:
            repetition = self._repetitions[key] = _Repetition(burst, self._clock())
            if len(self._repetitions) > _MAX_LINES:
                self._repetitions.popitem(last=False)
        self._repetitions.move_to_end(key)
        return repetition


def _key(record: logging.LogRecord) -> _LineKey:
    raised = record.exc_info[0] if record.exc_info else None
    return record.pathname, record.lineno, record.levelname, raised.__name__ if raised else ""


def limit_repeated_lines() -> None:
    """Limit the lines of every handler of the root logger. Call this after logging is configured."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
