"""Another user of the machine gets nothing of a plane: no file, no socket, no process, no request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node import support
from tests.security.escape_runner import NAMESPACE, create_pod, install, volumes, wait_for_pod
from tests.security.planes import HostilePlane, hostile_plane, open_directory, this_user
from tests.support.ordinary_user import as_user, can

# As another user: walk all that the plane wrote, and report what can be listed, read, written or connected to.
PROGRAM = """
import json, os, socket, stat, sys
from pathlib import Path
state, plane = sys.argv[1], int(sys.argv[2])
reached = []
def attempt(kind, path, action):
    try:
        action()
    except OSError:
        return
    reached.append(f"{kind} {path}")
def look(path):
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        attempt("listed", path, lambda: os.listdir(path))
        attempt("created in", path, lambda: os.close(os.open(f"{path}/by-another-user", os.O_CREAT | os.O_WRONLY)))
    elif stat.S_ISSOCK(mode):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, kind) as client:
                attempt("connected to", path, lambda: client.connect(path))
    elif stat.S_ISREG(mode):
        attempt("read", path, lambda: os.close(os.open(path, os.O_RDONLY)))
        attempt("written", path, lambda: os.close(os.open(path, os.O_WRONLY)))
for path in json.load(sys.stdin):
    look(path)
for pid in [plane, *map(int, sys.argv[3:])]:
    for name in ("environ", "mem", "maps", "fd", "root/", "cwd/", "ns/mnt"):
        path = f"/proc/{pid}/{name}"
        is_directory = name in ("fd", "root/", "cwd/")
        attempt("process", path, lambda: os.listdir(path) if is_directory else os.open(path, os.O_RDONLY))
    attempt("signal", pid, lambda: os.kill(pid, 0))
print(json.dumps(reached))
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[HostilePlane]:
    if os.geteuid() != 0 or not can("true"):
        pytest.skip("only root can act as another user")
    support.need_network()
    with open_directory() as directory, hostile_plane(this_user(), directory) as running:
        client = running.server.admin
        install(client)
        container = {
            "name": "main",
            "image": "python:3",
            "command": ["sh", "-c", "echo private > /shared/file; echo private; exec sleep 600"],
            "volumeMounts": [{"name": "secret", "mountPath": "/secret"}, {"name": "shared", "mountPath": "/shared"}],
        }
        memory = {"name": "memory", "emptyDir": {"medium": "Memory"}}
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": [*volumes(), memory]}
        create_pod(client, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "victim"}, "spec": spec})
        wait_for_pod(client, "victim", ("Running",))
        yield running


def paths_below(top: Path) -> list[str]:
    paths = [str(top)]
    for directory, directories, files in os.walk(top):
        paths += [f"{directory}/{name}" for name in (*directories, *files)]
    return paths


def test_another_user_reaches_no_file_socket_or_process_of_a_plane(plane: HostilePlane) -> None:
    assert plane.yard.process is not None
    pids = support.processes_with(str(plane.state)) + _pods_processes(plane.state)
    paths = paths_below(plane.state)
    assert any(path.endswith("shim.sock") for path in paths), "the pod runs"
    python = next(path for path in (sys.executable, "/usr/bin/python3") if can(path, "-c", ""))
    command = as_user(python, "-c", PROGRAM, str(plane.state), str(plane.yard.process.pid), *map(str, pids))
    done = subprocess.run(command, input=json.dumps(paths), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def _pods_processes(state: Path) -> list[int]:
    """Shims, zygote and containers: their pids are in the files and locks of the state."""
    pids = []
    for lock in (state / "node").rglob("*.lock"):
        text = lock.read_text().strip()
        if text.isdigit():
            pids.append(int(text))
    return pids


def test_no_file_of_the_state_is_open_to_others(plane: HostilePlane) -> None:
    """Whoever enters the directory by other means, such as a backup that keeps modes, still reads no secret."""
    keys = [
        path for path in plane.state.rglob("*") if path.suffix in (".key", ".db", ".csv") or path.name == "kubeconfig"
    ]
    assert keys
    assert [str(path) for path in keys if path.stat().st_mode & 0o077] == []


def test_a_request_without_a_token_gets_nothing(plane: HostilePlane) -> None:
    anonymous = plane.server.admin.as_user("")
    paths = (
        "/api/v1/secrets",
        f"{NAMESPACE}/pods/victim/log",
        "/metrics",
        "/apis/apps/v1/deployments",
        "/debug/pprof/",
    )
    statuses = {path: anonymous.get(path).status for path in paths}
    assert set(statuses.values()) <= {401, 403}, statuses
