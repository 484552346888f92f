"""Fields of pods on a running node: honoured, refused, or named in an event."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.node.conftest import RunningNode, running_node
from tests.node.support import machine, need_network, need_sandbox

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CONFIG_MAPS, PODS
from torchyard.api.objects import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user cannot give files to groups")
RUNTIME_CLASSES = GroupVersionResource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningNode]:
    need_sandbox()
    async with running_node(tmp_path_factory.mktemp("fields") / "state") as running:
        assert running.plane.agent
        context = running.plane.agent.context
        context.settings = replace(context.settings, storage_check_seconds=0.2)
        yield running


async def sandbox_failure(node: RunningNode, name: str) -> str:
    """The message of the event about a sandbox that could not be created."""
    for _ in range(3000):
        text = (await node.messages(name)).get("FailedCreatePodSandBox")
        if text:
            return text
        await asyncio.sleep(0.02)
    raise AssertionError(await node.messages(name))


async def test_ignored_fields_are_named_in_an_event(node: RunningNode) -> None:
    await node.script("ignored", "true", securityContext={"seLinuxOptions": {"level": "s0"}})
    await node.phase("ignored", "Succeeded")
    text = (await node.messages("ignored"))["FieldIgnored"]
    assert text == "spec.securityContext.seLinuxOptions: has no effect on this node: no SELinux labels are set"


async def test_a_pod_with_a_refused_field_does_not_start(node: RunningNode) -> None:
    volume = {"name": "huge", "emptyDir": {"medium": "HugePages"}}
    await node.script("refused", "true", volumes=[volume])
    text = await sandbox_failure(node, "refused")
    assert "spec.volumes[0].emptyDir.medium: is not supported by this node" in text
    assert "Started" not in await node.events("refused")


@pytest.mark.parametrize(
    ("name", "spec", "reason", "message"),
    [
        (
            "sysctl",
            {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}},
            "SysctlForbidden",
            'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted',
        ),
        (
            "windows",
            {"os": {"name": "windows"}},
            "PodOSNotSupported",
            "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
        ),
        (
            "apparmor",
            {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
            "AppArmor",
            "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ),
    ],
)
async def test_the_node_rejects_what_it_cannot_honour(
    node: RunningNode, name: str, spec: Object, reason: str, message: str
) -> None:
    await node.script(name, "true", **spec)
    pod = await node.phase(name, "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (reason, message)
    assert reason in await node.events(name)


async def test_an_unknown_runtime_handler_is_refused(node: RunningNode) -> None:
    handler = {"metadata": {"name": "gvisor"}, "handler": "runsc"}
    await node.client.create(RUNTIME_CLASSES, {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **handler})
    await node.script("gvisor", "true", runtimeClassName="gvisor")
    text = await sandbox_failure(node, "gvisor")
    assert text == 'Failed to create pod sandbox: no runtime for "runsc" is configured'


async def test_safe_sysctls_are_set_in_the_pod(node: RunningNode) -> None:
    need_network()
    settings = [
        {"name": "net.ipv4.tcp_keepalive_time", "value": "123"},
        {"name": "net/ipv4/ip_local_port_range", "value": "40000 40100"},
        {"name": "kernel.shm_rmid_forced", "value": "1"},
    ]
    files = "net/ipv4/tcp_keepalive_time net/ipv4/ip_local_port_range kernel/shm_rmid_forced"
    await node.script("sysctls", f"cd /proc/sys; cat {files}", securityContext={"sysctls": settings})
    await node.phase("sysctls", "Succeeded")
    assert (await node.log("sysctls")).split() == ["123", "40000", "40100", "1"]


@needs_root
async def test_files_of_volumes_belong_to_the_group(node: RunningNode) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "group"}, "data": {"key": "value"}}
    await node.client.create(CONFIG_MAPS, config, "default")
    volumes = [
        {"name": "empty", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "config", "configMap": {"name": "group", "defaultMode": 0o400}},
    ]
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    script = (
        "stat -c '%g %a %n' /empty /memory /config /config/..data/key; cat /config/key; echo;"
        "for d in /empty /memory; do touch $d/new; stat -c '%u %g' $d/new; done; id -G"
    )
    await node.script(
        "group",
        script,
        container={"volumeMounts": mounts},
        volumes=volumes,
        securityContext={"fsGroup": 2345, "runAsUser": 1000, "runAsGroup": 1000, "supplementalGroups": [77]},
    )
    await node.until("group", lambda pod: (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"))
    assert (await node.log("group")).splitlines() == [
        "2345 2777 /empty",
        "2345 3777 /memory",
        "2345 2777 /config",
        "2345 440 /config/..data/key",
        "value",
        "1000 2345",
        "1000 2345",
        "1000 77 2345",
    ]


async def test_host_name_and_environment_of_a_pod_with_its_full_name(node: RunningNode) -> None:
    await node.script("full", "hostname; cat /etc/hostname; echo $HOSTNAME", subdomain="sub", setHostnameAsFQDN=True)
    await node.phase("full", "Succeeded")
    assert set((await node.log("full")).split()) == {"full.sub.default.svc.cluster.local"}


async def test_a_full_name_that_is_too_long_is_refused(node: RunningNode) -> None:
    name = "a" * 60
    await node.script(name, "true", subdomain="sub", setHostnameAsFQDN=True)
    text = await sandbox_failure(node, name)
    assert "(64 characters is the max, 90 characters requested)" in text


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        (
            "volume",
            {"volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]},
            'Usage of EmptyDir volume "data" exceeds the limit "1Mi". ',
        ),
        (
            "pod",
            {"limits": {"ephemeral-storage": "3Mi"}, "volumes": [{"name": "data", "emptyDir": {}}]},
            "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ",
        ),
        (
            "container",
            {"limits": {"ephemeral-storage": "3Mi"}, "sidecar": {"ephemeral-storage": "100Mi"}, "path": "/tmp/file"},
            'Container main exceeded its local ephemeral storage limit "3Mi". ',
        ),
    ],
)
async def test_a_pod_over_its_storage_limit_is_evicted(
    node: RunningNode, name: str, spec: Object, message: str
) -> None:
    volumes = spec.get("volumes") or []
    mounts = [{"name": volume["name"], "mountPath": "/data"} for volume in volumes]
    path = spec.get("path", "/data/file")
    script = f"dd if=/dev/zero of={path} bs=1M count=5 2>/dev/null; exec sleep 1000"
    main: Object = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], "volumeMounts": mounts}
    main["resources"] = {"limits": spec.get("limits") or {}}
    containers = [main]
    if "sidecar" in spec:
        sleep: Object = {"name": "other", "image": "busybox", "command": ["sleep", "1000"]}
        containers.append({**sleep, "resources": {"limits": spec["sidecar"]}})
    pod_spec = {"containers": containers, "volumes": volumes, "terminationGracePeriodSeconds": 600}
    await node.create(name, pod_spec)
    pod = await node.phase(name, "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == ("Evicted", message)
    assert (await node.messages(name))["Evicted"] == message


async def test_limits_of_the_whole_pod_hold_for_its_containers_together(node: RunningNode) -> None:
    allocate = "x = bytearray(40 << 20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(60)"
    containers = [{"name": name, "image": "python:3", "command": ["python3", "-c", allocate]} for name in ("a", "b")]
    if not machine().cgroups.enforced:
        pytest.skip(f"no cgroups on this machine: {machine().cgroups.description}")
    spec = {"containers": containers, "resources": {"limits": {"memory": "64Mi"}}, "restartPolicy": "Never"}
    await node.create("together", spec)
    pod = await node.until(
        "together",
        lambda pod: [
            status
            for status in (pod.get("status") or {}).get("containerStatuses") or ()
            if status["state"].get("terminated")
        ],
    )
    states = [status["state"].get("terminated") or {} for status in pod["status"]["containerStatuses"]]
    assert "OOMKilled" in [state.get("reason") for state in states]
    await node.client.delete(PODS, "together", "default", grace=0)


async def test_an_oom_kill_of_a_child_is_the_reason_of_its_container(node: RunningNode) -> None:
    if not machine().cgroups.enforced:
        pytest.skip(f"no cgroups on this machine: {machine().cgroups.description}")
    child = "x = bytearray(200 << 20); x[::4096] = b'1' * len(x[::4096])"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); sys.exit(3)"
    for name, limit, reason in (("small", "64Mi", "OOMKilled"), ("large", "1Gi", "Error")):
        resources = {"limits": {"memory": limit}}
        container = {"name": "c", "image": "python:3", "command": ["python3", "-c", script], "resources": resources}
        await node.create(name, {"containers": [container], "restartPolicy": "Never"})
        ended = (await node.phase(name, "Failed"))["status"]["containerStatuses"][0]["state"]["terminated"]
        # version 2 kills the whole container
        assert (ended["reason"], ended["exitCode"]) in ((reason, 3), ("OOMKilled", 137)), ended
        assert (ended["reason"] == "OOMKilled") == (name == "small")


async def test_a_missing_key_is_named_with_its_namespace_and_a_failed_mount_with_its_volume(node: RunningNode) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    await node.client.create(CONFIG_MAPS, config_map, "default")
    reference = {"configMapKeyRef": {"name": "settings", "key": "nosuch"}}
    container = {"name": "c", "image": "python:3", "command": ["python3", "--version"]}
    await node.create("key", {"containers": [{**container, "env": [{"name": "A", "valueFrom": reference}]}]})
    volumes = [{"name": "data", "secret": {"secretName": "nosuch"}}]
    await node.create("no-secret", {"containers": [container], "volumes": volumes})
    for name, reason, message in (
        ("key", "Failed", "Error: couldn't find key nosuch in ConfigMap default/settings"),
        ("no-secret", "FailedMount", 'MountVolume.SetUp failed for volume "data" : secret "nosuch" not found'),
    ):
        async with asyncio.timeout(60):
            while (await node.messages(name)).get(reason) != message:
                await asyncio.sleep(0.02)


async def test_a_resize_changes_the_limits_of_a_running_container(node: RunningNode) -> None:
    support = machine().cgroups
    if not support.enforced:
        pytest.skip(f"no cgroups on this machine: {support.description}")
    limits = {"resources": {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}}
    await node.script("resized", "exec sleep 100", container=limits)
    pod = await node.phase("resized", "Running")
    larger = {"limits": {"memory": "128Mi"}, "requests": {"memory": "128Mi"}}
    patch = {"spec": {"containers": [{**pod["spec"]["containers"][0], "resources": larger}]}}
    await node.client.patch(PODS, "resized", patch, "default", subresource="resize")
    name = f"torchyard-{pod['metadata']['uid']}-main"
    files = ("memory.max", "memory.limit_in_bytes")
    for _ in range(3000):
        texts = [
            path.read_text().strip()
            for parent in support.parents
            for group in parent.rglob(name)
            for path in (group / file for file in files)
            if path.exists()
        ]
        if str(128 << 20) in texts:
            break
        await asyncio.sleep(0.02)
    else:
        raise AssertionError(texts)
    await node.client.delete(PODS, "resized", "default", grace=0)
