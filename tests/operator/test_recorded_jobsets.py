"""The operator on a real API server treats generated JobSets as upstream's manager did there.

The same recordings are compared with the plane in tests/jobset. Full effort only.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.jobset.cases import random_cases, restart_job_cases
from tests.jobset.record import load
from tests.jobset.run_cases import refused
from tests.jobset.test_recorded import OTHER_REFUSALS, compare
from tests.support.effort import FULL
from tests.support.kubernetes import Server
from tests.support.operator import Installed, running

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not FULL, reason="hundreds of objects on a real API server: TORCHYARD_TESTS=full"),
]
_BATCH = 43
_UPSTREAM = load()


@pytest.mark.parametrize("part", range(4))
async def test_generated_jobsets(installed: Installed, kube: Server, part: int) -> None:
    cases = random_cases()[part * _BATCH : (part + 1) * _BATCH]
    async with running(installed, webhook=True):
        await asyncio.to_thread(compare, kube, cases, _UPSTREAM["random"], f"p{part}-")


async def test_jobsets_that_restart_single_jobs(installed: Installed, kube: Server) -> None:
    async with running(installed, webhook=True):
        await asyncio.to_thread(compare, kube, restart_job_cases(), _UPSTREAM["restart-job"], "restart-")


async def test_refused_jobsets(installed: Installed, kube: Server) -> None:
    async with running(installed, webhook=True):
        answers = await asyncio.to_thread(refused, kube.admin, "refused-jobsets")
    differing = {name: (_UPSTREAM["refusals"][name], answer) for name, answer in answers.items()}
    differing = {name: pair for name, pair in differing.items() if pair[0] != pair[1]}
    # The server itself refuses the name before the schema is checked, beside upstream's webhook and beside ours.
    assert differing.keys() == OTHER_REFUSALS.keys() - {"name with capitals"}, json.dumps(differing, indent=1)
