"""SIGSTOP of a pod's shim, of the zygote and of the plane: other pods go on, and afterwards everything does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.support import need_network, processes_with
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard, yard

from torchyard.api.objects import Object
from torchyard.node.shim import client, wire

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

PODS = "/api/v1/namespaces/default/pods"
TIMEOUT = 180.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("stopped-shims"), controllers="*", flags=("--node",))
    with plane:
        yield plane
    yard("down", state=plane.state, timeout=TIMEOUT)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def create_pod(server: Server, name: str, command: list[str], **container: object) -> str:
    """Create a pod that is stopped quickly; returns its uid."""
    main = {"name": "main", "image": "busybox", "command": command, **container}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main]}
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    created = server.admin.post(PODS, pod)
    assert created.status == 201, created
    return str(created.json["metadata"]["uid"])


def wait_for_phase(server: Server, name: str, phase: str) -> None:
    def is_reached() -> bool:
        return bool(server.admin.get(f"{PODS}/{name}").json["status"].get("phase") == phase)

    eventually(is_reached, f"the phase {phase} of {name}", TIMEOUT)


def wait_for_end(server: Server, plane: Yard, name: str, uid: str) -> None:
    """The pod is gone, and so are its directory and processes."""
    eventually(lambda: server.admin.get(f"{PODS}/{name}").status == 404, f"the end of {name}", TIMEOUT)
    directory = plane.state / "node" / "pods" / uid
    eventually(
        lambda: not directory.exists() and not processes_with(str(directory)), f"nothing left of {name}", TIMEOUT
    )


def pid_in(lock: Path) -> int:
    return int(lock.read_text())


def test_beside_a_stopped_shim_other_pods_start_and_end(plane: Yard) -> None:
    """The probe keeps asking the stopped shim, which answers once it continues; then the pod is deleted as usual."""
    server = plane.server()
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1000}
    uid = create_pod(server, "sleeper", ["sleep", "100000"], readinessProbe=probe)
    wait_for_phase(server, "sleeper", "Running")
    with stopped(pid_in(plane.state / "node" / "pods" / uid / "shim.lock")):
        other = create_pod(server, "other", ["true"])
        wait_for_phase(server, "other", "Succeeded")
        assert server.admin.delete(f"{PODS}/other").status == 200
        wait_for_end(server, plane, "other", other)
        assert server.admin.delete(f"{PODS}/sleeper").status == 200
        assert server.admin.get("/readyz").status == 200
    wait_for_end(server, plane, "sleeper", uid)


def test_pods_start_once_a_stopped_zygote_continues(plane: Yard) -> None:
    server = plane.server()
    with stopped(pid_in(plane.state / "node" / "zygote.lock")):
        uid = create_pod(server, "early", ["true"])
        assert server.admin.get("/readyz").status == 200
    wait_for_phase(server, "early", "Succeeded")
    assert server.admin.delete(f"{PODS}/early").status == 200
    wait_for_end(server, plane, "early", uid)


def test_pods_that_end_while_the_plane_is_stopped_are_reported_afterwards(plane: Yard, tmp_path: Path) -> None:
    server, process = plane.server(), plane.process
    assert process is not None
    mark = f": {tmp_path}"  # so that the container's process is found
    uid = create_pod(server, "ends", ["sh", "-c", f"{mark}; while true; do sleep 0.1; done"])
    wait_for_phase(server, "ends", "Running")
    with stopped(process.pid):
        for pid in processes_with(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not processes_with(mark), "the end of the container", TIMEOUT)
    wait_for_phase(server, "ends", "Failed")
    assert server.admin.delete(f"{PODS}/ends").status == 200
    wait_for_end(server, plane, "ends", uid)


async def test_a_process_that_accepts_nothing_does_not_stop_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "REPLY_SECONDS", 0.5)
    with contextlib.ExitStack() as stack:
        stack.enter_context(wire.listen(str(tmp_path), "busy"))
        with pytest.raises(BlockingIOError):
            for _ in range(1000):
                stack.enter_context(wire.connect(str(tmp_path), "busy", timeout=0))
        opening = asyncio.create_task(client.Channel.open(tmp_path, "busy"))
        turns = 0
        while not opening.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 5
        with pytest.raises(client.ShimTimeout):
            await opening


async def test_a_connection_is_made_as_soon_as_the_process_accepts_again(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server: socket.socket = stack.enter_context(wire.listen(str(tmp_path), "busy"))
        with pytest.raises(BlockingIOError):
            for _ in range(1000):
                stack.enter_context(wire.connect(str(tmp_path), "busy", timeout=0))
        opening = asyncio.create_task(client.Channel.open(tmp_path, "busy"))
        await asyncio.sleep(0)
        assert not opening.done()
        server.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                stack.enter_context(server.accept()[0])
        async with asyncio.timeout(TIMEOUT):
            (await opening).close()
