"""The wall clock of a job is set forward and back by hours: leases, timers and the model do not depend on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.elastic.conftest import Alone
from tests.elastic.test_run import LONG, assert_exactly_once, finish, options
from tests.support import faketime
from tests.support.faketime import FakeClock

from torchyard.elastic.chaos import ChaosJob
from torchyard.elastic.ledger import Ledger

pytestmark = [pytest.mark.train, pytest.mark.skipif(faketime.library() is None, reason=faketime.MISSING)]


def test_no_worker_is_lost_and_the_model_is_the_same(
    tmp_path: Path, alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(tmp_path)
    expected = alone(*LONG)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    job = tmp_path / "job"
    with ChaosJob(options(job, "--hold", str(job / "go"), *LONG)) as chaos:
        step = chaos.wait_step(2)["step"]
        for offset in ("-5h", "+0", "+2d"):  # the last one stays: the events of the end show whether the clock jumped
            clock.set(offset)
            step = chaos.wait_step(step + 20)["step"]
        assert finish(chaos) == expected
    assert_exactly_once(job, epochs=12)
    ledger = Ledger(job / "ledger.db", job=job.name)
    events = ledger.events()
    ledger.close()
    assert [event["message"] for event in events if event["reason"] in ("WorkerLost", "WorkerHung", "Refused")] == []
    times = [event["at"] for event in events]
    assert max(times) - min(times) > 24 * 3600, "the clock of the coordinator did not jump"
