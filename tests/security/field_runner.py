"""Runs the pods of `field_cases` on a cluster, through its API only."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.security.field_cases import FieldCase
from tests.support.http import Client

from torchyard.api.objects import Object

NAMESPACE = "/api/v1/namespaces/default"
PROGRAM = Path(__file__).with_name("pod_facts.py").read_text()
_SECONDS = 90.0

Result = dict[str, Any]


def run_cases(client: Client, cases: Mapping[str, FieldCase], image: str) -> dict[str, Result]:
    """What each pod prints, or its status if it does not print. All pods run at the same time."""
    data = {"key": "value", "other": "text"}
    for kind, body in (("configmaps", {"data": data}), ("secrets", {"stringData": {"password": "a", "user": "b"}})):
        client.delete(f"{NAMESPACE}/{kind}/fields")
        answer = client.post(f"{NAMESPACE}/{kind}", {"metadata": {"name": "fields"}, **body})
        assert answer.status == 201, answer
    for name, case in cases.items():
        metadata = {"name": f"field-{name}", "labels": {"case": name}}
        answer = client.post(f"{NAMESPACE}/pods", {"metadata": metadata, "spec": case.spec(image, PROGRAM)})
        assert answer.status == 201, (name, answer)
    return {name: _collect(client, f"field-{name}", case) for name, case in cases.items()}


def _collect(client: Client, name: str, case: FieldCase) -> Result:
    pod = _wait(client, name)
    text = client.get(f"{NAMESPACE}/pods/{name}/log", query={"container": "main"}).text if case.facts else ""
    client.delete(f"{NAMESPACE}/pods/{name}", query={"gracePeriodSeconds": "0"})
    status = pod["status"]
    if case.facts and status["phase"] == "Succeeded":
        facts: Result = json.loads(text)
        return facts
    uid = pod["metadata"]["uid"]
    waiting = _state(status, "waiting")
    return {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "message": status.get("message"),
        "waiting": waiting.get("reason"),
        "waiting message": re.sub(uid, "UID", waiting.get("message") or "") or None,
        "sandbox": _sandbox_failure(client, name),
        "terminated": [_state(status, "terminated").get(key) for key in ("exitCode", "reason", "message")],
    }


def _sandbox_failure(client: Client, name: str) -> str | None:
    """Why the pod's sandbox was not created, without the words of the runtime's protocol."""
    selector = f"involvedObject.name={name},reason=FailedCreatePodSandBox"
    events = client.get(f"{NAMESPACE}/events", query={"fieldSelector": selector}).json["items"]
    return re.sub(r"^.*: ", "", events[0]["message"]) if events else None


def _state(status: Object, name: str) -> Object:
    containers = status.get("containerStatuses") or [{}]
    state: Object = (containers[0].get("state") or {}).get(name) or {}
    return state


def _is_settled(pod: Object) -> bool:
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    return _state(status, "waiting").get("reason") not in (None, "ContainerCreating", "PodInitializing")


def _wait(client: Client, name: str) -> Object:
    deadline = time.monotonic() + _SECONDS
    while True:
        pod: Object = client.get(f"{NAMESPACE}/pods/{name}").json
        if _is_settled(pod) or _sandbox_failure(client, name):
            return pod
        if time.monotonic() > deadline:
            return pod
        time.sleep(0.2)
