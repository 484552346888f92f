"""lightkube: typed resources, server-side apply, wait; strict about content types."""

from __future__ import annotations

import sys
import threading

from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

NAMESPACE = sys.argv[1]


def main() -> None:
    client = Client(namespace=NAMESPACE, field_manager="tester")
    created = client.create(ConfigMap(metadata=ObjectMeta(name="a", labels={"app": "x"}), data={"k": "1"}))
    assert created.metadata.uid
    pod = Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=[Container(name="main", image="busybox")]))
    assert client.create(pod).status.phase == "Pending"
    print("create")

    assert [item.metadata.name for item in client.list(ConfigMap, labels={"app": "x"})] == ["a"]
    assert [item.metadata.name for item in client.list(Pod, fields={"status.phase": "Pending"})] == ["p"]
    print("list")

    changing = threading.Timer(0.3, lambda: client.patch(ConfigMap, "a", {"data": {"k": "2"}}))
    changing.start()
    for event, config_map in client.watch(ConfigMap, labels={"app": "x"}, server_timeout=20):
        if event == "MODIFIED":
            assert config_map.data == {"k": "2"}
            break
    changing.join()
    print("watch")

    merged = client.patch(ConfigMap, "a", {"data": {"k": None, "n": "3"}}, patch_type=PatchType.MERGE)
    assert merged.data == {"n": "3"}
    operations = [{"op": "replace", "path": "/data/n", "value": "4"}]
    assert client.patch(ConfigMap, "a", operations, patch_type=PatchType.JSON).data == {"n": "4"}
    merged = client.get(ConfigMap, "a")
    merged.data["m"] = "5"
    assert client.replace(merged).data == {"n": "4", "m": "5"}
    print("patch")

    applied = client.apply(ConfigMap(apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="b"), data={"x": "1"}))
    assert applied.metadata.managedFields[0].manager == "tester"
    Lease = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
    lease = Lease(metadata={"name": "l"}, spec={"holderIdentity": "me"})
    assert client.create(lease).spec["holderIdentity"] == "me"
    print("apply")

    client.delete(ConfigMap, "a")
    client.delete(Pod, "p", grace_period=0)
    try:
        client.get(ConfigMap, "a")
    except ApiError as error:
        assert (error.status.code, error.status.reason) == (404, "NotFound")
    else:
        raise AssertionError("still there")
    client.delete(ConfigMap, "b")
    print("delete")


main()
