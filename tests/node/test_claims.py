"""Claims on a real node: pods write and read what their claims hold, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.conftest import RunningNode
from tests.support.storage import claim, volume
from tests.support.waiting import first_answer

from torchyard.api.gvr import EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from torchyard.api.objects import Object

PATIENCE = 60.0
MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/mnt/ceph"}]}


def uses(name: str) -> list[Object]:
    return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]


async def has_event(node: RunningNode, name: str, reason: str, part: str) -> None:
    async def event_exists() -> bool:
        events = (await node.client.list(EVENTS, "default")).items
        about = [event for event in events if event["involvedObject"].get("name") == name and event["reason"] == reason]
        return any(part in event["message"] for event in about)

    await first_answer(event_exists, seconds=PATIENCE, pause=0.05)


async def bound(node: RunningNode, name: str) -> Object:
    async def bound_claim() -> Object | None:
        pvc = await node.client.get(PERSISTENT_VOLUME_CLAIMS, name, "default")
        return pvc if (pvc.get("status") or {}).get("phase") == "Bound" else None

    return await first_answer(bound_claim, seconds=PATIENCE, pause=0.05)


@pytest.mark.row("22")
async def test_a_persistent_volume_created_by_hand_keeps_what_a_pod_wrote(node: RunningNode, tmp_path: Path) -> None:
    """A class that exists only by name, a selector, and a claim that shows more than it asked for."""
    where = tmp_path / "mnt"
    pv = volume("mnist", "10Gi", labels={"app": "mnist"}, hostPath={"path": str(where)})
    await node.client.create(PERSISTENT_VOLUMES, pv)
    pvc = claim("mnist", "3Gi", selector={"matchLabels": {"app": "mnist"}})
    await node.client.create(PERSISTENT_VOLUME_CLAIMS, pvc, "default")
    assert (await bound(node, "mnist"))["status"]["capacity"] == {"storage": "10Gi"}
    await node.script("train", "echo weights > /mnt/ceph/mnist_cnn.pt", container=MOUNT, volumes=uses("mnist"))
    await node.phase("train", "Succeeded")
    assert (where / "mnist_cnn.pt").read_text() == "weights\n"


@pytest.mark.row("23")
@pytest.mark.parametrize("cls", ["csi-cephfs-sc", "k8s-storage-policy", None])
async def test_a_file_in_a_claim_is_visible_to_the_next_pod(node: RunningNode, cls: str | None) -> None:
    """Classes of other clusters stand for this machine's own, and the claim says so."""
    await node.client.create(PERSISTENT_VOLUME_CLAIMS, claim(cls=cls, accessModes=["ReadWriteMany"]), "default")
    pvc = await bound(node, "data")
    pv = await node.client.get(PERSISTENT_VOLUMES, pvc["spec"]["volumeName"])
    where = Path(pv["spec"]["local"]["path"])
    assert where.parent == node.plane.settings.volumes
    if cls is not None:
        await has_event(node, "data", "StorageClassAlias", f'storage class "{cls}" does not exist')
    await node.script("first", "echo hello > /mnt/ceph/code.py", container=MOUNT, volumes=uses("data"))
    await node.phase("first", "Succeeded")
    await node.script("second", "grep hello /mnt/ceph/code.py", container=MOUNT, volumes=uses("data"))
    await node.phase("second", "Succeeded")
    await node.client.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
    assert (where / "code.py").read_text() == "hello\n", "used by a pod, though one that has ended"
    for name in ("first", "second"):
        await node.client.delete(PODS, name, "default")

    async def gone() -> bool:
        return not where.exists() and await node.client.find(PERSISTENT_VOLUMES, pv["metadata"]["name"]) is None

    await first_answer(gone, seconds=PATIENCE, pause=0.05)


@pytest.mark.row("19")
async def test_a_host_path_of_the_wrong_type_gets_an_event(node: RunningNode, tmp_path: Path) -> None:
    wrong = [{"name": "v", "hostPath": {"path": str(tmp_path / "none"), "type": "Directory"}}]
    await node.script("p", "true", container=MOUNT, volumes=wrong)
    await has_event(node, "p", "FailedMount", f"hostPath type check failed: {tmp_path / 'none'} is not a directory")
    pod = await node.get("p")
    assert pod is not None and pod["status"]["phase"] == "Pending"


async def test_a_claim_is_expanded_if_its_class_allows_it(node: RunningNode) -> None:
    await node.client.create(PERSISTENT_VOLUME_CLAIMS, claim(cls=None), "default")
    pvc = await bound(node, "data")
    await node.client.patch(
        PERSISTENT_VOLUME_CLAIMS, "data", {"spec": {"resources": {"requests": {"storage": "5Gi"}}}}, "default"
    )

    async def grown() -> bool:
        now = await node.client.get(PERSISTENT_VOLUME_CLAIMS, "data", "default")
        pv = await node.client.get(PERSISTENT_VOLUMES, pvc["spec"]["volumeName"])
        sizes = (now["status"]["capacity"], pv["spec"]["capacity"])
        return sizes == ({"storage": "5Gi"}, {"storage": "5Gi"})

    await first_answer(grown, seconds=PATIENCE, pause=0.05)
    await has_event(node, "data", "VolumeResizeSuccessful", "Resize volume succeeded")


async def test_an_ephemeral_claim_is_deleted_with_its_pod(node: RunningNode) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"metadata": {"labels": {"for": "scratch"}}, "spec": spec}
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]
    await node.script("p", "touch /mnt/ceph/scratch", container=MOUNT, volumes=volumes)
    await node.phase("p", "Succeeded")
    pvc = await node.client.get(PERSISTENT_VOLUME_CLAIMS, "p-v", "default")
    assert pvc["metadata"]["labels"] == {"for": "scratch"}
    await node.client.delete(PODS, "p", "default")

    async def gone() -> bool:
        return await node.client.find(PERSISTENT_VOLUME_CLAIMS, "p-v", "default") is None

    await first_answer(gone, seconds=PATIENCE, pause=0.05)


@pytest.mark.parametrize("inside", ["credentials", "volumes", "."])
async def test_the_state_of_the_plane_cannot_be_a_host_path(node: RunningNode, tmp_path: Path, inside: str) -> None:
    wrong = [{"name": "v", "hostPath": {"path": str(tmp_path / "state" / inside)}}]
    await node.script("p", "cat /mnt/ceph/*", container=MOUNT, volumes=wrong)
    await has_event(node, "p", "FailedMount", "holds the node's own state")
    await node.client.delete(PODS, "p", "default", grace=0)
