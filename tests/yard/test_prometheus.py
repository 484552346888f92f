"""A real Prometheus scrapes a plane and a coordinator, and evaluates every rule and every query of the dashboards."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kubernetes import Server
from tests.support.process import Process, free_port
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.operator.dashboards import DASHBOARDS
from torchyard.operator.monitoring import rule_groups

QUERIES = {
    f"{dashboard.name}: {panel.title}": panel.query.replace("$namespace", ".*")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
}
# A plane has no operator and no eviction here; of histograms without a sample in the range there is no quantile.
WITH_VALUES = {
    *("jobs: Jobs by state", "jobs: Running jobs by kind"),
    *("queues: Pending workloads", "queues: Admitted workloads", "queues: Quota in use"),
    *(name for name in QUERIES if name.startswith("elastic: ")),
}
# What the coordinator of an elastic job exposes (tests/elastic/test_coordinator.py), at two moments.
COORDINATOR = """\
# TYPE torchyard_elastic_step gauge
torchyard_elastic_step{{job="mnist"}} {step}
torchyard_elastic_records{{job="mnist"}} {records}
torchyard_elastic_world_size{{job="mnist"}} 2
torchyard_elastic_workers_wanted{{job="mnist"}} 3
# TYPE torchyard_elastic_world_changes_total counter
torchyard_elastic_world_changes_total{{job="mnist"}} 2
# TYPE torchyard_elastic_reform_seconds_sum counter
torchyard_elastic_reform_seconds_sum{{job="mnist"}} {step}
torchyard_elastic_reform_seconds_count{{job="mnist"}} {step}
torchyard_elastic_ledger_commit_seconds_p99{{job="mnist"}} 0.002
"""


@pytest.fixture
def coordinator() -> Iterator[str]:
    """The address of what stands for a coordinator."""
    scrapes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scrapes.append(1)
            body = COORDINATOR.format(step=len(scrapes), records=32 * len(scrapes)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Prometheus:
    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **query: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as response:
            document = json.load(response)
        assert document["status"] == "success", document
        return document["data"]

    def value(self, query: str) -> list[Any]:
        result: list[Any] = self.get("query", query=query)["result"]
        return result


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Server]:
    with Yard(tmp_path / "plane", controllers="*", flags=("--no-node",)) as server:
        yield server


@pytest.fixture
def prometheus(plane: Server, coordinator: str, tmp_path: Path) -> Iterator[Prometheus]:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("Prometheus is not installed")
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "token").write_text(plane.token)
    scraped = [
        {
            "job_name": "torchyard",
            "scheme": "https",
            "authorization": {"credentials_file": str(tmp_path / "token")},
            "tls_config": {"ca_file": str(plane.ca)},
            "static_configs": [{"targets": [plane.url.removeprefix("https://")]}],
        },
        {"job_name": "elastic", "static_configs": [{"targets": [coordinator]}]},
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": rule_groups()}))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(tmp_path / "rules.yaml")],
        "scrape_configs": scraped,
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    flags = (f"--config.file={tmp_path / 'prometheus.yaml'}", f"--storage.tsdb.path={tmp_path / 'data'}")
    process = Process([binary, *flags, f"--web.listen-address={address}"], tmp_path / "prometheus.log")
    server = Prometheus(address)
    try:
        process.wait_until(lambda: bool(server.get("targets")["activeTargets"]), "its targets")
        yield server
    finally:
        process.stop()


def job(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "default"}}
    return {"metadata": metadata, "spec": {"suspend": True, "template": template}}


def test_every_rule_and_every_query_of_the_dashboards_is_evaluated(plane: Server, prometheus: Prometheus) -> None:
    _create_queue(plane)
    for name, cpu in (("fits", "100m"), ("waits", "4000")):
        assert plane.admin.post("/apis/batch/v1/namespaces/default/jobs", job(name, cpu)).status == 201
    values: dict[str, list[Any]] = {}

    def are_filled() -> bool:
        values.update({name: prometheus.value(query) for name, query in QUERIES.items()})
        return all(values[name] for name in WITH_VALUES)

    try:
        eventually(are_filled, "values of the panels")
    finally:
        print({name: len(each) for name, each in values.items()})
    states = {each["metric"]["state"]: each["value"][1] for each in values["jobs: Jobs by state"]}
    assert states["suspended"] == "1"
    missing = [float(each["value"][1]) for each in values["elastic: Missing workers"]]
    assert missing == [1.0]

    def are_evaluated() -> bool:
        rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []
        return bool(rules) and {rule["health"] for rule in rules} == {"ok"}

    eventually(are_evaluated, "the evaluation of every rule")


def _create_queue(plane: Server) -> None:
    kueue = "/apis/kueue.x-k8s.io/v1beta2"
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": "8"}]}],
    }
    for path, kind, body in (
        ("resourceflavors", "ResourceFlavor", {"metadata": {"name": "any"}}),
        (
            "clusterqueues",
            "ClusterQueue",
            {"metadata": {"name": "team"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}},
        ),
        (
            "namespaces/default/localqueues",
            "LocalQueue",
            {"metadata": {"name": "default"}, "spec": {"clusterQueue": "team"}},
        ),
    ):
        assert plane.admin.post(
            f"{kueue}/{path}", {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **body}
        ).status in (201, 409)
