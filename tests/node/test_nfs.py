"""NFS volumes: mounted for a pod, gone after it, and the share keeps its files. A bind mount stands in for NFS."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from tests.node import support
from tests.node.conftest import RunningNode, running_node

from torchyard.api.gvr import PODS

# as mount.nfs is called: share, place, options
STAND_IN = """#!/bin/sh
echo "$@" >> {log}
case "$1" in *:/export) exec mount --bind {export} "$2";; esac
echo "mount.nfs: access denied by server while mounting $1"
exit 32
"""


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the server shares."""
    support.need_sandbox()
    export, place = tmp_path / "export", tmp_path / "place"
    export.mkdir()
    place.mkdir()
    tried = subprocess.run(["mount", "--bind", str(export), str(place)], capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or tried.returncode:
        pytest.skip(f"this user may not mount anything: {tried.stderr.strip()}")
    subprocess.run(["umount", str(place)], check=True)
    program = tmp_path / "bin" / "mount.nfs"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(log=tmp_path / "asked", export=export))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return export


def share(path: str, **more: object) -> list[dict[str, object]]:
    return [{"name": "v", "nfs": {"server": "files.example", "path": path, **more}}]


MOUNTED = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


async def test_an_nfs_share_is_mounted_for_the_pod_and_outlives_it(
    node: RunningNode, export: Path, tmp_path: Path
) -> None:
    (export / "before").write_text("old\n")
    await node.script("p", "cat /v/before; echo new > /v/after; sleep 60", container=MOUNTED, volumes=share("/export"))
    pod = await node.phase("p", "Running")
    assert node.plane.agent
    pod_dir = node.plane.agent.context.settings.pods / pod["metadata"]["uid"]
    for _ in range(1500):
        if (export / "after").exists():
            break
        await asyncio.sleep(0.02)
    await node.client.delete(PODS, "p", "default", grace=0)
    for _ in range(1500):
        if not pod_dir.exists():
            break
        await asyncio.sleep(0.02)
    assert not pod_dir.exists()
    assert {path.name: path.read_text() for path in export.iterdir()} == {"before": "old\n", "after": "new\n"}
    assert str(pod_dir) not in Path("/proc/mounts").read_text()


async def test_a_read_only_share_is_mounted_read_only(node: RunningNode, export: Path, tmp_path: Path) -> None:
    await node.script("p", "! touch /v/x", container=MOUNTED, volumes=share("/export", readOnly=True))
    await node.phase("p", "Succeeded")
    assert (tmp_path / "asked").read_text().split()[-2:] == ["-o", "ro"]


async def test_a_stopped_node_leaves_no_mounts(export: Path, tmp_path: Path) -> None:
    async with running_node(tmp_path / "state") as node:
        await node.script("p", "sleep 60", container=MOUNTED, volumes=share("/export"))
        await node.phase("p", "Running")
        assert str(tmp_path / "state") in Path("/proc/mounts").read_text()
    assert str(tmp_path / "state") not in Path("/proc/mounts").read_text()


async def test_the_error_of_the_mount_program_is_in_the_event(node: RunningNode, export: Path) -> None:
    await node.script("p", "true", container=MOUNTED, volumes=share("/other"))
    for _ in range(1500):
        if "FailedMount" in await node.events("p"):
            break
        await asyncio.sleep(0.02)
    message = (await node.messages("p"))["FailedMount"]
    assert "access denied by server while mounting files.example:/other" in message
