"""The queue that the plane creates for the resources of its machine."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.queue.validation import STRATEGIES
from torchyard.controllers.queue.local_queues import machine_queue


def node(product: str = "", **allocatable: str) -> Object:
    labels = {"nvidia.com/gpu.product": product} if product else {}
    resources = {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "1Ti", **allocatable}
    return {"metadata": {"name": "here", "labels": labels}, "status": {"allocatable": resources}}


def test_a_machine_without_gpus_has_one_flavor() -> None:
    flavors, queue = machine_queue([node()])
    assert [flavor["metadata"]["name"] for flavor in flavors] == ["default-flavor"]
    [group] = queue["spec"]["resourceGroups"]
    assert group["flavors"][0]["resources"][:2] == [
        {"name": "cpu", "nominalQuota": "8"},
        {"name": "memory", "nominalQuota": "16Gi"},
    ]
    assert STRATEGIES["ClusterQueue"].validate(queue) == []


def test_each_gpu_product_has_a_flavor() -> None:
    flavors, queue = machine_queue([node("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", **{"nvidia.com/gpu": "2"})])
    assert flavors[1]["metadata"]["name"] == "gpu-a100-sxm4-40gb-mig-1g-5gb"
    assert flavors[1]["spec"]["nodeLabels"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}
    group = queue["spec"]["resourceGroups"][1]
    assert group["coveredResources"] == ["nvidia.com/gpu"]
    assert group["flavors"][0]["resources"] == [{"name": "nvidia.com/gpu", "nominalQuota": "2"}]
    assert STRATEGIES["ClusterQueue"].validate(queue) == []
    assert [STRATEGIES["ResourceFlavor"].validate(flavor) for flavor in flavors] == [[], []]
