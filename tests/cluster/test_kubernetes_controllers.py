"""kube-controller-manager and kube-scheduler work with Torchyard's server as with the real one."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
from tests.clients.manifests import DEPLOYMENT, JOB
from tests.cluster.conftest import Cluster, Program
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# How client-go's reflectors and typed clients complain.
COMPLAINT = re.compile(r"failed to list|Failed to watch|unable to decode|could not find the requested resource", re.I)


def waiting(program: Program) -> set[str]:
    """The controllers whose caches have not synced yet."""
    started = set(re.findall(r'"Waiting for caches to sync" controller="([^"]+)"', program.log))
    return started - set(re.findall(r'"Caches are synced" controller="([^"]+)"', program.log))


def complaints(program: Program) -> list[str]:
    return [line for line in program.log.splitlines() if COMPLAINT.search(line)]


def test_every_informer_of_the_controller_manager_syncs(cluster: Cluster) -> None:
    log = cluster.manager
    eventually(lambda: '"Caches are synced" controller="garbage collector"' in log.log, "the last cache synced", 60)
    eventually(lambda: not waiting(log), "all caches synced", 60)
    synced = set(re.findall(r'"Caches are synced" controller="([^"]+)"', log.log))
    assert {"job", "ReplicaSet", "deployment", "namespace", "service account", "resource quota"} <= synced
    assert complaints(log) == []


def exists(cluster: Cluster, at: str) -> bool:
    return cluster.server.admin.get(at).status == 200


def test_both_programs_are_elected_through_leases(cluster: Cluster) -> None:
    for program in (cluster.manager, cluster.scheduler):
        at = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{program.name}"
        eventually(partial(exists, cluster, at), f"the lease of {program.name}")
        assert cluster.server.admin.get(at).json["spec"]["holderIdentity"]


def make_node(cluster: Cluster, name: str) -> None:
    """A Node object that looks like a machine with room."""
    room = {"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "10Gi"}
    now = "2026-01-01T00:00:00Z"
    ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": now, "lastTransitionTime": now}
    api = cluster.server.admin
    assert api.post("/api/v1/nodes", {"metadata": {"name": name}}).status == 201
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    assert api.patch(f"/api/v1/nodes/{name}/status", {"status": status}).status == 200
    eventually(lambda: "taints" not in api.get(f"/api/v1/nodes/{name}").json["spec"], "the not-ready taint removed")


def bound(cluster: Cluster, selector: str) -> list[str]:
    pods = json.loads(cluster.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
    return [pod["spec"].get("nodeName", "") for pod in pods]


def test_the_job_controller_creates_pods_that_the_scheduler_binds(cluster: Cluster) -> None:
    make_node(cluster, "node-a")
    job = JOB.replace("  suspend: true\n", "  parallelism: 2\n  completions: 2\n")
    assert cluster.kubectl("create", "-f", "-", stdin=job) == "job.batch/train created\n"
    eventually(lambda: bound(cluster, "job-name=train") == ["node-a"] * 2, "the job's pods bound")
    pods = json.loads(cluster.kubectl("get", "pods", "-l", "job-name=train", "-o", "json"))["items"]
    (owner,) = pods[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "train", True)
    assert "Scheduled" in cluster.kubectl("events", f"--for=pod/{pods[0]['metadata']['name']}")
    api, at = cluster.server.admin, "/api/v1/namespaces/default/pods"
    for pod in pods:
        # There is no kubelet here: the test sets the status.
        succeeded = {"status": {"phase": "Succeeded"}}
        assert api.patch(f"{at}/{pod['metadata']['name']}/status", succeeded).status == 200
    assert "condition met" in cluster.kubectl("wait", "--for=condition=complete", "job/train", "--timeout=30s")
    cluster.kubectl("delete", "job", "train", "--cascade=foreground", "--timeout=30s")
    assert api.get(at, query={"labelSelector": "job-name=train"}).json["items"] == []


def test_the_replica_set_controller_creates_pods_that_garbage_collection_deletes(cluster: Cluster) -> None:
    make_node(cluster, "node-b")
    assert cluster.kubectl("create", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web created\n"
    eventually(lambda: len(bound(cluster, "app=web")) == 2 and all(bound(cluster, "app=web")), "two pods bound")
    sets = json.loads(cluster.kubectl("get", "replicasets", "-l", "app=web", "-o", "json"))["items"]
    assert sets[0]["status"]["replicas"] == 2
    cluster.kubectl("scale", "deployment/web", "--replicas=4")
    eventually(lambda: len(bound(cluster, "app=web")) == 4, "four pods")
    cluster.kubectl("delete", "deployment", "web", "--timeout=30s")

    def pods_are_gone() -> bool:
        pods = json.loads(cluster.kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
        for pod in pods:
            cluster.kubectl.run("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
        return not pods

    eventually(pods_are_gone, "the pods collected")


def test_the_namespace_controller_deletes_a_namespace_with_its_contents(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", "short")
    cluster.kubectl("create", "configmap", "inside", "-n", "short", "--from-literal=a=1")
    cluster.kubectl("delete", "namespace", "short", "--timeout=30s")
    assert 'namespaces "short" not found' in cluster.kubectl.fails("get", "namespace", "short")


def test_neither_program_logs_failed_requests(cluster: Cluster) -> None:
    assert complaints(cluster.manager) == []
    assert complaints(cluster.scheduler) == []
    assert cluster.manager.process.running
    assert cluster.scheduler.process.running
