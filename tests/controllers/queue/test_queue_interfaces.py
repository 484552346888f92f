"""The interfaces of the queues: the command line, the visibility API, the metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support import queues
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.api.objects import Object

ROOT = "/apis/kueue.x-k8s.io/v1beta2"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
WORKLOADS = f"{ROOT}/namespaces/default/workloads"


def create(server: Server, kind: str, path: str, obj: Object) -> None:
    answer = server.admin.post(f"{ROOT}{path}", {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj})
    assert answer.status == 201, answer


def job(name: str, cpu: int) -> Object:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": str(cpu)}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"template": template}}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    plane = Yard(tmp_path_factory.mktemp("queues"), controllers="*")
    with plane as server:
        create(server, "ResourceFlavor", "/resourceflavors", queues.flavor())
        create(server, "ClusterQueue", "/clusterqueues", queues.queue("team", cpu=2))
        for name in ("q", "other"):
            create(server, "LocalQueue", "/namespaces/default/localqueues", queues.local(name))
        for index, name in enumerate(("runs", "next", "last")):
            assert server.admin.post(JOBS, job(name, 2)).status == 201
            eventually(lambda: len(server.admin.get(WORKLOADS).json["items"]) == index + 1, "its workload")  # noqa: B023
        eventually(lambda: not server.admin.get(f"{JOBS}/runs").json["spec"]["suspend"], "its start")
        yield plane


def run(plane: Yard, *arguments: str) -> str:
    result = yard("queue", *arguments, state=plane.state)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_list_shows_jobs_in_queue_order(plane: Yard) -> None:
    rows = {row["job"]: row for row in json.loads(run(plane, "list", "-o", "json"))}
    assert rows["runs"]["state"] == "Admitted"
    pending = {rows[name]["position"] for name in ("next", "last")}
    assert pending == {0, 1}
    header, *lines = run(plane, "list", "-n", "default").splitlines()
    assert [line[header.index("CLUSTERQUEUE") :].split()[0] for line in lines] == ["team"] * 3
    assert {row["job"] for row in yaml.safe_load(run(plane, "list", "-o", "yaml"))} == set(rows)
    rejected = yard("queue", "list", "-o", "xml", state=plane.state)
    assert (rejected.returncode, "'xml' is not one of" in rejected.stderr) == (2, True)


def test_job_is_searched_in_the_namespace_of_the_context(plane: Yard, tmp_path: Path) -> None:
    elsewhere = tmp_path / "config"
    elsewhere.write_text(plane.kubeconfig.read_text().replace("namespace: default", "namespace: mine"))
    for command in (("why",), ("position",), ("hold",)):
        result = yard("queue", "--kubeconfig", str(elsewhere), *command, "next", state=plane.state)
        assert result.stderr.startswith("error: job next is not queued in namespace mine"), result


def test_position_and_why_show_position_and_reason(plane: Yard) -> None:
    assert "in ClusterQueue team (0 is next)" in run(plane, "position", "next")
    assert "no estimate" in run(plane, "position", "next")
    eventually(lambda: "2 more needed" in run(plane, "why", "next"), "the reason")
    lines = run(plane, "why", "next").splitlines()[1:]
    assert lines[0].endswith("in ClusterQueue team (0 is next)")
    assert lines[1].startswith("2 of the requested")
    assert lines[2].startswith("held by default/job-runs-")
    assert run(plane, "why", "next").splitlines()[1:] == yard("why", "next", state=plane.state).stdout.splitlines()[-3:]
    unknown = yard("queue", "why", "missing", state=plane.state)
    assert unknown.returncode == 1
    assert "queued jobs: last, next, runs" in unknown.stderr


def test_why_shows_the_reason_of_a_job_without_workload(plane: Yard) -> None:
    server, wrong = plane.server(), job("wrong", 1)
    wrong["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "gold"
    assert server.admin.post(JOBS, wrong).status == 201

    def is_reported() -> bool:
        result = yard("queue", "why", "wrong", state=plane.state)
        return result.stdout.startswith('Not queued: WorkloadPriorityClass "gold" not found: create it')

    eventually(is_reported, "the reason")
    assert server.admin.delete(f"{JOBS}/wrong").status == 200


def test_job_is_held_resumed_and_moved(plane: Yard) -> None:
    server = plane.server()
    assert "on hold" in run(plane, "hold", "last")
    eventually(lambda: run(plane, "why", "last").startswith("Held"), "the hold")
    assert "again" in run(plane, "resume", "last")
    eventually(lambda: run(plane, "why", "last").startswith("Pending"), "the resumption")
    assert yard("queue", "resume", "last", state=plane.state).stderr.startswith("error: job last is not on hold\n")
    assert "other" in run(plane, "move", "last", "other")

    def moved() -> bool:
        items = server.admin.get(WORKLOADS).json["items"]
        return any(workload["spec"]["queueName"] == "other" for workload in items)

    eventually(moved, "the move")
    wrong = yard("queue", "move", "last", "nowhere", state=plane.state)
    assert wrong.returncode == 1
    assert "LocalQueues there: other, q" in wrong.stderr


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_visibility_api_lists_pending_workloads(plane: Yard, version: str) -> None:
    server = plane.server()
    path = f"/apis/visibility.kueue.x-k8s.io/{version}/clusterqueues/team/pendingworkloads"
    answer = server.admin.get(path)
    assert answer.status == 200, answer
    assert answer.json["kind"] == "PendingWorkloadsSummary"
    assert [item["positionInClusterQueue"] for item in answer.json["items"]] == [0, 1]
    assert len(server.admin.get(path, query={"offset": 1, "limit": 5}).json["items"]) == 1
    local = f"/apis/visibility.kueue.x-k8s.io/{version}/namespaces/default/localqueues/q/pendingworkloads"
    assert {item["localQueueName"] for item in server.admin.get(local).json["items"]} == {"q"}
    assert server.admin.get(path.replace("team", "nope")).status == 404


def test_interfaces_agree_about_a_workload_whose_request_is_a_default_of_its_namespace(plane: Yard) -> None:
    server, limited = plane.server(), "limited"
    assert server.admin.post("/api/v1/namespaces", {"metadata": {"name": limited}}).status == 201
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "3"}}]}
    path = f"/api/v1/namespaces/{limited}/limitranges"
    assert server.admin.post(path, {"metadata": {"name": "defaults"}, "spec": limits}).status == 201
    quotas = [queues.group(("default", [queues.quota("cpu", 2)]))]
    create(server, "ClusterQueue", "/clusterqueues", queues.queue("small", *quotas))
    create(server, "LocalQueue", f"/namespaces/{limited}/localqueues", queues.local("q", "small", limited))
    pod_set = queues.pod_set()
    waits = {"metadata": {"name": "waits"}, "spec": {"queueName": "q", "podSets": [pod_set]}}
    workloads = f"/namespaces/{limited}/workloads"
    create(server, "Workload", workloads, waits)

    def message() -> str:
        conditions = server.admin.get(f"{ROOT}{workloads}/waits").json.get("status", {}).get("conditions", [])
        return str([entry["message"] for entry in conditions])

    eventually(lambda: "current podset request (3) > maximum capacity (2)" in message(), "the condition")
    pending = f"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{limited}/localqueues/q/pendingworkloads"
    [item] = server.admin.get(pending).json["items"]
    assert item["pendingReason"].startswith("it can never fit; 3 cpu are 1 more than")
    assert item["pendingReason"] in run(plane, "why", "waits", "-n", limited)


def test_metrics_have_kueues_names(plane: Yard) -> None:
    server = plane.server()

    def has_usage() -> bool:
        return 'kueue_cluster_queue_resource_usage{cluster_queue="team"' in server.admin.get("/metrics").text

    eventually(has_usage, "the metrics")
    text = server.admin.get("/metrics").text
    for name in (
        'kueue_admitted_workloads_total{cluster_queue="team"} 1.0',
        "kueue_pending_workloads{",
        "kueue_admission_wait_time_seconds_bucket{",
        "kueue_admission_attempt_duration_seconds_count{",
        'kueue_admission_attempts_total{result="success"}',
        'kueue_workload_creation_latency_seconds_count{job_kind="Job"}',
        "apiserver_request_total{",
    ):
        assert name in text


def test_finished_job_cannot_be_held_resumed_or_moved(plane: Yard) -> None:
    server = plane.server()
    over = {"metadata": {"name": "over"}, "spec": queues.workload("over")["spec"]}
    create(server, "Workload", "/namespaces/default/workloads", over)
    condition = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
    finished = {"status": {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}

    def has_finished() -> bool:
        server.admin.patch(f"{WORKLOADS}/over/status", finished)  # retried if the plane wrote at the same time
        return run(plane, "why", "over") == "Finished: done\n"

    eventually(has_finished, "its finish")
    for change in (("hold", "over"), ("resume", "over"), ("move", "over", "other")):
        result = yard("queue", *change, state=plane.state)
        assert result.stderr.startswith("error: job over has finished and is not queued any more\n"), result
