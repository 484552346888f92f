"""The queries of alerts and dashboards are valid PromQL, and name metrics that exist."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from typer.main import get_command

from torchyard.api.gvr import JOBS
from torchyard.api.objects import Object
from torchyard.api.trainjob.runtimes import runtimes
from torchyard.cli.main import build_app
from torchyard.controllers.job_metrics import JobStateMetrics
from torchyard.controllers.queue.metrics import QueueMetrics
from torchyard.core.trainjob.jobset import make_jobset
from torchyard.kube.client import Client, Transport
from torchyard.kube.informer import Informer
from torchyard.operator.dashboards import DASHBOARDS, grafana_dashboard
from torchyard.operator.manifests import Installation
from torchyard.operator.metrics import OperatorMetrics
from torchyard.operator.monitoring import ALERTS, RECORDED, Alert, monitoring_objects, rule_groups
from torchyard.operator.settings import LEASE

QUERIES = [
    *RECORDED.values(),
    *(alert.query for alert in ALERTS),
    *(panel.query.replace("$namespace", ".*") for dashboard in DASHBOARDS for panel in dashboard.panels),
]
ELASTIC = (
    *(
        "step",
        "records",
        "world_size",
        "workers_wanted",
        "world_changes_total",
        "reform_seconds_sum",
        "reform_seconds_count",
    ),
    "ledger_commit_seconds_p99",
)


def job(kind: str, name: str, *conditions: str, **more: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": condition, "status": "True"} for condition in conditions], **more}
    return {"kind": kind, "metadata": {"name": name, "namespace": "team", "resourceVersion": "1"}, "status": status}


class _ListedJobs:
    """A transport whose watches list some jobs and then wait."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self._jobs = jobs

    async def watch(self, path: str, *, accept: str = "") -> AsyncGenerator[list[dict[str, Any]], None]:
        end = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
        events = [{"type": "ADDED", "object": job} for job in self._jobs]
        yield [*events, {"type": "BOOKMARK", "object": {"metadata": end}}]
        await asyncio.Event().wait()


def cache(*jobs: dict[str, Any]) -> list[Informer]:
    return [Informer(Client(cast(Transport, _ListedJobs(list(jobs))), manager="test"), JOBS)]


async def test_jobs_are_counted_by_state_and_only_once() -> None:
    owned = job("JobSet", "of-a-trainjob")
    owned["metadata"]["ownerReferences"] = [{"controller": True}]
    caches = {
        "PyTorchJob": cache(
            job("PyTorchJob", "a", "Created", "Running"), job("PyTorchJob", "b", "Failed"), job("PyTorchJob", "c")
        ),
        "JobSet": cache(
            owned,
            job("JobSet", "d", "Completed", terminalState="Completed"),
            job("JobSet", "e", replicatedJobsStatus=[{"name": "w", "active": 1}]),
            job("JobSet", "f", "Suspended"),
        ),
    }
    metrics = JobStateMetrics(caches)
    informers = [informer for (informer,) in caches.values()]
    running = [asyncio.create_task(informer.run()) for informer in informers]
    await asyncio.gather(*(informer.synced.wait() for informer in informers))
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    lines = metrics.text().decode().splitlines()
    counted = {line for line in lines if not line.startswith("#") and not line.endswith(" 0")}
    assert counted == {
        'torchyard_jobs{kind="JobSet",namespace="team",state="running"} 1',
        'torchyard_jobs{kind="JobSet",namespace="team",state="succeeded"} 1',
        'torchyard_jobs{kind="JobSet",namespace="team",state="suspended"} 1',
        'torchyard_jobs{kind="PyTorchJob",namespace="team",state="failed"} 1',
        'torchyard_jobs{kind="PyTorchJob",namespace="team",state="pending"} 1',
        'torchyard_jobs{kind="PyTorchJob",namespace="team",state="running"} 1',
    }


def exposed() -> set[str]:
    """The names of all metrics, those without a sample yet included."""
    metrics = OperatorMetrics()
    metrics.watch_queues({"pytorchjob": []})
    metrics.watch_leadership(LEASE, lambda: True)
    texts = (metrics.text(), QueueMetrics().text(), JobStateMetrics({}).text())
    names = {line.split()[2] for text in texts for line in text.decode().splitlines() if line.startswith("# TYPE")}
    histograms = {f"{name}_bucket" for name in names}
    return names | histograms | {f"torchyard_elastic_{name}" for name in ELASTIC} | set(RECORDED)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_metrics_that_exist(query: str) -> None:
    names = set(
        re.findall(r"(?<![\w$\"])(?:torchyard|kueue|training|controller|workqueue|rest|leader)[\w:]*_[\w:]+", query)
    )
    labels = {"cluster_queue", "job_namespace"}
    assert names - labels <= exposed(), names - labels - exposed()


def test_prometheus_accepts_the_rules_and_the_queries_of_the_dashboards(tmp_path: Path) -> None:
    promtool = os.environ.get("TORCHYARD_PROMTOOL") or shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it comes with Prometheus")
    panels = [{"record": f"panel:query:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [*rule_groups(), {"name": "panels", "rules": panels}]}))
    checked = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(QUERIES) + len(ALERTS) + len(RECORDED)} rules found" in checked.stdout


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_what_to_do_and_uses_only_labels_that_its_query_keeps(alert: Alert) -> None:
    assert len(alert.description.split()) > 20
    text = alert.summary + alert.description
    labels = set(re.findall(r"\$labels\.(\w+)", text))
    kept = set(re.findall(r"sum by \((\w+)\)", alert.query)) or {"job"}  # without an aggregation, those of the job
    assert labels <= kept
    assert set(re.findall(r"`yard (\w+)", text)) <= set(get_command(build_app()).commands)  # type: ignore[attr-defined]


def test_an_installation_has_monitors_rules_and_three_dashboards() -> None:
    objects = monitoring_objects(Installation("image", "team"))
    assert [obj["kind"] for obj in objects] == [
        "ServiceMonitor", "PodMonitor", "PodMonitor", "PrometheusRule", *["ConfigMap"] * 3
    ]  # fmt: skip
    assert {obj["metadata"]["namespace"] for obj in objects} == {"team"}
    for dashboard, obj in zip(DASHBOARDS, objects[4:], strict=True):
        ((name, text),) = obj["data"].items()
        assert name == f"torchyard-{dashboard.name}.json" and json.loads(text) == grafana_dashboard(dashboard)
        assert obj["metadata"]["labels"]["grafana_dashboard"] == "1"


MONITORS = [obj for obj in monitoring_objects(Installation("image", "team")) if obj["kind"] == "PodMonitor"]


@pytest.mark.parametrize("monitor", MONITORS, ids=[monitor["metadata"]["name"] for monitor in MONITORS])
def test_a_pod_sends_no_series_of_other_namespaces_and_no_more_than_a_coordinator_has(monitor: Object) -> None:
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is False
    assert endpoint["metricRelabelings"][-1] == {"action": "labeldrop", "regex": "exported_.*"}
    assert len(ELASTIC) < monitor["spec"]["sampleLimit"] <= 1000
    assert monitor["spec"]["labelLimit"] and monitor["spec"]["labelValueLengthLimit"]


def test_the_coordinator_of_an_elastic_trainjob_is_scraped_at_its_first_node() -> None:
    monitor = next(each for each in MONITORS if each["metadata"]["name"].endswith("-trainjobs"))
    job = {
        "metadata": {"name": "job", "namespace": "ns", "uid": "0123456789"},
        "spec": {"runtimeRef": {"name": "r"}, "trainer": {"numNodes": 2}},
    }
    names = {}
    for runtime in runtimes():
        pod = make_jobset(job, runtime)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        names[runtime["metadata"]["name"]] = [port.get("name") for port in pod["containers"][0]["ports"]]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert names == {"torch-distributed": [None], "torchyard-elastic": [None, endpoint["port"]]}
    assert monitor["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/job-completion-index": "0"}
