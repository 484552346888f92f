"""What pods see of their fields: the same on the plane as on a real node; and what is said about the other fields."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.support import need_network
from tests.security import real_node
from tests.security.field_cases import CASES
from tests.security.field_runner import NAMESPACE, Result, run_cases
from tests.support.effort import FULL
from tests.support.http import Client
from tests.support.yard import Yard

from torchyard.api.objects import Object

RECORDED = Path(__file__).parent / "data" / "pod_fields.json"
IMAGE = "python:3"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    need_network()
    with Yard(tmp_path_factory.mktemp("fields"), node=True) as server:
        yield server.admin


@pytest.fixture(scope="module")
def results(plane: Client) -> dict[str, Result]:
    if os.geteuid() != 0:
        pytest.skip("pods of an ordinary user have one user and one group")
    return run_cases(plane, CASES, IMAGE)


@pytest.mark.parametrize("name", CASES)
def test_pods_see_what_they_see_on_a_real_node(results: dict[str, Result], name: str) -> None:
    recorded: dict[str, Result] = json.loads(RECORDED.read_text())
    assert results[name] == recorded[name]


@pytest.mark.skipif(not FULL, reason="takes a minute; TORCHYARD_TESTS=full")
def test_the_record_is_what_a_real_node_shows(tmp_path: Path) -> None:
    real_node.need()
    with real_node.real_node(tmp_path) as server:
        assert run_cases(server.admin, CASES, real_node.IMAGE) == json.loads(RECORDED.read_text())


CONTAINER: Object = {"name": "main", "image": "busybox", "command": ["true"]}
IGNORED: dict[str, Object] = {
    "imagePullSecrets[0]": {"imagePullSecrets": [{"name": "a"}]},
    "hostUsers": {"hostUsers": False},
    "shareProcessNamespace": {"shareProcessNamespace": True},
    "securityContext.seLinuxOptions": {"securityContext": {"seLinuxOptions": {"level": "s0"}}},
    "securityContext.windowsOptions": {"securityContext": {"windowsOptions": {"runAsUserName": "a"}}},
    "topologySpreadConstraints[0]": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ]
    },
    "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]": {
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "a", "labelSelector": {}}}
                ]
            }
        }
    },
    "containers[0].volumeMounts[0].mountPropagation": {
        "containers": [
            {**CONTAINER, "volumeMounts": [{"name": "a", "mountPath": "/a", "mountPropagation": "HostToContainer"}]}
        ],
        "volumes": [{"name": "a", "emptyDir": {}}],
    },
    "containers[0].securityContext.seLinuxOptions": {
        "containers": [{**CONTAINER, "securityContext": {"seLinuxOptions": {"level": "s0"}}}]
    },
    "initContainers[0].securityContext.windowsOptions": {
        "initContainers": [
            {**CONTAINER, "name": "first", "securityContext": {"windowsOptions": {"runAsUserName": "a"}}}
        ]
    },
    "containers[0].securityContext.procMount": {
        "hostUsers": False,
        "containers": [{**CONTAINER, "securityContext": {"procMount": "Unmasked"}}],
    },
}
REFUSED: dict[str, tuple[str, Object]] = {
    "resourceClaims[0]": (
        "FailedCreatePodSandBox",
        {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]},
    ),
    "volumes[0].emptyDir.medium": (
        "FailedCreatePodSandBox",
        {"volumes": [{"name": "a", "emptyDir": {"medium": "HugePages"}}]},
    ),
    "volumes[0].csi": ("FailedMount", {"volumes": [{"name": "a", "csi": {"driver": "example.com"}}]}),
    "volumes[0].gitRepo": ("FailedMount", {"volumes": [{"name": "a", "gitRepo": {"repository": "a"}}]}),
    "securityContext.appArmorProfile.type": (
        "AppArmor",
        {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
    ),
    "os.name": ("PodOSNotSupported", {"os": {"name": "windows"}}),
}
RULE: Object = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
DROPPED: dict[str, Object] = {
    "hostnameOverride": {"hostnameOverride": "another"},
    "containers[0].lifecycle.stopSignal": {
        "os": {"name": "linux"},
        "containers": [{**CONTAINER, "lifecycle": {"stopSignal": "SIGUSR1"}}],
    },
    "containers[0].restartPolicyRules[0]": {
        "containers": [
            {**CONTAINER, "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}
        ]
    },
    "volumes[0].image": {"volumes": [{"name": "a", "image": {"reference": "b"}}]},
    "volumes[0].projected.sources[0].clusterTrustBundle": {
        "volumes": [{"name": "a", "projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "c"}}]}}]
    },
}


def create(client: Client, name: str, fields: Object) -> list[str]:
    """Create a pod with these fields; returns the texts of the Warning headers."""
    spec = {"restartPolicy": "Never", "containers": [CONTAINER], "automountServiceAccountToken": False, **fields}
    answer = client.post(f"{NAMESPACE}/pods", {"metadata": {"name": name}, "spec": spec})
    assert answer.status == 201, answer
    return [json.loads(warning.removeprefix("299 - ")) for warning in answer.warnings]


def wait_for_event(client: Client, pod: str, reason: str, text: str) -> Any:
    selector = f"involvedObject.name={pod},reason={reason}"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        events = client.get(f"{NAMESPACE}/events", query={"fieldSelector": selector}).json["items"]
        if any(text in event["message"] for event in events):
            return
        time.sleep(0.1)
    raise AssertionError(f"no event {reason} about {text}: {[event['message'] for event in events]}")


def name_of(field: str) -> str:
    return "".join(letter.lower() if letter.isalnum() else "-" for letter in field).strip("-")[-50:].strip("-")


@pytest.mark.parametrize("field", IGNORED)
def test_an_ignored_field_gets_a_warning_and_an_event(plane: Client, field: str) -> None:
    texts = create(plane, f"ignored-{name_of(field)}", IGNORED[field])
    assert [text for text in texts if text.startswith(f"spec.{field}: has no effect on this node: ")]
    wait_for_event(plane, f"ignored-{name_of(field)}", "FieldIgnored", f"spec.{field}: has no effect on this node: ")


@pytest.mark.parametrize("field", REFUSED)
def test_a_refused_field_gets_a_warning_and_an_event(plane: Client, field: str) -> None:
    reason, fields = REFUSED[field]
    name = f"refused-{name_of(field)}"
    texts = create(plane, name, fields)
    assert [text for text in texts if text.startswith(f"spec.{field}: is not supported by this node: ")]
    wait_for_event(plane, name, reason, "")
    pod = plane.get(f"{NAMESPACE}/pods/{name}").json
    assert pod["status"]["phase"] in ("Pending", "Failed")


@pytest.mark.parametrize("field", DROPPED)
def test_a_dropped_field_gets_a_warning(plane: Client, field: str) -> None:
    texts = create(plane, f"dropped-{name_of(field)}", DROPPED[field])
    assert f"spec.{field}: is dropped: Kubernetes 1.34 disables it by default" in texts


def test_templates_and_jobs_get_the_warning_with_their_own_paths(plane: Client) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER], "hostUsers": False}}
    job = {"metadata": {"name": "warned"}, "spec": {"template": template, "suspend": True}}
    answer = plane.post("/apis/batch/v1/namespaces/default/jobs", job)
    assert [text for text in answer.warnings if "spec.template.spec.hostUsers: has no effect on this node" in text]
    replicas = {
        "Master": {
            "replicas": 1,
            "template": {"spec": {"hostUsers": False, "containers": [{**CONTAINER, "name": "pytorch"}]}},
        }
    }
    training = {
        "metadata": {"name": "warned"},
        "spec": {"pytorchReplicaSpecs": replicas, "runPolicy": {"suspend": True}},
    }
    training |= {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    answer = plane.post("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs", training)
    assert answer.status == 201, answer
    assert [text for text in answer.warnings if "spec.pytorchReplicaSpecs.Master.template.spec.hostUsers" in text]


def test_an_ordinary_pod_gets_no_warning(plane: Client) -> None:
    assert create(plane, "ordinary", {}) == []
