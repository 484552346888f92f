"""Reports about pending pods give way to other work of the event loop, and are written once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from torchyard.api.objects import Object
from torchyard.api.pod import scheduler_messages as messages
from torchyard.controllers.scheduler_writes import SchedulerWrites, report_pause
from torchyard.core.scheduling.queue import SchedulingQueue
from torchyard.core.scheduling.schedule import Unschedulable

NO_CPU = Unschedulable("no room", reasons=frozenset((messages.insufficient("cpu"),)))


@pytest.mark.parametrize(
    ("delay", "spent", "pause"),
    [
        pytest.param(0.0, 0.01, 0.0, id="idle"),
        pytest.param(0.002, 0.01, 0.0, id="nearly idle"),
        pytest.param(0.01, 0.01, 0.09, id="busy"),
        pytest.param(0.01, 10.0, 0.5, id="blocked"),
    ],
)
def test_reports_take_a_tenth_of_the_time_of_a_busy_loop(delay: float, spent: float, pause: float) -> None:
    assert report_pause(delay, spent) == pytest.approx(pause)


def _pod(number: int, message: str = "") -> Object:
    metadata = {"name": f"p-{number}", "uid": f"p-{number}", "namespace": "n", "creationTimestamp": "2026-01-01"}
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    container = {"name": "c", "resources": {"requests": {"cpu": "8"}}}
    status = {"conditions": [condition]} if message else {}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": status}


def test_pods_that_have_their_answer_are_skipped() -> None:
    """As after a restart beside many waiting pods."""
    queue = SchedulingQueue(lambda _pod: ())
    writes = SchedulerWrites(cast(Any, None), cast(Any, None), cast(Any, None), queue, lambda: datetime.now(UTC))
    for number in range(1000):
        queue.put(_pod(number, "" if number % 400 == 0 else "no room"))
    pod_class = queue.pop()
    assert pod_class is not None
    queue.set_answer(pod_class, NO_CPU)
    names, turns, is_done = [], 0, False
    while not is_done:
        reports, is_done = writes._next_reports()
        names += [pod["metadata"]["name"] for pod, _ in reports]
        turns += 1
    assert names == ["p-0", "p-400", "p-800"]
    assert turns > 1, "other tasks run in between"
