"""Stopping a plane with signals and `yard down`, with and without --keep-pods, and the effect on its pods."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
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
TIMEOUT = 120.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Yard]:
    """A plane with a node that is not started yet."""
    need_network()
    plane = Yard(tmp_path, controllers="*", flags=("--node",))
    yield plane
    plane.stop()
    yard("down", state=plane.state, timeout=TIMEOUT)


def run_pod(server: Server, name: str = "sleeper") -> str:
    """Create a pod that sleeps, wait until it runs, and return its uid."""
    container = {"name": "main", "image": "busybox", "command": ["sleep", "100000"]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    created = server.admin.post(PODS, pod)
    assert created.status == 201, created
    eventually(lambda: phase(server, name) == "Running", "a running pod", TIMEOUT)
    return str(created.json["metadata"]["uid"])


def phase(server: Server, name: str = "sleeper") -> Any:
    return server.admin.get(f"{PODS}/{name}").json["status"].get("phase")


def stop_with(plane: Yard, number: signal.Signals) -> str:
    """Send a signal, wait until the plane has ended, and return its last line of output."""
    process = plane.process
    assert process is not None
    os.kill(process.pid, number)
    eventually(lambda: not process.running, "the end of the plane", TIMEOUT)
    return process.log_tail(1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_plane_and_its_pods(plane: Yard, number: signal.Signals) -> None:
    run_pod(plane.start())
    assert stop_with(plane, number) == "stopped the plane and 1 pod"
    assert yard("down", state=plane.state).stdout == f"no plane is running on {plane.state}\n"


def test_a_plane_that_nohup_started_outlives_its_terminal(tmp_path: Path) -> None:
    nohup = shutil.which("nohup") or pytest.skip("nohup is not installed")
    plane = Yard(tmp_path, controllers="-*", python=(nohup, sys.executable))
    try:
        plane.start()
        assert plane.process is not None
        status = Path(f"/proc/{plane.process.pid}/status").read_text()
        ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
        assert ignored & 1 << (signal.SIGHUP - 1)
    finally:
        plane.stop()


def test_keep_pods_at_the_start_keeps_pods_running_until_the_next_down(plane: Yard) -> None:
    plane.flags = ("--node", "--keep-pods")
    run_pod(plane.start())
    assert stop_with(plane, signal.SIGINT) == "stopped the plane; pods keep running"
    expected = f"no plane is running on {plane.state}; stopped 1 pod that had kept running\n"
    assert yard("down", state=plane.state, timeout=TIMEOUT).stdout == expected


def test_the_flag_of_down_overrides_the_flag_of_up(plane: Yard) -> None:
    uid = run_pod(plane.start())
    stopped = yard("down", "--keep-pods", state=plane.state, timeout=TIMEOUT)
    assert (stopped.stdout.startswith("stopped process "), " pod" in stopped.stdout) == (True, False)
    assert asyncio.run(ShimClient(plane.state / "node" / "pods" / uid).hello())["containers"]
    plane.stop()
    plane.flags = ("--node", "--keep-pods")
    assert phase(plane.start()) == "Running"
    assert yard("down", state=plane.state, timeout=TIMEOUT).stdout.endswith(" and 1 pod\n")


def test_a_pod_failure_policy_can_ignore_pods_that_ended_with_the_plane(plane: Yard) -> None:
    """As after a kubelet's graceful node shutdown, a Job that ignores disruptions does not count the failure."""
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
        pods = server.admin.get(PODS, query={"labelSelector": "job-name=patient"}).json["items"]
        return [pod for pod in pods if pod["status"].get("phase") == phase]

    eventually(lambda: len(pods(server, "Running")) == 1, "a running pod", TIMEOUT)
    stop_with(plane, signal.SIGTERM)
    restarted = plane.start()
    eventually(lambda: len(pods(restarted, "Failed")) == 1, "the failed pod", TIMEOUT)
    eventually(lambda: len(pods(restarted, "Running")) == 1, "another try", TIMEOUT)
    (ended,) = pods(restarted, "Failed")
    assert ended["status"]["reason"] == "Terminated"
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "The node was stopped"
    assert restarted.admin.get(f"{jobs}/patient").json["status"].get("failed", 0) == 0


def test_status_reports_a_deleted_node_and_a_restart_registers_it_again(plane: Yard) -> None:
    """A kubelet also registers only when it starts."""
    plane.flags = ("--node", "--node-name", "here")

    def node() -> str:
        return (
            yard("status", state=plane.state, timeout=TIMEOUT).stdout.partition("node:")[2].partition("\n")[0].strip()
        )

    server = plane.start()
    eventually(lambda: node() == "here, ready", "a node", TIMEOUT)
    server.admin.delete("/api/v1/nodes/here")
    assert node().startswith(
        "here, not registered; if it was deleted, `yard down --keep-pods` and `yard up` register it"
    )
    yard("down", "--keep-pods", state=plane.state, timeout=TIMEOUT)
    plane.stop()
    plane.start()
    eventually(lambda: node() == "here, ready", "the node again", TIMEOUT)


def test_a_second_interrupt_stops_the_plane_at_once(plane: Yard) -> None:
    uid = run_pod(plane.start())
    shim = asyncio.run(ShimClient(plane.state / "node" / "pods" / uid).hello())["pid"]
    process = plane.process
    assert process is not None
    os.kill(shim, signal.SIGSTOP)  # so that its pod cannot be stopped
    try:
        while process.running:  # two signals at the same moment are delivered as one
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.2)
        assert process.returncode == -signal.SIGINT
    finally:
        os.kill(shim, signal.SIGCONT)
