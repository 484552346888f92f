"""What people and programs see of queues: the command line, the visibility API, the figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import queues
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.api.objects import Object

ROOT = "/apis/kueue.x-k8s.io/v1beta2"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
WORKLOADS = f"{ROOT}/namespaces/default/workloads"


def make(server: Server, kind: str, path: str, obj: Object) -> None:
    answer = server.admin.post(f"{ROOT}{path}", {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **obj})
    assert answer.status == 201, answer


def job(name: str, cpu: int) -> Object:
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": str(cpu)}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"template": template}}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    made = Yard(tmp_path_factory.mktemp("faces"), controllers="*")
    with made as server:
        make(server, "ResourceFlavor", "/resourceflavors", queues.flavor())
        make(server, "ClusterQueue", "/clusterqueues", queues.queue("team", cpu=2))
        for name in ("q", "other"):
            make(server, "LocalQueue", "/namespaces/default/localqueues", queues.local(name))
        for index, name in enumerate(("runs", "next", "last")):
            assert server.admin.post(JOBS, job(name, 2)).status == 201
            eventually(lambda: len(server.admin.get(WORKLOADS).json["items"]) == index + 1, "its workload")  # noqa: B023
        eventually(lambda: not server.admin.get(f"{JOBS}/runs").json["spec"]["suspend"], "its start")
        yield made


def said(plane: Yard, *arguments: str) -> str:
    done = yard("queue", *arguments, state=plane.state)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_line_is_shown(plane: Yard) -> None:
    rows = {one["job"]: one for one in json.loads(said(plane, "list", "-o", "json"))}
    assert rows["runs"]["state"] == "Admitted"
    waiting = {rows[name]["position"] for name in ("next", "last")}
    assert waiting == {0, 1}
    head, *lines = said(plane, "list", "-n", "default").splitlines()
    assert [line[head.index("CLUSTERQUEUE") :].split()[0] for line in lines] == ["team"] * 3
    refused = yard("queue", "list", "-o", "yaml", state=plane.state)
    assert (refused.returncode, "'yaml' is not one of" in refused.stderr) == (2, True)


def test_a_job_is_looked_for_in_the_namespace_of_the_context(plane: Yard, tmp_path: Path) -> None:
    elsewhere = tmp_path / "config"
    elsewhere.write_text(plane.kubeconfig.read_text().replace("namespace: default", "namespace: mine"))
    for command in (("why",), ("position",), ("hold",)):
        done = yard("queue", "--kubeconfig", str(elsewhere), *command, "next", state=plane.state)
        assert done.stderr.startswith("error: job next is not queued in namespace mine"), done


def test_position_and_reason_are_told(plane: Yard) -> None:
    assert "in ClusterQueue team (0 is next)" in said(plane, "position", "next")
    assert "no estimate" in said(plane, "position", "next")
    eventually(lambda: "2 more needed" in said(plane, "why", "next"), "the reason")
    unknown = yard("queue", "why", "nobody", state=plane.state)
    assert unknown.returncode == 1
    assert "queued jobs: last, next, runs" in unknown.stderr


def test_why_a_job_is_in_no_queue_is_told(plane: Yard) -> None:
    server, wrong = plane.server(), job("wrong", 1)
    wrong["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "gold"
    assert server.admin.post(JOBS, wrong).status == 201

    def told() -> bool:
        done = yard("queue", "why", "wrong", state=plane.state)
        return done.stdout.startswith('Not queued: WorkloadPriorityClass "gold" not found: create it')

    eventually(told, "the reason")
    assert server.admin.delete(f"{JOBS}/wrong").status == 200


def test_a_job_is_held_resumed_and_moved(plane: Yard) -> None:
    server = plane.server()
    assert "on hold" in said(plane, "hold", "last")
    eventually(lambda: said(plane, "why", "last").startswith("Held"), "the hold")
    assert "again" in said(plane, "resume", "last")
    eventually(lambda: said(plane, "why", "last").startswith("Pending"), "the resumption")
    assert yard("queue", "resume", "last", state=plane.state).stderr.startswith("error: job last is not on hold\n")
    assert "other" in said(plane, "move", "last", "other")

    def moved() -> bool:
        items = server.admin.get(WORKLOADS).json["items"]
        return any(one["spec"]["queueName"] == "other" for one in items)

    eventually(moved, "the move")
    wrong = yard("queue", "move", "last", "nowhere", state=plane.state)
    assert wrong.returncode == 1
    assert "LocalQueues there: other, q" in wrong.stderr


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_visibility_api_tells_who_waits(plane: Yard, version: str) -> None:
    server = plane.server()
    path = f"/apis/visibility.kueue.x-k8s.io/{version}/clusterqueues/team/pendingworkloads"
    answer = server.admin.get(path)
    assert answer.status == 200, answer
    assert answer.json["kind"] == "PendingWorkloadsSummary"
    assert [one["positionInClusterQueue"] for one in answer.json["items"]] == [0, 1]
    assert len(server.admin.get(path, query={"offset": 1, "limit": 5}).json["items"]) == 1
    local = f"/apis/visibility.kueue.x-k8s.io/{version}/namespaces/default/localqueues/q/pendingworkloads"
    assert {one["localQueueName"] for one in server.admin.get(local).json["items"]} == {"q"}
    assert server.admin.get(path.replace("team", "nope")).status == 404


def test_figures_have_the_names_of_kueue(plane: Yard) -> None:
    server = plane.server()

    def shown() -> bool:
        return 'kueue_cluster_queue_resource_usage{cluster_queue="team"' in server.admin.get("/metrics").text

    eventually(shown, "the figures")
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


def test_what_has_finished_is_neither_held_nor_moved(plane: Yard) -> None:
    server = plane.server()
    over = {"metadata": {"name": "over"}, "spec": queues.workload("over")["spec"]}
    make(server, "Workload", "/namespaces/default/workloads", over)
    condition = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
    finished = {"status": {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}

    def has_ended() -> bool:
        server.admin.patch(f"{WORKLOADS}/over/status", finished)  # again, if the plane wrote in between
        return said(plane, "why", "over") == "Finished: done\n"

    eventually(has_ended, "its end")
    for change in (("hold", "over"), ("resume", "over"), ("move", "over", "other")):
        done = yard("queue", *change, state=plane.state)
        assert done.stderr.startswith("error: job over has finished and is not queued any more\n"), done
