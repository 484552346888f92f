"""`yard tui` in a real pseudo-terminal of 80 by 24, on a plane and on a real Kubernetes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes import Server
from tests.support.terminal import terminal
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment

PYTORCHJOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
ENVIRONMENT = {**os.environ, **_environment(), "TERM": "xterm-256color"}
CURVE = r"""i=0; while :; do i=$((i+1)); echo "step=$i loss=$((1000/i)).5"; sleep 0.1; done"""
# An escape sequence that would set the title of the terminal and clear it, and one that reverses the text.
HOSTILE = r"""printf 'start \033]0;owned\007\033[2Jthe\tmiddle \342\200\256end\n'
echo Traceback \(most recent call last\):; echo ValueError: no; exit 3"""


def tui(kubeconfig: Path, *arguments: str) -> list[str]:
    return [*_command(), "tui", "--kubeconfig", str(kubeconfig), *arguments]


def pod(script: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "busybox", "command": ["sh", "-c", script]}
    return {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}}


@pytest.fixture(scope="module")
def jobs(plane: Yard) -> Server:
    server = plane.server()
    replicas = {
        role: {"replicas": count, "restartPolicy": "Never", "template": pod(CURVE)}
        for role, count in (("Master", 1), ("Worker", 2))
    }
    curve = {"metadata": {"name": "curve"}, "spec": {"pytorchReplicaSpecs": replicas}}
    broken = {"metadata": {"name": "broken"}, "spec": {"backoffLimit": 0, "template": pod(HOSTILE)}}
    for path, kind, job in ((PYTORCHJOBS, "PyTorchJob", curve), (JOBS, "Job", broken)):
        group = path.split("/")[2:4]
        assert server.admin.post(path, {"apiVersion": "/".join(group), "kind": kind, **job}).status == 201
    return server


def test_jobs_replicas_curves_and_logs_of_a_plane_in_80_by_24(plane: Yard, jobs: Server) -> None:
    with terminal(tui(plane.kubeconfig), ENVIRONMENT) as screen:
        screen.wait_for(r"curve +PyTorchJob +Running +3/3")
        assert "jobs in default" in screen.screen.splitlines()[0]
        screen.press("/curv\r")  # the first job is chosen, which is the only one then
        screen.wait_for(r"(?s)curve.*\n/curv ")
        screen.press("\r")
        screen.wait_for(r"master-0 +0 +Running")
        screen.wait_for(r"(?s)loss +master-0.*worker-0.*│")
        screen.wait_for("[\u2801-\u28ff]{3}")
        screen.press("l")
        screen.wait_for(r"worker-1 step=\d+ loss=")
        screen.press("r")
        screen.wait_for(r"logs of master-0 of curve · following")
        screen.press("k")
        screen.wait_for("paused")
        screen.press("m")
        screen.wait_for(r"(?s)metrics of curve.*└─+\dm\d\ds")
        screen.press("y")
        screen.wait_for(r"kind: PyTorchJob")
        screen.press("\x1b")
        screen.wait_for(r"REPLICA +RANK +STATE")
        screen.press("e")
        screen.wait_for(r"Started +pod/curve-")
        screen.resize(40, 10)
        screen.wait_for(r"(?m)^\? keys  q quit .*")
        assert len(screen.screen.splitlines()) == 10
        screen.press("qq/zzz\r")
        screen.wait_for("no job matches")
        screen.press("\x1bq")
        assert screen.wait_for_end() == 0
        assert screen.modes == {"1049": False, "25": True, "7": True, "2026": False}, "the terminal is as before"


def test_what_a_program_prints_does_not_reach_the_terminal_as_a_command(plane: Yard, jobs: Server) -> None:
    with terminal(tui(plane.kubeconfig, "job/broken"), ENVIRONMENT) as screen:
        screen.wait_for(r"first to fail: broken-\w+, exit code 3")
        screen.press("l")
        screen.wait_for(r"start the +middle \?end")  # the emulator fails at any other sequence
        screen.press("E")
        screen.wait_for(r"(?s)paused.*Traceback")
        screen.press("s\x04")
        screen.wait_for(r"delete job.batch/broken in default\? y/n")
        screen.press("n")
        screen.press("\x04y")
        screen.wait_for("job.batch/broken deleted")
        eventually(lambda: jobs.admin.get(f"{JOBS}/broken").status == 404, "the deletion")
        screen.process.send_signal(signal.SIGTERM)
        assert screen.wait_for_end() == 0
        assert screen.modes["1049"] is False


@pytest.mark.cluster
def test_jobs_of_a_real_kubernetes(kube: Server) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "on-a-cluster"}, "spec": {"template": pod("")}}
    assert kube.admin.post(JOBS, job).status == 201
    with terminal(tui(kube.kubeconfig, "-A"), ENVIRONMENT) as screen:
        screen.wait_for(r"default +on-a-cluster +Job +Pending +0/1")
        screen.press("/on-a-cluster\r\r")
        screen.wait_for(r"Job default/on-a-cluster")
        screen.press("Sy")
        screen.wait_for("job.batch/on-a-cluster suspended")
        assert kube.admin.get(f"{JOBS}/on-a-cluster").json["spec"]["suspend"] is True
        screen.press("\x03")
        assert screen.wait_for_end() == 0
    kube.admin.delete(f"{JOBS}/on-a-cluster")


def test_without_a_terminal_it_says_what_to_use(tmp_path: Path) -> None:
    done = subprocess.run(
        tui(tmp_path / "none"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=ENVIRONMENT
    )
    assert done.returncode == 1
    assert "needs a terminal" in done.stderr and "yard ps -w" in done.stderr
