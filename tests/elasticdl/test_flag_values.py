"""Volumes, environments and resources as ElasticDL's flags write them."""

from __future__ import annotations

import pytest

from torchyard.elasticdl import flag_values
from torchyard.elasticdl.flag_values import BadFlag


def test_a_host_path_is_mounted_as_in_the_tutorial() -> None:
    parsed = flag_values.volumes("host_path=/home/me/data,mount_path=/data", "w-0")
    assert parsed.volumes == [{"name": "w-0-volume-0", "hostPath": {"path": "/home/me/data"}}]
    assert parsed.mounts == [{"name": "w-0-volume-0", "mountPath": "/data"}]


def test_the_same_source_twice_is_one_volume_with_two_mounts() -> None:
    parsed = flag_values.volumes(
        "claim_name=c,mount_path=/a;claim_name=c,mount_path=/b,sub_path=x;host_path=/h,mount_path=/h,type=Directory",
        "p",
    )
    assert [volume["name"] for volume in parsed.volumes] == ["p-volume-0", "p-volume-1"]
    assert parsed.volumes[0]["persistentVolumeClaim"] == {"claimName": "c", "readOnly": False}
    assert parsed.volumes[1]["hostPath"] == {"path": "/h", "type": "Directory"}
    assert [mount.get("subPath") for mount in parsed.mounts] == [None, "x", None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("host_path=/a,mount_path=/a,mount_path=/b", "occurs twice"),
        ("host_path=/a,mount=/a", "mount is not a known key"),
        ("mount_path=/a", "has no source"),
        ("claim_name=c", "has no mount_path"),
        ("claim_name", "is not KEY=VALUE"),
    ],
)
def test_an_invalid_volume_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadFlag, match=reason):
        flag_values.volumes(text, "p")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("USE_TORCH=true,HOROVOD_GLOO_TIMEOUT_SECONDS=60", {"USE_TORCH": "true", "HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}),
        ("hosts=a,b,c,mode=fast", {"hosts": "a,b,c", "mode": "fast"}),
        ("last=x,y", {"last": "x,y"}),
    ],
)
def test_values_of_variables_may_contain_commas(text: str, expected: dict[str, str]) -> None:
    assert flag_values.environment(text) == expected


@pytest.mark.parametrize("text", ["a", "a=1=2", "=1"])
def test_ambiguous_variables_are_refused(text: str) -> None:
    with pytest.raises(BadFlag, match="KEY=VALUE"):
        flag_values.environment(text)


def test_resources_get_their_kubernetes_names() -> None:
    resources = flag_values.resources("cpu=250m,memory=32Mi,disk=1Gi,gpu=1", flag="--x")
    assert resources == {"cpu": "250m", "memory": "32Mi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1"}
    assert flag_values.resources("amd.com/gpu=2", flag="--x") == {"amd.com/gpu": "2"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cpu=lots", "is not a valid quantity"),
        ("memory=1024", "is not a valid quantity"),
        ("memory=0512Mi", "is not a valid quantity"),
        ("gpu=0.5", "is not a number of devices"),
        ("tpu=1", "tpu is not a known resource"),
        ("cpu=1,cpu=2", "occurs twice"),
        ("disk=1Gi,ephemeral-storage=1Gi", "occurs twice"),
    ],
)
def test_invalid_resources_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadFlag, match=reason):
        flag_values.resources(text, flag="--worker_resource_request")


def test_a_missing_limit_is_the_request() -> None:
    assert flag_values.container_resources("cpu=1", "", flag="--x") == {
        "requests": {"cpu": "1"},
        "limits": {"cpu": "1"},
    }
    assert flag_values.container_resources("cpu=1", "cpu=2", flag="--x")["limits"] == {"cpu": "2"}
