"""How a plane ends and what becomes of its pods: by Ctrl-C, SIGTERM and `yard down`, with and without --keep-pods."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.support import need_network
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.node.shim.client import ShimClient

PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 120.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Yard]:
    """Not yet started; with a node."""
    need_network()
    made = Yard(tmp_path, controllers="*", flags=("--node",))
    yield made
    made.stop()
    yard("down", state=made.state, timeout=PATIENCE)


def run_pod(server: Server, name: str = "sleeper") -> str:
    """A pod that sleeps and is running; its uid."""
    container = {"name": "main", "image": "busybox", "command": ["sleep", "100000"]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    made = server.admin.post(PODS, pod)
    assert made.status == 201, made
    eventually(lambda: phase(server, name) == "Running", "a running pod", PATIENCE)
    return str(made.json["metadata"]["uid"])


def phase(server: Server, name: str = "sleeper") -> Any:
    return server.admin.get(f"{PODS}/{name}").json["status"].get("phase")


def end(plane: Yard, number: signal.Signals) -> str:
    """Send a signal and wait for the end; the last line that was said."""
    process = plane.process
    assert process is not None
    os.kill(process.pid, number)
    eventually(lambda: not process.running, "the end of the plane", PATIENCE)
    return process.last_words(1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_plane_that_is_told_to_stop_ends_its_pods_and_says_so(plane: Yard, number: signal.Signals) -> None:
    run_pod(plane.start())
    assert end(plane, number) == "stopped the plane and 1 pod"
    assert yard("down", state=plane.state).stdout == f"no plane is running on {plane.state}\n"


def test_pods_run_on_if_the_plane_was_started_so_and_the_next_down_says_what_it_found(plane: Yard) -> None:
    plane.flags = ("--node", "--keep-pods")
    run_pod(plane.start())
    assert end(plane, signal.SIGINT) == "stopped the plane; pods run on"
    told = f"no plane is running on {plane.state}; stopped 1 pod that ran on without one\n"
    assert yard("down", state=plane.state, timeout=PATIENCE).stdout == told


def test_down_ends_pods_or_keeps_them_whatever_the_plane_was_told_at_its_start(plane: Yard) -> None:
    uid = run_pod(plane.start())
    kept = yard("down", "--keep-pods", state=plane.state, timeout=PATIENCE)
    assert (kept.stdout.startswith("stopped process "), " pod" in kept.stdout) == (True, False)
    assert asyncio.run(ShimClient(plane.state / "node" / "pods" / uid).hello())["containers"]
    plane.stop()
    plane.flags = ("--node", "--keep-pods")
    assert phase(plane.start()) == "Running"
    assert yard("down", state=plane.state, timeout=PATIENCE).stdout.endswith(" and 1 pod\n")


def test_a_job_need_not_count_a_pod_that_ended_with_the_plane(plane: Yard) -> None:
    """As with a kubelet that shuts its node down: who ignores disruptions loses no try."""
    server = plane.start()
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    container = {"name": "main", "image": "busybox", "command": ["sleep", "100000"]}
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [ignored]},
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "patient"}, "spec": spec}
    assert server.admin.post(jobs, job).status == 201

    def pods(server: Server, phase: str) -> list[Any]:
        found = server.admin.get(PODS, query={"labelSelector": "job-name=patient"}).json["items"]
        return [one for one in found if one["status"].get("phase") == phase]

    eventually(lambda: len(pods(server, "Running")) == 1, "a running pod", PATIENCE)
    end(plane, signal.SIGTERM)
    back = plane.start()
    eventually(lambda: len(pods(back, "Failed")) == 1, "that the pod is known to have ended", PATIENCE)
    eventually(lambda: len(pods(back, "Running")) == 1, "another try", PATIENCE)
    (ended,) = pods(back, "Failed")
    assert ended["status"]["reason"] == "Terminated"
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "The node was stopped"
    assert back.admin.get(f"{jobs}/patient").json["status"].get("failed", 0) == 0


def test_the_status_tells_of_a_node_that_was_deleted_and_a_new_start_brings_it_back(plane: Yard) -> None:
    """A kubelet, too, registers only when it starts."""
    plane.flags = ("--node", "--node-name", "here")

    def node() -> str:
        return yard("status", state=plane.state, timeout=PATIENCE).stdout.partition("node:")[2].strip()

    server = plane.start()
    eventually(lambda: node() == "here, ready", "a node", PATIENCE)
    server.admin.delete("/api/v1/nodes/here")
    assert node().startswith("here, not registered; if it was deleted, `yard down --keep-pods` and `yard up` bring it")
    yard("down", "--keep-pods", state=plane.state, timeout=PATIENCE)
    plane.stop()
    plane.start()
    eventually(lambda: node() == "here, ready", "the node again", PATIENCE)


def test_who_asks_twice_does_not_wait(plane: Yard) -> None:
    uid = run_pod(plane.start())
    shim = asyncio.run(ShimClient(plane.state / "node" / "pods" / uid).hello())["pid"]
    process = plane.process
    assert process is not None
    os.kill(shim, signal.SIGSTOP)  # its pod cannot be ended
    try:
        while process.running:  # two that come together are heard as one
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.2)
        assert process.returncode == -signal.SIGINT
    finally:
        os.kill(shim, signal.SIGCONT)
