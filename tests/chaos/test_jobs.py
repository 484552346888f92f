"""`kill -9` of the plane while jobs run: each ends as without kills, no pod is created twice, events stay few."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from tests.chaos import expected_results
from tests.chaos.forked import ForkedYard
from tests.chaos.kubelet import Kubelet
from tests.support.effort import rounds
from tests.support.process import free_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

KILLS = rounds(6, 200)
EACH = rounds(8, 25)  # Jobs, and as many PyTorchJobs


def test_killing_the_plane_repeatedly_does_not_change_how_jobs_end(tmp_path: Path) -> None:
    """The test plays the node, so that it decides when each pod ends."""
    rng = Random(11)
    planned_jobs = [(expected_results.JOBS, *expected_results.job(number)) for number in range(EACH)]
    planned_jobs += [(expected_results.TRAININGS, *expected_results.training(number)) for number in range(EACH)]
    plans = {job["metadata"]["name"]: plan for _, job, plan in planned_jobs}
    yard = ForkedYard(tmp_path, controllers="*", port=free_port())
    server = yard.start()
    kubelet = Kubelet(server.admin, plans, rng)
    kubelet.start()
    waiting = [(path, job) for path, job, _ in planned_jobs]
    try:
        for _ in range(KILLS):
            waiting = [item for item in waiting if not expected_results.send(server.admin, *item)]
            kubelet.allow(1 + 5 * EACH // KILLS)
            time.sleep(rng.uniform(0.01, 0.4))
            yard.kill()
            server = yard.start()
            assert not kubelet.fault, kubelet.fault
        waiting = [item for item in waiting if not expected_results.send(server.admin, *item)]
        assert not waiting
        kubelet.allow(10**6)
        eventually(lambda: expected_results.are_over(server.admin), "the end of all jobs", seconds=120)
        time.sleep(1)  # the last events are written after the last status
        expected_results.judge(server.admin, plans)
    finally:
        kubelet.stopping.set()
        kubelet.join(30)
        yard.stop()
