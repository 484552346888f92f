"""kubernetes_asyncio: the official client's twin on asyncio."""

from __future__ import annotations

import asyncio
import sys

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.api_client import ApiClient

NAMESPACE = sys.argv[1]


async def main() -> None:
    await config.load_kube_config()
    async with ApiClient() as api:
        core = client.CoreV1Api(api)
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"app": "x"}), data={"k": "1"})
        created = await core.create_namespaced_config_map(NAMESPACE, body)
        assert created.metadata.uid
        service = client.V1Service(
            metadata=client.V1ObjectMeta(name="s", resource_version="v1"),
            spec=client.V1ServiceSpec(ports=[client.V1ServicePort(port=80)]),
        )
        assert (await core.create_namespaced_service(NAMESPACE, service)).spec.cluster_ip
        print("create")

        listed = await core.list_namespaced_config_map(NAMESPACE, label_selector="app in (x, y)")
        assert [item.metadata.name for item in listed.items] == ["a"]
        print("list")

        async def change() -> None:
            await asyncio.sleep(0.3)
            await core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"k": "2"}})

        changing = asyncio.create_task(change())
        version = listed.metadata.resource_version
        async with watch.Watch() as watcher:
            stream = watcher.stream(
                core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=20
            )
            async for event in stream:
                assert (event["type"], event["object"].data) == ("MODIFIED", {"k": "2"})
                break
        await changing
        print("watch")

        operations = [{"op": "add", "path": "/data/n", "value": "3"}]
        assert (await core.patch_namespaced_config_map("a", NAMESPACE, operations)).data == {"k": "2", "n": "3"}
        print("patch")

        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"x": "1"}}
        applied = await core.patch_namespaced_config_map(
            "applied", NAMESPACE, body, field_manager="tester", _content_type="application/apply-patch+yaml"
        )
        assert applied.metadata.managed_fields[0].operation == "Apply"
        print("apply")

        await core.delete_namespaced_config_map("a", NAMESPACE)
        try:
            await core.read_namespaced_config_map("a", NAMESPACE)
        except client.ApiException as error:
            assert error.status == 404
        else:
            raise AssertionError("still there")
        print("delete")


asyncio.run(main())
