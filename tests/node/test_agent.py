"""Pods on the plane's own node: what the kubelet does, done here, seen through the API."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from pathlib import Path

import pytest
from tests.node import support
from tests.node.conftest import RunningNode

from torchyard.api.errors import YardError
from torchyard.api.gvr import CONFIG_MAPS, LEASES, NODES, PODS, SECRETS
from torchyard.api.objects import Object
from torchyard.node.images.store import ImageStore
from torchyard.node.pod import container_starter
from torchyard.node.pod.probes import ProbeManager
from torchyard.node.pod.sandbox import PodSandbox
from torchyard.node.pod.worker import PodWorker, SyncResult
from torchyard.node.shim import records
from torchyard.yard.plane import Plane


def state(pod: Object, name: str = "main") -> Object:
    every = pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
    status: Object = next(status for status in every if status["name"] == name)
    return status


def waiting(pod: Object) -> Object:
    statuses = pod["status"].get("containerStatuses") or [{}]
    waiting_state: Object = statuses[0].get("state", {}).get("waiting", {})
    return waiting_state


async def test_a_pod_runs_and_its_status_has_exit_code_and_message(node: RunningNode) -> None:
    await node.script("p", "echo hello; echo last words > /dev/termination-log; exit 3")
    pod = await node.phase("p", "Failed")
    ended = state(pod)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "last words\n")
    assert await node.log("p") == "hello\n"
    assert await node.events("p") == ["Pulled", "Created", "Started"]
    assert pod["status"]["hostIP"]
    assert pod["status"]["startTime"]


async def test_a_running_pod_is_ready_and_has_an_address(node: RunningNode) -> None:
    support.need_network()
    await node.script("p", "hostname -i; sleep 60")
    pod = await node.phase("p", "Running")
    assert pod["status"]["podIP"].startswith("10.244.0.")
    assert {condition["type"]: condition["status"] for condition in pod["status"]["conditions"]} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }


async def test_readiness_follows_the_conditions_that_others_set(node: RunningNode) -> None:
    def is_ready(pod: Object, wanted: str) -> bool:
        conditions = pod["status"].get("conditions") or ()
        return any((condition["type"], condition["status"]) == ("Ready", wanted) for condition in conditions)

    async def gate(status: str) -> None:
        patch = {"status": {"conditions": [{"type": "example.com/gate", "status": status}]}}
        await node.client.patch(PODS, "p", patch, "default", kind="strategic", subresource="status")

    await node.script("p", "sleep 60", readinessGates=[{"conditionType": "example.com/gate"}])
    pod = await node.until("p", lambda pod: pod["status"]["phase"] == "Running" and is_ready(pod, "False"))
    condition = next(condition for condition in pod["status"]["conditions"] if condition["type"] == "Ready")
    assert condition["reason"] == "ReadinessGatesNotReady"
    for status in ("True", "False", "True"):
        await gate(status)
        pod = await node.until("p", functools.partial(is_ready, wanted=status))
    assert [condition for condition in pod["status"]["conditions"] if "reason" in condition] == []


async def test_a_finished_pod_releases_its_address(node: RunningNode) -> None:
    support.need_network()
    assert node.plane.agent
    await node.script("first", "exit 0")
    ended = await node.phase("first", "Succeeded")
    address = ended["status"]["podIP"]
    addresses = node.plane.agent.context.addresses
    taken: list[str] = []
    end = time.monotonic() + 30
    while address not in taken and time.monotonic() < end:
        try:
            taken.append(addresses.allocate())
        except YardError:  # all others are allocated: it is released in a moment
            await asyncio.sleep(0.02)
    assert address in taken
    assert (await node.get("first") or {})["status"]["podIP"] == address, "the status keeps it"


async def test_init_containers_run_first_and_share_volumes(node: RunningNode) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]

    def append(number: int) -> list[str]:
        return ["sh", "-c", f"echo {number} >> /shared/f"]

    spec = {
        "restartPolicy": "Never",
        "initContainers": [
            {
                "name": "first",
                "image": "busybox",
                "command": ["sh", "-c", "echo 1 >> /shared/f"],
                "volumeMounts": mounts,
            },
            {
                "name": "second",
                "image": "busybox",
                "command": ["sh", "-c", "echo 2 >> /shared/f"],
                "volumeMounts": mounts,
            },
        ],
        "containers": [{"name": "main", "image": "busybox", "command": ["cat", "/shared/f"], "volumeMounts": mounts}],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    }
    if not support.machine().sandbox:
        pytest.skip("volumes at their path need the sandbox")
    await node.create("p", spec)
    pod = await node.phase("p", "Succeeded")
    assert await node.log("p") == "1\n2\n"
    assert [status["ready"] for status in pod["status"]["initContainerStatuses"]] == [True, True]


async def test_a_failing_container_is_restarted_then_backs_off(node: RunningNode) -> None:
    await node.script("p", "exit 1", policy="Always")
    pod = await node.until("p", lambda pod: waiting(pod).get("reason") == "CrashLoopBackOff")
    assert state(pod)["restartCount"] == 1
    assert pod["status"]["phase"] == "Running"
    assert "BackOff" in await node.events("p")


async def test_environment_has_values_from_every_kind_of_source(node: RunningNode) -> None:
    await node.client.create(
        CONFIG_MAPS,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"COLOUR": "red", "a-b": "x"},
        },
        "default",
    )
    await node.client.create(
        SECRETS,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"}, "data": {"key": "c2VjcmV0"}},
        "default",
    )
    env = [
        {"name": "PLAIN", "value": "v"},
        {"name": "BOTH", "value": "$(PLAIN)-$(COLOUR)-$$(PLAIN)-$(NONE)"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "key"}}},
        {"name": "MISSING", "valueFrom": {"configMapKeyRef": {"name": "nothing", "key": "x", "optional": True}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
    ]
    container = {
        "env": env,
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "resources": {"limits": {"cpu": "1500m"}, "requests": {"cpu": "1"}},
    }
    script = 'echo "$BOTH|$KEY|${MISSING-unset}|$POD|$IP|$CPU|$COLOUR|$OMP_NUM_THREADS"'
    await node.script("p", script, container=container)
    pod = await node.phase("p", "Succeeded")
    expected = (
        f"v-red-$(PLAIN)-$(NONE)|secret|unset|p|{pod['status']['podIP']}|1500|red|{min(2, os.cpu_count() or 1)}\n"
    )
    assert await node.log("p") == expected


async def test_changed_config_maps_secrets_and_labels_reach_a_running_pod(node: RunningNode) -> None:
    support.need_sandbox()
    for ref, kind in ((CONFIG_MAPS, "ConfigMap"), (SECRETS, "Secret")):
        source = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "c"}, "data": {"key": "b2xk"}}
        await node.client.create(ref, source, "default")
    sources: list[Object] = [
        {"secret": {"name": "c", "items": [{"key": "key", "path": "secret"}]}},
        {"downwardAPI": {"items": [{"path": "label", "fieldRef": {"fieldPath": "metadata.labels['l']"}}]}},
        {"serviceAccountToken": {"path": "token"}},
    ]
    volumes = [{"name": "c", "configMap": {"name": "c"}}, {"name": "p", "projected": {"sources": sources}}]
    mounts = [{"name": "c", "mountPath": "/c"}, {"name": "p", "mountPath": "/p"}]
    script = (
        "cp /p/token /tmp/before; while ! grep -q bmV3 /c/key || ! grep -q new /p/secret || ! grep -q new /p/label; "
        "do sleep 0.1; done; cmp /p/token /tmp/before"
    )
    await node.script("p", script, volumes=volumes, container={"volumeMounts": mounts})
    await node.phase("p", "Running")
    for ref in (CONFIG_MAPS, SECRETS):
        await node.client.patch(ref, "c", {"data": {"key": "bmV3"}}, "default")
    await node.client.patch(PODS, "p", {"metadata": {"labels": {"l": "new"}}}, "default")
    await node.phase("p", "Succeeded", seconds=60)


async def test_a_container_waits_until_its_config_map_exists(node: RunningNode) -> None:
    container = {"envFrom": [{"configMapRef": {"name": "late"}}]}
    await node.script("p", "echo $X", container=container)
    pod = await node.until(
        "p",
        lambda pod: (
            (pod["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {}).get("message")
        ),
    )
    assert waiting(pod) == {
        "reason": "CreateContainerConfigError",
        "message": 'configmap "late" not found',
    }
    late = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}, "data": {"X": "arrived"}}
    await node.client.create(CONFIG_MAPS, late, "default")
    await node.phase("p", "Succeeded")
    assert await node.log("p") == "arrived\n"


@pytest.mark.parametrize(
    ("image", "reasons", "words"),
    [
        ("example/missing:1", {"ErrImagePull", "ImagePullBackOff"}, "yard image build -t example/missing:1"),
        ("Not A Name", {"InvalidImageName"}, "invalid reference format"),
    ],
)
async def test_a_missing_image_has_a_message_that_says_what_to_do(
    node: RunningNode, image: str, reasons: set[str], words: str
) -> None:
    await node.create("p", {"containers": [{"name": "main", "image": image}]})
    pod = await node.until(
        "p",
        lambda pod: (
            (pod["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {}).get("message")
        ),
    )
    assert waiting(pod)["reason"] in reasons
    assert words in waiting(pod)["message"]


async def test_an_image_that_is_mapped_later_ends_the_pull_back_off(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_starter, "_PULL_FIRST", 3600.0)
    container = {"name": "main", "image": "made/later:1", "command": ["sh", "-c", "echo here"]}
    await node.create("p", {"restartPolicy": "Never", "containers": [container]})
    await node.until("p", lambda pod: waiting(pod).get("reason") == "ImagePullBackOff")
    assert node.plane.agent
    images = node.plane.agent.context.images
    ImageStore(images.directory, images.python).map("made/later:1", "busybox")  # as another process does
    await node.phase("p", "Succeeded", seconds=60)
    assert await node.log("p") == "here\n"


async def test_deletion_waits_for_the_grace_period_and_removes_the_directory(node: RunningNode) -> None:
    script = "trap 'echo stopping; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
    await node.script("p", script, terminationGracePeriodSeconds=20)
    pod = await node.phase("p", "Running")
    assert node.plane.agent
    pod_dir = node.plane.agent.context.settings.pods / pod["metadata"]["uid"]
    for _ in range(3000):
        if await node.log("p") == "ready\n":
            break
        await asyncio.sleep(0.02)
    await node.client.delete(PODS, "p", "default")
    await node.gone("p", seconds=10)
    for _ in range(3000):
        if not pod_dir.exists():
            break
        await asyncio.sleep(0.02)
    assert not pod_dir.exists()
    assert "Killing" in await node.events("p")


async def test_a_container_that_ignores_sigterm_is_killed_after_the_grace_period(node: RunningNode) -> None:
    await node.script("p", "trap '' TERM; while true; do sleep 1; done", terminationGracePeriodSeconds=1)
    await node.phase("p", "Running")
    await node.client.delete(PODS, "p", "default")
    await node.gone("p", seconds=10)


@pytest.mark.parametrize("hook", [False, True])
async def test_a_grace_period_that_a_second_deletion_shortens_ends_sooner(node: RunningNode, hook: bool) -> None:
    script = "trap '' TERM; while true; do sleep 1; done"
    lifecycle = {"preStop": {"exec": {"command": ["sleep", "600"]}}} if hook else {}
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], "lifecycle": lifecycle}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 2**63 - 1}
    await node.create("p", spec)
    await node.phase("p", "Running")
    await node.client.delete(PODS, "p", "default")
    await node.until("p", lambda pod: "deletionTimestamp" in pod["metadata"])
    await node.client.delete(PODS, "p", "default", grace=1)
    await node.gone("p", seconds=30)


async def test_a_forced_deletion_ends_the_processes(node: RunningNode) -> None:
    support.need_sandbox()
    await node.script("p", "exec sleep 98765", terminationGracePeriodSeconds=60)
    await node.phase("p", "Running")
    await node.client.delete(PODS, "p", "default", grace=0)
    for _ in range(3000):
        if not _running("98765"):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the process is still there")


def _running(mark: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    return True
            except OSError:
                continue
    return False


async def test_active_deadline_seconds_fails_a_pod(node: RunningNode) -> None:
    await node.script("p", "trap '' TERM; sleep 60 & wait", activeDeadlineSeconds=1)
    pod = await node.phase("p", "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (
        "DeadlineExceeded",
        "Pod was active on the node longer than the specified deadline",
    )


async def test_readiness_and_liveness_probes_set_ready_and_restart(node: RunningNode) -> None:
    container = {
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
        "livenessProbe": {
            "exec": {"command": ["sh", "-c", "! test -e /tmp/sick"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
    }
    support.need_sandbox()
    await node.script(
        "p", "sleep 1; touch /tmp/ready; sleep 2; touch /tmp/sick; sleep 60", policy="Always", container=container
    )
    pod = await node.phase("p", "Running")
    assert state(pod)["ready"] is False
    await node.until("p", lambda pod: state(pod)["ready"])
    pod = await node.until("p", lambda pod: state(pod)["restartCount"] == 1)
    assert "Unhealthy" in await node.events("p")


async def test_http_and_tcp_probes_connect_inside_the_pod(node: RunningNode) -> None:
    support.need_network()
    serve = "cd /tmp && echo ok > health && exec python3 -m http.server 8080"
    container = {
        "image": "python:3.11",
        "ports": [{"name": "web", "containerPort": 8080}],
        "startupProbe": {"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 20},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "web"}, "periodSeconds": 1},
    }
    await node.script("p", serve, container=container)
    pod = await node.until("p", lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("ready"))
    assert state(pod)["started"] is True


async def test_post_start_and_pre_stop_hooks_run(node: RunningNode) -> None:
    support.need_sandbox()
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", "echo post > /shared/post"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo pre > /shared/pre"]}},
    }
    shared = node.plane.settings.state.parent / "hooks"
    shared.mkdir()
    container = {"lifecycle": hooks, "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    volumes = [{"name": "shared", "hostPath": {"path": str(shared)}}]
    await node.script("p", "trap 'exit 0' TERM; while true; do sleep 0.05; done", container=container, volumes=volumes)
    await node.phase("p", "Running")
    await node.client.delete(PODS, "p", "default", grace=10)
    await node.gone("p")
    assert (shared / "post").read_text() == "post\n"
    assert (shared / "pre").read_text() == "pre\n"


async def test_a_volume_that_cannot_be_mounted_gets_an_event_and_is_retried(node: RunningNode, tmp_path: Path) -> None:
    support.need_sandbox()
    directory = tmp_path / "later"
    volumes = [{"name": "v", "hostPath": {"path": str(directory), "type": "Directory"}}]
    container = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    await node.script("p", "ls /v", container=container, volumes=volumes)
    for _ in range(3000):
        if "FailedMount" in await node.events("p"):
            break
        await asyncio.sleep(0.02)
    directory.mkdir()
    (directory / "here").touch()
    await node.phase("p", "Succeeded")
    assert await node.log("p") == "here\n"


async def test_a_restarted_agent_adopts_running_pods(node: RunningNode, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    container = {"volumeMounts": [{"name": "marks", "mountPath": str(marks)}]}
    volumes = [{"name": "marks", "hostPath": {"path": str(marks)}}]
    await node.script("p", f"mktemp {marks}/XXXXXX; sleep 2; exit 7", container=container, volumes=volumes)
    before = await node.phase("p", "Running")
    settings = node.plane.settings
    assert node.plane.agent
    pod_dir = node.plane.agent.context.settings.pods / before["metadata"]["uid"]
    await node.plane.__aexit__()
    for _ in range(1500):
        record = records.read_record(str(pod_dir), "main", 0)
        if record and record["state"] == records.EXITED:
            break
        await asyncio.sleep(0.02)
    async with Plane(settings) as plane:
        restarted = RunningNode(plane)
        after = await restarted.phase("p", "Failed")
        assert state(after)["state"]["terminated"]["exitCode"] == 7
        assert state(after)["containerID"] == state(before)["containerID"]
    assert len(list(marks.iterdir())) == 1


async def test_a_running_pod_whose_volume_source_is_gone_is_adopted_and_can_be_deleted(node: RunningNode) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"key": "value"}}
    await node.client.create(CONFIG_MAPS, config, "default")
    volumes = [{"name": "config", "configMap": {"name": "config"}}]
    container = {"volumeMounts": [{"name": "config", "mountPath": "/config"}]}
    await node.script("p", "sleep 600", container=container, volumes=volumes)
    before = await node.phase("p", "Running")
    settings = node.plane.settings
    await node.client.delete(CONFIG_MAPS, "config", "default")
    await node.plane.__aexit__()
    async with Plane(settings) as plane:
        client = plane.client("test")
        await client.delete(PODS, "p", "default", grace=1)
        for _ in range(1500):
            if await client.find(PODS, "p", "default") is None:
                break
            await asyncio.sleep(0.02)
        assert await client.find(PODS, "p", "default") is None
    assert not support.processes_with(before["metadata"]["uid"])


async def test_a_killed_shim_fails_its_pod_with_a_message(node: RunningNode) -> None:
    await node.script("p", "sleep 60")
    pod = await node.phase("p", "Running")
    assert node.plane.agent
    pod_dir = node.plane.agent.context.settings.pods / pod["metadata"]["uid"]
    os.kill(int((pod_dir / "shim.lock").read_text()), 9)
    pod = await node.phase("p", "Failed")
    ended = state(pod)["state"]["terminated"]
    assert ended["exitCode"] == 137
    assert "supervised" in ended["message"]


async def test_a_shim_that_dies_during_adoption_fails_its_pod(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.script("p", "sleep 60")
    await node.phase("p", "Running")
    settings = node.plane.settings
    await node.plane.__aexit__()
    real_alive = PodSandbox.alive

    async def alive_once(sandbox: PodSandbox) -> bool:
        replied = await real_alive(sandbox)
        os.kill(int((sandbox.dir.path / "shim.lock").read_text()), 9)
        monkeypatch.setattr(PodSandbox, "alive", real_alive)
        return replied

    monkeypatch.setattr(PodSandbox, "alive", alive_once)
    async with Plane(settings) as plane:
        pod = await RunningNode(plane).phase("p", "Failed")
        assert state(pod)["state"]["terminated"]["exitCode"] == 137


async def test_a_pod_whose_worker_fails_and_cannot_be_ended_gets_another(
    node: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, close, failures = PodWorker._sync, ProbeManager.close, ["sync", "close"]

    async def fail_once(worker: PodWorker) -> SyncResult:
        if "sync" in failures:
            failures.remove("sync")
            raise KeyError("unexpected")
        return await sync(worker)

    async def close_once(probes: ProbeManager) -> None:
        if "close" in failures:
            failures.remove("close")
            raise KeyError("unexpected")
        await close(probes)

    monkeypatch.setattr(PodWorker, "_sync", fail_once)
    monkeypatch.setattr(ProbeManager, "close", close_once)
    await node.script("p", "exit 0")
    await node.phase("p", "Succeeded")
    assert not failures


async def test_the_node_has_its_rung_as_a_label_and_renews_its_lease(node: RunningNode) -> None:
    node_object = await node.client.get(NODES, "here")
    assert node_object["metadata"]["labels"]["torchyard.dev/runtime"] == support.machine().rung
    ready = {condition["type"]: condition["status"] for condition in node_object["status"]["conditions"]}
    assert ready["Ready"] == "True"
    assert ready["PodsIsolated"] == ("True" if support.machine().network else "False")
    assert node_object["status"]["capacity"]["cpu"] == str(os.cpu_count())
    for _ in range(3000):
        lease = await node.client.find(LEASES, "here", "kube-node-lease")
        if lease:
            break
        await asyncio.sleep(0.02)
    assert lease
    assert lease["spec"]["holderIdentity"] == "here"
