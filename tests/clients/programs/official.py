"""The official Python client: typed calls, the dynamic client, watches, patches, server-side apply."""

from __future__ import annotations

import sys
import threading

from kubernetes import client, config, dynamic, utils, watch

NAMESPACE = sys.argv[1]


def main() -> None:  # noqa: PLR0915 - the script of a user, read top-down
    config.load_kube_config()
    core, batch = client.CoreV1Api(), client.BatchV1Api()

    created = core.create_namespaced_config_map(
        NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"app": "x"}), data={"k": "1"})
    )
    assert created.metadata.uid
    container = client.V1Container(name="main", image="busybox", resources={"requests": {"cpu": "1"}})
    pod = client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=client.V1PodSpec(containers=[container]))
    assert core.create_namespaced_pod(NAMESPACE, pod).status.phase == "Pending"
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=[container]))
    job = client.V1Job(metadata=client.V1ObjectMeta(name="j"), spec=client.V1JobSpec(template=template, suspend=True))
    assert batch.create_namespaced_job(NAMESPACE, job).spec.completions == 1
    print("create")

    listed = core.list_namespaced_config_map(NAMESPACE, label_selector="app=x", limit=1)
    assert [item.metadata.name for item in listed.items] == ["a"]
    assert core.list_namespaced_pod(NAMESPACE, field_selector="status.phase=Pending").items[0].metadata.name == "p"
    assert any(item.metadata.name == NAMESPACE for item in core.list_namespace().items)
    print("list")

    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    changing = threading.Timer(0.3, lambda: core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"k": "2"}}))
    changing.start()
    watcher = watch.Watch()
    for event in watcher.stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=20
    ):
        assert (event["type"], event["object"].data) == ("MODIFIED", {"k": "2"})
        watcher.stop()
    changing.join()
    print("watch")

    merged = core.patch_namespaced_config_map("a", NAMESPACE, {"metadata": {"labels": {"app": None, "b": "1"}}})
    assert merged.metadata.labels == {"b": "1"}
    operations = [{"op": "replace", "path": "/data/k", "value": "3"}]
    assert core.patch_namespaced_config_map("a", NAMESPACE, operations).data == {"k": "3"}
    merged.data = {"k": "4"}
    merged.metadata.resource_version = None
    assert core.replace_namespaced_config_map("a", NAMESPACE, merged).data == {"k": "4"}
    print("patch")

    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"x": "1"}}
    utils.create_from_dict(client.ApiClient(), {**body, "metadata": {"name": "from-dict"}}, namespace=NAMESPACE)
    resources = dynamic.DynamicClient(client.ApiClient())
    maps = resources.resources.get(api_version="v1", kind="ConfigMap")
    applied = maps.server_side_apply(body=body, name="applied", namespace=NAMESPACE, field_manager="tester")
    assert (applied.data.x, applied.metadata.managedFields[0].manager) == ("1", "tester")
    assert {item.metadata.name for item in maps.get(namespace=NAMESPACE).items} >= {"a", "applied", "from-dict"}
    jobs = resources.resources.get(api_version="batch/v1", kind="Job")
    assert jobs.get(name="j", namespace=NAMESPACE).spec.suspend is True
    print("apply")

    core.delete_namespaced_config_map("a", NAMESPACE)
    batch.delete_namespaced_job("j", NAMESPACE, propagation_policy="Background")
    core.delete_namespaced_pod("p", NAMESPACE, grace_period_seconds=0)
    try:
        core.read_namespaced_config_map("a", NAMESPACE)
    except client.ApiException as error:
        assert (error.status, "not found" in str(error.body)) == (404, True)
    else:
        raise AssertionError("still there")
    core.delete_collection_namespaced_config_map(NAMESPACE, field_selector="metadata.name=from-dict")
    print("delete")


main()
