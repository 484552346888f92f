"""The table of `docs/queues.md` about a tree of cohorts, executed step by step."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.queues import QueueSimulation, flavor, group, local, queue, quota, workload

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "queues.md"
_ROW = re.compile(
    r"^\| (?P<verb>create|finish) (?P<name>\w+) \| (?P<queue>\w+) \| (?P<cpus>\d*) ?\| (?P<running>[^|]+) \|",
    re.MULTILINE,
)
_NODE = re.compile(r"(?P<name>\w+) +(?P<cpus>\d+) cpus +(?P<kind>Cohort|ClusterQueue)")
_PARENTS = {"company": "", "research": "company", "vision": "research", "speech": "research", "product": "company"}


def test_table_shows_what_the_scheduler_does() -> None:
    page = _PAGE.read_text()
    sim = QueueSimulation(flavor(), {"metadata": {"name": "research"}, "spec": {"parentName": "company"}})
    for node in _NODE.finditer(page):
        name, cpus = node["name"], node["cpus"]
        if node["kind"] == "Cohort":
            quotas = [group(("default", [quota("cpu", cpus)]))]
            sim.put({"metadata": {"name": name}, "spec": {"parentName": _PARENTS[name], "resourceGroups": quotas}})
        else:
            reclaim = {"reclaimWithinCohort": "Any"}
            sim.put(queue(name, cpu=cpus, cohort=_PARENTS[name], preemption=reclaim), local(name, name))
    rows = list(_ROW.finditer(page))
    assert len(rows) == 6
    for number, row in enumerate(rows):
        if row["verb"] == "create":
            sim.put(workload(row["name"], cpu=row["cpus"], queue=row["queue"], at=number))
        else:
            sim.finish(row["name"])
        sim.run_until_idle()
        assert sim.reserving() == set(row["running"].split(", ")), row[0]
