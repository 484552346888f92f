"""The line by which the job of an elastic training shows its progress."""

from __future__ import annotations

import pytest

from torchyard.core.progress.lines import LineParser
from torchyard.elastic.worker.progress_line import ProgressPrinter

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "TORCHYARD_ELASTIC_JOB": "mnist"}


def test_the_first_worker_prints_the_first_step_one_in_five_seconds_and_the_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    printer = ProgressPrinter(POD, lambda: now[0])
    for at, step in ((0.0, 1), (1.0, 2), (5.0, 3), (6.0, 4)):
        now[0] = at
        printer.applied(step, 4, 1 / step, 0)
        printer.applied(step, 4, 1 / step, 1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["elastic: step 1/4 loss=1", "elastic: step 3/4 loss=0.333333", "elastic: step 4/4 loss=0.25"]
    report = LineParser().parse(lines[1], 0.0)
    assert report is not None
    assert (report.percent, report.metrics) == (75.0, {"loss": "0.333333"})


@pytest.mark.parametrize("missing", POD)
def test_outside_of_pods_nothing_is_printed(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    ProgressPrinter({name: value for name, value in POD.items() if name != missing}).applied(1, 4, 1.0, 0)
    assert capsys.readouterr().err == ""
