"""`kill -9` of the plane while a namespace and its stubborn pod are deleted: both end after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.node.support import need_network
from tests.support.accounts import wait_for_account
from tests.support.http import Client
from tests.support.process import free_port
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.node.shutdown import stop_pods

pytestmark = pytest.mark.chaos

SPACE = "/api/v1/namespaces/leaving"
POD = f"{SPACE}/pods/stubborn"
# More lines about one pod than its restart and its end explain are a loop.
MAX_LINES = 20


def test_a_pod_of_a_terminating_namespace_ends_after_the_plane_was_killed(tmp_path: Path) -> None:
    """Its service account is gone by then, and its process ignores SIGTERM."""
    need_network()
    yard = Yard(tmp_path, controllers="*", port=free_port(), flags=("--node",))
    server = yard.start()
    try:
        _create_stubborn_pod(server.admin)
        server.admin.delete(SPACE)
        eventually(lambda: "deletionTimestamp" in server.admin.get(POD).json["metadata"], "the pod's deletion")
        yard.kill()
        logged = len(yard.log.read_text())
        again = yard.start()
        eventually(lambda: again.admin.get(SPACE).status == 404, "the end of the namespace", seconds=60)
        lines = [line for line in yard.log.read_text()[logged:].splitlines() if "stubborn" in line]
        assert len(lines) < MAX_LINES, lines
    finally:
        yard.stop()
        asyncio.run(stop_pods(yard.state / "node"))


def _create_stubborn_pod(client: Client) -> None:
    client.post("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    wait_for_account(client, "leaving")
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 5}
    client.post(f"{SPACE}/pods", {"metadata": {"name": "stubborn"}, "spec": spec})
    eventually(lambda: client.get(POD).json.get("status", {}).get("phase") == "Running", "the running pod")
