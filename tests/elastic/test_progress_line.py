"""The line by which the job of an elastic training shows its progress."""

from __future__ import annotations

import pytest

from torchyard.core.progress.lines import LineParser
from torchyard.elastic.coordinator.event_line import event_line
from torchyard.elastic.sampler import StepSampler
from torchyard.elastic.worker.progress_line import ProgressPrinter

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "TORCHYARD_ELASTIC_JOB": "mnist"}


def test_the_first_worker_prints_the_first_step_one_in_five_seconds_and_the_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    printer = ProgressPrinter(POD, lambda: now[0])
    sampler = StepSampler(records=128, micro_size=16, micro_batches=2, epochs=1)
    for at, step in ((0.0, 1), (1.0, 2), (5.0, 3), (6.0, 4)):
        now[0] = at
        printer.applied(step, sampler, 1 / step, 0)
        printer.applied(step, sampler, 1 / step, 1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "elastic: step 1/4 loss=1 records=32",
        "elastic: step 3/4 loss=0.333333 records=96",
        "elastic: step 4/4 loss=0.25 records=128",
    ]
    report = LineParser().parse(lines[1], 0.0)
    assert report is not None
    assert (report.percent, report.metrics) == (75.0, {"loss": "0.333333", "records": "96"})


@pytest.mark.parametrize("missing", POD)
def test_outside_of_pods_nothing_is_printed(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    sampler = StepSampler(records=8, micro_size=2, micro_batches=1, epochs=1)
    ProgressPrinter({name: value for name, value in POD.items() if name != missing}).applied(1, sampler, 1.0, 0)
    assert capsys.readouterr().err == ""


def test_events_are_lines_that_are_no_metrics_and_no_progress() -> None:
    facts = {
        "generation": 2,
        "members": ["a", "b"],
        "urgent": True,
        "agree_ms": 3.14159265,
        "restore": "",
        "behind": [],
        "traceback": "x\ny",
    }
    line = event_line("WorldBegan", "2 workers from step 40: a died\nmore", facts)
    assert line == (
        "elastic: WorldBegan 2 workers from step 40: a died [workers 2, generation 2, urgent true, agree_ms 3.14159]"
    )
    assert LineParser().parse(line, 0.0) is None
    assert event_line("WorkerJoined", "a joined", {}) == "elastic: WorkerJoined a joined"


def test_the_records_of_a_step_are_counted_over_epochs() -> None:
    sampler = StepSampler(records=10, micro_size=2, micro_batches=2, epochs=2)
    assert [sampler.records_until(step) for step in range(-1, 8)] == [0, 0, 4, 8, 10, 14, 18, 20, 20]
