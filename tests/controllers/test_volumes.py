"""Persistent volumes and claims, point by point: our controllers on a plane, and a real cluster's.

The tests are the same for both, so the real controllers are the reference. Tests that need a node are in
`test_volumes_on_a_node.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.controllers.conftest import Cluster
from tests.support import kubectl as kubectls
from tests.support.storage import claim, on_node, storage_class, volume

from torchyard.api.gvr import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from torchyard.api.objects import Object
from torchyard.api.volume import messages
from torchyard.controllers.local_provisioner import LocalVolumeProvisioner
from torchyard.core.volume.local import PROVISIONER
from torchyard.kube.informer_factory import InformerFactory


class Storage:
    """A storage class for every test, because volumes belong to no namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cls = f"class-{cluster.namespace}"

    def named(self, name: str) -> str:
        return f"{self.cluster.namespace}-{name}"

    async def volume(self, name: str, size: str = "1Gi", *, free: bool = True, **more: Any) -> None:
        """Create a volume, and wait until it is Available unless a claim takes it at once."""
        await self.cluster.create(PERSISTENT_VOLUMES, volume(self.named(name), size, **{"cls": self.cls, **more}))
        if free:
            await self.phase(PERSISTENT_VOLUMES, self.named(name), "Available")

    async def claim(self, name: str = "data", size: str = "1Gi", **more: Any) -> Object:
        return await self.cluster.create(PERSISTENT_VOLUME_CLAIMS, claim(name, size, **{"cls": self.cls, **more}))

    async def phase(self, ref: Any, name: str, phase: str) -> Object:
        return await self.cluster.becomes(ref, name, lambda item: (item.get("status") or {}).get("phase") == phase)

    async def bound(self, name: str, to: str) -> Object:
        claim = await self.phase(PERSISTENT_VOLUME_CLAIMS, name, "Bound")
        assert claim["spec"]["volumeName"] == self.named(to)
        return claim

    async def pending(self, name: str, reason: str, part: str) -> None:
        await self.cluster.event(name, reason, part=part)
        assert (await self.cluster.get(PERSISTENT_VOLUME_CLAIMS, name))["status"]["phase"] == "Pending"

    async def unscheduled(self, name: str, part: str) -> None:
        def holds(pod: Object) -> bool:
            conditions = (pod.get("status") or {}).get("conditions") or ()
            return any(
                condition["type"] == "PodScheduled" and part in condition.get("message", "") for condition in conditions
            )

        await self.cluster.becomes(PODS, name, holds)

    async def user(self, name: str, claim_name: str = "data", **spec: Any) -> None:
        await self.cluster.pod(
            name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}], **spec
        )

    async def default(self, name: str, **more: Any) -> None:
        await self.cluster.create(
            STORAGE_CLASSES,
            storage_class(name, annotations={"storageclass.kubernetes.io/is-default-class": "true"}, **more),
        )


@pytest.fixture
async def storage(cluster: Cluster) -> AsyncIterator[Storage]:
    if cluster.server is None:
        # The plane's default class would bind what the tests leave unbound.
        await cluster.becomes(STORAGE_CLASSES, "local", lambda _: True)
        await cluster.delete(STORAGE_CLASSES, "local")
    yield Storage(cluster)
    for item in (await cluster.client.list(STORAGE_CLASSES)).items:
        await cluster.delete(STORAGE_CLASSES, item["metadata"]["name"])


@asynccontextmanager
async def provisioner(cluster: Cluster, root: Path) -> AsyncIterator[Path]:
    """Our provisioner: the plane's own, or one next to a real cluster's binder."""
    if cluster.state is not None:
        yield cluster.state / "volumes"
        return
    informers = InformerFactory(cluster.client)
    maker = LocalVolumeProvisioner(cluster.client, informers, root=root, node="here")
    tasks = [asyncio.create_task(work) for work in (maker.run(), informers.run())]
    try:
        yield root
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_the_smallest_volume_that_is_large_enough_is_taken(storage: Storage) -> None:
    """Conformance point 01."""
    for name, size in (("large", "9Gi"), ("right", "3Gi"), ("small", "1Gi")):
        await storage.volume(name, size)
    await storage.claim(size="2Gi")
    await storage.bound("data", "right")


async def test_of_volumes_that_can_do_more_the_one_with_the_fewest_modes_is_taken(storage: Storage) -> None:
    """Conformance point 02."""
    await storage.volume("all", accessModes=["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"])
    await storage.volume("two", "5Gi", accessModes=["ReadWriteOnce", "ReadWriteMany"])
    await storage.volume("none", accessModes=["ReadOnlyMany"])
    await storage.claim(accessModes=["ReadWriteMany"])
    await storage.bound("data", "two")


async def test_classes_must_be_equal_and_the_empty_one_is_a_class_too(storage: Storage) -> None:
    """Conformance point 03."""
    await storage.volume("other", cls=f"{storage.cls}-other")
    label = {"for": storage.cluster.namespace}
    await storage.volume("without", cls="", labels=label)
    await storage.claim("classy")
    await storage.claim("without", cls="", selector={"matchLabels": label})
    await storage.bound("without", "without")
    await storage.pending("classy", messages.PROVISIONING_FAILED, messages.no_class(storage.cls))


async def test_a_selector_chooses_by_labels(storage: Storage) -> None:
    """Conformance point 04."""
    await storage.volume("slow", labels={"disk": "spinning"})
    await storage.volume("fast", "7Gi", labels={"disk": "flash"})
    await storage.claim(selector={"matchExpressions": [{"key": "disk", "operator": "In", "values": ["flash"]}]})
    await storage.bound("data", "fast")


async def test_block_claims_and_filesystem_volumes_do_not_match(storage: Storage) -> None:
    """Conformance point 05."""
    await storage.volume("files")
    await storage.volume("raw", "7Gi", volumeMode="Block")
    await storage.claim(volumeMode="Block")
    await storage.bound("data", "raw")


async def test_a_volume_reserved_for_the_claim_wins(storage: Storage) -> None:
    """Conformance point 06."""
    await storage.volume("free")
    reference = {"namespace": storage.cluster.namespace, "name": "data"}
    await storage.volume("reserved", "9Gi", claimRef=reference)
    await storage.claim()
    await storage.bound("data", "reserved")
    volume = await storage.cluster.get(PERSISTENT_VOLUMES, storage.named("reserved"))
    assert messages.BOUND_BY_CONTROLLER not in (volume["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    ("has", "why"),
    [
        ({"size": "1Mi"}, messages.TOO_SMALL),
        ({"cls": "another"}, messages.OTHER_CLASS),
        ({"volumeMode": "Block"}, messages.OTHER_MODE),
        ({"accessModes": ["ReadOnlyMany"]}, messages.OTHER_ACCESS),
    ],
    ids=["size", "class", "mode", "access"],
)
async def test_a_volume_named_by_the_claim_must_fit(storage: Storage, has: Object, why: str) -> None:
    """Conformance point 07."""
    await storage.volume("named", **has)
    name = storage.named("named")
    await storage.claim(volumeName=name)
    await storage.pending("data", messages.MISMATCH, messages.mismatch(name, why))


async def test_a_named_volume_is_bound_whatever_its_labels_and_one_that_is_taken_is_not(storage: Storage) -> None:
    """Conformance point 07."""
    await storage.volume("named", "5Gi")
    name = storage.named("named")
    await storage.claim("first", volumeName=name, selector={"matchLabels": {"no": "such"}})
    claim = await storage.bound("first", "named")
    assert messages.BOUND_BY_CONTROLLER not in claim["metadata"]["annotations"]
    await storage.claim("second", volumeName=name)
    await storage.pending("second", messages.FAILED_BINDING, messages.taken(name))


async def test_a_bound_claim_shows_the_volumes_capacity_and_modes(storage: Storage) -> None:
    """Conformance point 08."""
    await storage.volume("big", "10Gi", accessModes=["ReadWriteOnce", "ReadWriteMany"])
    await storage.claim(size="3Gi")
    status = (await storage.bound("data", "big"))["status"]
    assert (status["capacity"], status["accessModes"]) == ({"storage": "10Gi"}, ["ReadWriteOnce", "ReadWriteMany"])


@pytest.mark.parametrize("written", ["volume", "volume and phase", "claim"])
async def test_a_binding_left_half_done_is_completed(storage: Storage, written: str) -> None:
    """Conformance point 09: each state that a binder leaves when it is killed between two of its four writes."""
    cluster, name = storage.cluster, storage.named("half")
    pending_claim = await cluster.create(
        PERSISTENT_VOLUME_CLAIMS, claim(cls="", selector={"matchLabels": {"nothing": "yet"}})
    )
    metadata = pending_claim["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        **{key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")},
    }
    half = volume(name, cls="", claimRef=reference)
    half["metadata"]["annotations"] = {messages.BOUND_BY_CONTROLLER: messages.YES}
    await cluster.create(PERSISTENT_VOLUMES, half)
    if written != "volume":
        await cluster.patch(PERSISTENT_VOLUMES, name, {"status": {"phase": "Bound"}}, subresource="status")
    if written == "claim":
        marks = {messages.BOUND_BY_CONTROLLER: messages.YES, messages.BIND_COMPLETED: messages.YES}
        await cluster.patch(
            PERSISTENT_VOLUME_CLAIMS, "data", {"metadata": {"annotations": marks}, "spec": {"volumeName": name}}
        )
    bound_claim = await storage.bound("data", "half")
    assert bound_claim["status"]["capacity"] == {"storage": "1Gi"}
    assert bound_claim["metadata"]["annotations"][messages.BIND_COMPLETED] == messages.YES
    await storage.phase(PERSISTENT_VOLUMES, name, "Bound")


async def test_of_two_claims_for_one_volume_one_gets_it(storage: Storage) -> None:
    """Conformance point 10."""
    await asyncio.gather(*(storage.claim(name) for name in ("a", "b", "c")))
    await storage.volume("only", free=False)
    volume = await storage.phase(PERSISTENT_VOLUMES, storage.named("only"), "Bound")
    winner = volume["spec"]["claimRef"]["name"]
    await storage.bound(winner, "only")
    for name in {"a", "b", "c"} - {winner}:
        await storage.pending(name, messages.PROVISIONING_FAILED, storage.cls)


async def test_a_claim_without_a_class_gets_the_default_one_now_or_later(storage: Storage) -> None:
    """Conformance point 11."""
    await storage.claim("early", cls=None)
    await storage.claim("none", cls="")
    await storage.pending("early", messages.FAILED_BINDING, messages.NO_VOLUME)
    await storage.default(storage.cls)
    await storage.claim("late", cls=None)
    for name in ("late", "early"):  # the server itself may not have seen the default class yet
        await storage.cluster.becomes(
            PERSISTENT_VOLUME_CLAIMS, name, lambda item: item["spec"].get("storageClassName") == storage.cls
        )
    assert (await storage.cluster.get(PERSISTENT_VOLUME_CLAIMS, "none"))["spec"]["storageClassName"] == ""


async def test_an_unknown_class_gets_an_event_and_is_used_once_it_exists(storage: Storage) -> None:
    """Conformance point 12."""
    await storage.claim()
    await storage.pending("data", messages.PROVISIONING_FAILED, messages.no_class(storage.cls))
    await storage.cluster.create(STORAGE_CLASSES, storage_class(storage.cls, provisioner="example.com/disks"))
    await storage.pending("data", *messages.external("example.com/disks"))
    claim = await storage.cluster.get(PERSISTENT_VOLUME_CLAIMS, "data")
    assert claim["metadata"]["annotations"][messages.PROVISIONER] == "example.com/disks"


async def test_a_wait_for_first_consumer_claim_names_its_pod(storage: Storage) -> None:
    """Conformance point 13."""
    cluster = storage.cluster
    await cluster.create(STORAGE_CLASSES, storage_class(storage.cls, waits=True))
    await storage.claim()
    await storage.pending("data", *messages.waiting([]))
    assert messages.PROVISIONER not in (
        (await cluster.get(PERSISTENT_VOLUME_CLAIMS, "data"))["metadata"].get("annotations") or {}
    )
    await storage.user("late", nodeSelector={"no": "such"})
    await storage.pending("data", *messages.waiting(["late"]))


async def test_the_scheduler_sets_the_selected_node_for_the_provisioner(storage: Storage) -> None:
    """Conformance point 13."""
    cluster, node = storage.cluster, f"{storage.cluster.namespace}-node"
    await cluster.create(STORAGE_CLASSES, storage_class(storage.cls, provisioner="example.com/disks", waits=True))
    await storage.claim()
    await cluster.node(node)
    await storage.user("p", nodeSelector={"kubernetes.io/hostname": node})
    claim = await cluster.becomes(
        PERSISTENT_VOLUME_CLAIMS,
        "data",
        lambda item: messages.PROVISIONER in (item["metadata"].get("annotations") or {}),
    )
    assert claim["metadata"]["annotations"][messages.SELECTED_NODE] == node
    # What a provisioner does then.
    reference = {key: claim["metadata"][key] for key in ("namespace", "name", "uid")}
    reference |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    await cluster.create(PERSISTENT_VOLUMES, volume(storage.named("made"), cls=storage.cls, claimRef=reference))
    await storage.bound("data", "made")
    await cluster.becomes(PODS, "p", lambda pod: pod["spec"].get("nodeName") == node)


async def test_a_volume_with_node_affinity_determines_the_node_of_its_pod(storage: Storage) -> None:
    """Conformance point 13."""
    cluster, nodes = storage.cluster, [f"{storage.cluster.namespace}-{name}" for name in ("a", "b")]
    await cluster.create(STORAGE_CLASSES, storage_class(storage.cls, provisioner=messages.NO_PROVISIONER, waits=True))
    for node in nodes:
        await cluster.node(node)
    await storage.volume("there", nodeAffinity=on_node(nodes[1]))
    await storage.claim()
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    await storage.user("p", affinity={"nodeAffinity": required})
    await storage.bound("data", "there")
    await cluster.becomes(PODS, "p", lambda pod: pod["spec"].get("nodeName") == nodes[1])


async def test_a_pod_with_an_unbound_claim_is_pending_with_a_message(storage: Storage) -> None:
    """Conformance point 14."""
    cluster, node = storage.cluster, f"{storage.cluster.namespace}-node"
    await cluster.node(node)
    await storage.claim()
    await storage.user("unbound", nodeSelector={"kubernetes.io/hostname": node})
    await storage.user("missing", "nothing", nodeSelector={"kubernetes.io/hostname": node})
    await storage.unscheduled("unbound", messages.UNBOUND)
    await storage.unscheduled("missing", messages.claim_missing("nothing"))
    await storage.volume("late", free=False)
    await cluster.becomes(PODS, "unbound", lambda pod: pod["spec"].get("nodeName") == node)


async def test_a_claim_in_use_is_protected_until_its_pod_is_gone(storage: Storage) -> None:
    """Conformance point 15."""
    cluster = storage.cluster
    await storage.volume("v")
    await storage.claim()
    await storage.bound("data", "v")
    await storage.user("user", node="some-node")
    await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "data")
    held = await cluster.becomes(
        PERSISTENT_VOLUME_CLAIMS, "data", lambda item: item["metadata"].get("deletionTimestamp")
    )
    assert held["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    await storage.claim("unused", cls=f"{storage.cls}-nothing")
    await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "unused")
    await cluster.gone(PERSISTENT_VOLUME_CLAIMS, "unused")
    assert await cluster.find(PERSISTENT_VOLUME_CLAIMS, "data") is not None
    await cluster.delete(PODS, "user", grace=0)
    await cluster.gone(PERSISTENT_VOLUME_CLAIMS, "data")


async def test_a_retained_volume_is_released_and_available_again_without_its_claim_ref(storage: Storage) -> None:
    """Conformance point 16."""
    cluster, name = storage.cluster, storage.named("kept")
    await storage.volume("kept")
    await storage.claim("first")
    await storage.bound("first", "kept")
    await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "first")
    await storage.phase(PERSISTENT_VOLUMES, name, "Released")
    await storage.claim("second")
    await storage.pending("second", messages.PROVISIONING_FAILED, storage.cls)
    await cluster.patch(PERSISTENT_VOLUMES, name, {"spec": {"claimRef": None}})
    await storage.bound("second", "kept")


async def test_deleting_a_claim_deletes_its_volume_and_data(storage: Storage, tmp_path: Path) -> None:
    """Conformance point 17."""
    cluster = storage.cluster
    async with provisioner(cluster, tmp_path / "volumes") as root:
        await cluster.create(
            STORAGE_CLASSES, storage_class(storage.cls, provisioner=PROVISIONER, reclaimPolicy="Delete")
        )
        await storage.claim()
        claim = await storage.phase(PERSISTENT_VOLUME_CLAIMS, "data", "Bound")
        name = claim["spec"]["volumeName"]
        assert name == f"pvc-{claim['metadata']['uid']}"
        await cluster.event("data", "ProvisioningSucceeded", part=f"Successfully provisioned volume {name}")
        directory = root / f"{name}_{cluster.namespace}_data"
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "model.pt").write_text("weights")
        await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "data")
        await cluster.gone(PERSISTENT_VOLUMES, name)
        assert not directory.exists()


async def test_a_volume_without_a_deleter_fails_with_a_message(storage: Storage) -> None:
    """Conformance point 17."""
    cluster, name = storage.cluster, storage.named("stuck")
    reference = {"namespace": cluster.namespace, "name": "gone", "uid": "gone"}
    manifest = volume(name, cls=storage.cls, persistentVolumeReclaimPolicy="Delete", claimRef=reference)
    del manifest["spec"]["hostPath"]
    manifest["spec"]["nfs"] = {"server": "example.com", "path": "/x"}
    await cluster.create(PERSISTENT_VOLUMES, manifest)
    failed_volume = await storage.phase(PERSISTENT_VOLUMES, name, "Failed")
    assert failed_volume["status"]["message"] == messages.no_deleter(name)
    await cluster.event(name, "VolumeFailedDelete", namespace="default")


async def test_a_bound_volume_is_protected_and_a_claim_without_its_volume_is_lost(
    storage: Storage,
) -> None:
    """Conformance point 18."""
    cluster, name = storage.cluster, storage.named("v")
    await storage.volume("v")
    await storage.claim()
    await storage.bound("data", "v")
    await storage.phase(PERSISTENT_VOLUMES, name, "Bound")
    await cluster.delete(PERSISTENT_VOLUMES, name)
    held = await cluster.becomes(PERSISTENT_VOLUMES, name, lambda item: item["metadata"].get("deletionTimestamp"))
    assert held["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert (await cluster.get(PERSISTENT_VOLUME_CLAIMS, "data"))["status"]["phase"] == "Bound"
    await cluster.patch(PERSISTENT_VOLUMES, name, {"metadata": {"finalizers": None}})
    await cluster.gone(PERSISTENT_VOLUMES, name)
    await storage.phase(PERSISTENT_VOLUME_CLAIMS, "data", "Lost")
    await cluster.event("data", messages.LOST, part=messages.LOST_VOLUME)


async def test_a_read_write_once_pod_claim_excludes_a_second_pod(storage: Storage) -> None:
    """Conformance point 20."""
    cluster, node = storage.cluster, f"{storage.cluster.namespace}-node"
    await cluster.node(node)
    await storage.volume("one", accessModes=["ReadWriteOncePod"])
    await storage.claim(accessModes=["ReadWriteOncePod"])
    await storage.bound("data", "one")
    here = {"kubernetes.io/hostname": node}
    await storage.user("first", nodeSelector=here)
    await cluster.becomes(PODS, "first", lambda pod: pod["spec"].get("nodeName"))
    await storage.user("second", nodeSelector=here)
    await storage.unscheduled("second", messages.ONE_POD)
    await cluster.delete(PODS, "first", grace=0)
    await cluster.becomes(PODS, "second", lambda pod: pod["spec"].get("nodeName"))


async def test_kubectl_prints_upstreams_columns(storage: Storage, tmp_path: Path) -> None:
    """Conformance point 21."""
    cluster = storage.cluster
    await storage.default(storage.cls)
    await storage.volume("v", "10Gi")
    await storage.claim(size="3Gi")
    await storage.bound("data", "v")
    newest = kubectls.need()
    config = (
        cluster.server.kubeconfig if cluster.server else cluster.state / "kubeconfig" if cluster.state else tmp_path
    )
    kubectl = newest.using(config, tmp_path, cluster.namespace)
    name = storage.named("v")
    lines = {
        resource: (await asyncio.to_thread(kubectl.run, "get", *resource.split())).stdout.splitlines()
        for resource in (f"pv {name}", "pvc data", f"sc {storage.cls}")
    }
    shown = {resource: (" ".join(head.split()), " ".join(row.split()[:-1])) for resource, (head, row) in lines.items()}
    assert shown == {
        f"pv {name}": (
            "NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS VOLUMEATTRIBUTESCLASS REASON AGE",
            f"{name} 10Gi RWO Retain Bound {cluster.namespace}/data {storage.cls} <unset>",
        ),
        "pvc data": (
            "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE",
            f"data Bound {name} 10Gi RWO {storage.cls} <unset>",
        ),
        f"sc {storage.cls}": (
            "NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE",
            f"{storage.cls} (default) example.com/none Delete Immediate false",
        ),
    }


async def test_an_ephemeral_volume_gets_its_own_claim_and_uses_no_other_of_that_name(storage: Storage) -> None:
    cluster, node = storage.cluster, f"{storage.cluster.namespace}-node"
    await cluster.node(node)
    await storage.claim("taken-v")
    spec = claim(cls=storage.cls)["spec"]
    for name in ("own", "taken"):
        volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]
        await cluster.pod(name, volumes=volumes, nodeSelector={"kubernetes.io/hostname": node})
    own_claim = await cluster.becomes(PERSISTENT_VOLUME_CLAIMS, "own-v", lambda _: True)
    assert [owner["name"] for owner in own_claim["metadata"]["ownerReferences"]] == ["own"]
    await storage.unscheduled("taken", "was not created for pod")
    await cluster.delete(PODS, "own", grace=0)
    await cluster.gone(PERSISTENT_VOLUME_CLAIMS, "own-v")
