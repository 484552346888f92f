"""A pytest plugin for the second run of failed tests: it writes the tests that pass now into a file.

Such a test depends on timing or on another test. `make test` prints the file at its end.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--flaky-file", type=Path, help="append the names of the tests that pass to this file")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--flaky-file")
    if path is not None:
        config.pluginmanager.register(FlakyRecorder(path), "flaky-recorder")


class FlakyRecorder:
    """Collects the outcome of every phase of a test; writes the tests of which no phase failed and the call passed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self._passed[report.nodeid] = report.passed and self._passed.get(report.nodeid, True)

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.writelines(f"{name}\n" for name, passed in self._passed.items() if passed)
