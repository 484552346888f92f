"""`kill -9` of the plane while jobs run: each ends as it would have, no pod is made twice, events stay few."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from tests.chaos import fates
from tests.chaos.forked import ForkedYard
from tests.chaos.kubelet import Kubelet
from tests.support.effort import rounds
from tests.support.process import free_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

KILLS = rounds(6, 200)
EACH = rounds(8, 25)  # Jobs, and as many PyTorchJobs


def test_killing_the_plane_repeatedly_does_not_change_how_jobs_end(tmp_path: Path) -> None:
    """The test plays the node, so that every pod's end comes at a moment of its choice."""
    rng = Random(11)
    made = [(fates.JOBS, *fates.job(number)) for number in range(EACH)]
    made += [(fates.TRAININGS, *fates.training(number)) for number in range(EACH)]
    plans = {job["metadata"]["name"]: plan for _, job, plan in made}
    yard = ForkedYard(tmp_path, controllers="*", port=free_port())
    server = yard.start()
    kubelet = Kubelet(server.admin, plans, rng)
    kubelet.start()
    waiting = [(path, job) for path, job, _ in made]
    try:
        for _ in range(KILLS):
            waiting = [one for one in waiting if not fates.send(server.admin, *one)]
            kubelet.allow(1 + 5 * EACH // KILLS)
            time.sleep(rng.uniform(0.01, 0.4))
            yard.kill()
            server = yard.start()
            assert not kubelet.fault, kubelet.fault
        waiting = [one for one in waiting if not fates.send(server.admin, *one)]
        assert not waiting
        kubelet.allow(10**6)
        eventually(lambda: fates.are_over(server.admin), "the end of all jobs", seconds=120)
        time.sleep(1)  # the last events are written after the last status
        fates.judge(server.admin, plans)
    finally:
        kubelet.stopping.set()
        kubelet.join(30)
        yard.stop()
