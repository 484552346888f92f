"""Runs the hostile pods on a cluster, through its API only: the same on the plane and on a real node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.security.contexts import SecurityCase
from tests.support.http import Client
from tests.support.waiting import eventually

from torchyard.api.objects import Object

HOSTILE = Path(__file__).with_name("hostile")
NAMESPACE = "/api/v1/namespaces/default"
PROGRAM = "hostile"
_SECONDS = 240.0
# A program with the set-user-id bit, which prints the user that it runs as.
SET_USER_ID = "cp $(command -v id) /shared/set-user-id; chmod 4755 /shared/set-user-id"

Verdicts = dict[str, Any]  # case → verdict


def install(client: Client) -> None:
    """The program as a config map, and a secret for pods to mount."""
    data = {path.name: path.read_text() for path in sorted(HOSTILE.glob("*.py"))}
    for kind, body in (("configmaps", {"data": data}), ("secrets", {"stringData": {"password": "s3cret"}})):
        client.delete(f"{NAMESPACE}/{kind}/{PROGRAM}")
        answer = client.post(f"{NAMESPACE}/{kind}", {"metadata": {"name": PROGRAM}, **body})
        assert answer.status == 201, answer


def hostile_container(image: str, cases: Iterable[str], env: Mapping[str, str], security: Object) -> Object:
    return {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-S", "-B", "-m", "tests.security.hostile", *cases],
        "env": [{"name": name, "value": value} for name, value in {"PYTHONPATH": "/escape", **env}.items()],
        "volumeMounts": [
            {"name": "program", "mountPath": "/escape"},
            {"name": "secret", "mountPath": "/secret"},
            {"name": "shared", "mountPath": "/shared"},
        ],
        "securityContext": security,
    }


def volumes() -> list[Object]:
    items = [{"key": path.name, "path": f"tests/security/hostile/{path.name}"} for path in sorted(HOSTILE.glob("*.py"))]
    return [
        {"name": "program", "configMap": {"name": PROGRAM, "items": items}},
        {"name": "secret", "secret": {"secretName": PROGRAM}},
        {"name": "shared", "emptyDir": {}},
    ]


def hostile_pod(name: str, context: SecurityCase, image: str, targets: Mapping[str, str]) -> Object:
    env = {**{f"ESCAPE_{key}": value for key, value in targets.items()}, **context.env}
    container = {**hostile_container(image, context.cases, env, context.security), **context.container}
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "securityContext": context.pod_security,
        "containers": [container],
        "volumes": volumes(),
        **context.pod,
    }
    if context.set_user_id:
        command = ["sh", "-c", SET_USER_ID]
        spec["initContainers"] = [
            {**container, "name": "init", "command": command, "securityContext": {"runAsUser": 0}}
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"hostile-{name}"}, "spec": spec}


def create_pod(client: Client, pod: Object) -> None:
    answer = client.post(f"{NAMESPACE}/pods", pod)
    assert answer.status == 201, answer


def wait_for_pod(client: Client, name: str, phases: tuple[str, ...] = ("Succeeded", "Failed")) -> Object:
    deadline = time.monotonic() + _SECONDS
    while True:
        pod: Object = client.get(f"{NAMESPACE}/pods/{name}").json
        if pod.get("status", {}).get("phase") in phases:
            return pod
        assert time.monotonic() < deadline, f"{name} did not end: {pod.get('status')}"
        time.sleep(0.1)


def logs(client: Client, name: str, container: str = "main") -> str:
    """The container's log; empty while it has none."""
    answer = client.get(f"{NAMESPACE}/pods/{name}/log", query={"container": container})
    return answer.text if answer.status == 200 else ""


def delete_pod(client: Client, name: str) -> None:
    client.delete(f"{NAMESPACE}/pods/{name}", query={"gracePeriodSeconds": "0"})


def run_contexts(
    client: Client, contexts: Mapping[str, SecurityCase], image: str, targets: Mapping[str, str]
) -> dict[str, Verdicts]:
    """The verdicts of each context. All pods run at the same time, beside one that is their victim."""
    unconfined = {"seccompProfile": {"type": "Unconfined"}}  # it uses a keyring
    victim = hostile_pod("victim", SecurityCase(pod_security=unconfined), image, targets)
    victim["spec"]["containers"][0]["command"] = ["python3", "-S", "-B", "-m", "tests.security.hostile.victim"]
    create_pod(client, victim)
    eventually(lambda: "ready" in logs(client, "hostile-victim"), "the start of the victim", 60)
    for name, context in contexts.items():
        create_pod(client, hostile_pod(name, context, image, targets))
    verdicts = {name: collect(client, f"hostile-{name}") for name in contexts}
    delete_pod(client, "hostile-victim")
    return verdicts


def collect(client: Client, name: str) -> Verdicts:
    """Wait for a pod and read its verdicts."""
    pod = wait_for_pod(client, name)
    text = logs(client, name)
    delete_pod(client, name)
    assert pod["status"]["phase"] == "Succeeded", (pod["status"], text[-2000:])
    lines = [json.loads(line) for line in text.splitlines()]
    return {line["case"]: line["verdict"] for line in lines}
