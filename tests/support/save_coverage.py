"""A pytest plugin for `make coverage`: a worker saves what it has measured when its last test has ended.

Saved at the exit of the process, as coverage does by itself, the data of a whole run may be lost: the worker is killed
if its exit takes longer than ten seconds.
"""

from __future__ import annotations

import coverage
import pytest


def pytest_sessionfinish(session: pytest.Session) -> None:
    current = coverage.Coverage.current()
    if current is not None and hasattr(session.config, "workerinput"):
        current.stop()
        current.save()
