"""The table of `docs/queues.md` about a tree of cohorts, executed step by step."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

from tests.support.queues import QueueSimulation, flavor, group, local, queue, quota, workload

from torchyard.core.queue.kueue_configuration import load_queue_settings

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "queues.md"
_ROW = re.compile(
    r"^\| (?P<verb>create|finish) (?P<name>\w+) \| (?P<queue>\w+) \| (?P<cpus>\d*) ?\| (?P<running>[^|]+) \|",
    re.MULTILINE,
)
_NODE = re.compile(r"(?P<name>\w+) +(?P<cpus>\d+) cpus +(?P<kind>Cohort|ClusterQueue)")
_PARENTS = {"company": "", "research": "company", "vision": "research", "speech": "research", "product": "company"}


_FAIR_NODE = re.compile(r"(?P<name>\w+) +(?P<cpus>\d+) cpus +ClusterQueue(?:, weight (?P<weight>\d+))?")


def _section(title: str) -> str:
    return _PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def test_table_shows_what_the_scheduler_does() -> None:
    page = _section("A tree of cohorts")
    sim = QueueSimulation(flavor(), {"metadata": {"name": "research"}, "spec": {"parentName": "company"}})
    for node in _NODE.finditer(page):
        name, cpus = node["name"], node["cpus"]
        if node["kind"] == "Cohort":
            quotas = [group(("default", [quota("cpu", cpus)]))]
            sim.put({"metadata": {"name": name}, "spec": {"parentName": _PARENTS[name], "resourceGroups": quotas}})
        else:
            reclaim = {"reclaimWithinCohort": "Any"}
            sim.put(queue(name, cpu=cpus, cohort=_PARENTS[name], preemption=reclaim), local(name, name))
    _follow(sim, page, rows=6)


def test_table_of_fair_sharing_shows_what_the_scheduler_does() -> None:
    page = _section("Fair sharing")
    sim = QueueSimulation(flavor(), settings=load_queue_settings(page.split("```yaml\n")[1].split("```")[0]))
    assert sim.state.fair_sharing is not None
    for node in _FAIR_NODE.finditer(page):
        name, sharing = node["name"], {"weight": node["weight"] or 1}
        reclaim = {"reclaimWithinCohort": "Any"}
        sim.put(queue(name, cpu=node["cpus"], cohort="lab", preemption=reclaim, fairSharing=sharing), local(name, name))
    _follow(sim, page, rows=7)


def test_configurations_of_the_page_are_valid() -> None:
    texts = [part.split("```")[0] for part in _PAGE.read_text().split("```yaml\n")[1:]]
    configurations = [text for text in map(dedent, texts) if "kind: Configuration" in text]
    assert len(configurations) == 3
    for text in configurations:
        load_queue_settings(text)


def _follow(sim: QueueSimulation, page: str, *, rows: int) -> None:
    steps = list(_ROW.finditer(page))
    assert len(steps) == rows
    for number, row in enumerate(steps):
        if row["verb"] == "create":
            sim.put(workload(row["name"], cpu=row["cpus"], queue=row["queue"], at=number))
        else:
            sim.finish(row["name"])
        sim.run_until_idle()
        assert sim.reserving() == set(row["running"].split(", ")), row[0]
