"""The verdicts of a real kube-apiserver on the webhook and policy cases. Run as a program, it records them."""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path

from tests.apiserver.access import webhook_cases as cases
from tests.apiserver.access.webhook_server import WebhookServer
from tests.support.http import Answer, Client
from tests.support.kubernetes import Kubernetes

from torchyard.api.objects import Object

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def verdicts(client: Client, server: WebhookServer) -> dict[str, Object]:
    """The verdict of every case."""
    ways = {name: case[3] for name, case in cases.WEBHOOKS.items()}
    ways |= {name: case[2] for name, case in cases.POLICIES.items()}
    # what is to be changed or deleted must be there before anything objects
    for name, way in ways.items():
        if way in ("update", "delete"):
            assert client.post(CONFIG_MAPS, cases.config_map(name)).status == 201
    assert client.post(CONFIG_MAPS, cases.PARAMETERS).status == 201
    policies, bound = cases.policies()
    installed = [(plural, obj) for plural, obj in cases.configurations(server).items()]
    installed += [("validatingadmissionpolicies", obj) for obj in policies]
    installed += [("validatingadmissionpolicybindings", obj) for obj in bound]
    for plural, obj in installed:
        response = client.post(f"{REGISTRATION}/{plural}", obj)
        assert response.status == 201, response
    try:
        _wait_until_in_force(client)
        results = {name: _verdict(client, name, way, server.port) for name, way in ways.items()}
    finally:
        for plural, obj in installed:
            client.delete(f"{REGISTRATION}/{plural}/{obj['metadata']['name']}")
        for name in (*ways, "parameters"):
            client.delete(f"{CONFIG_MAPS}/{name}")
    return results | {name: _written(client, plural, obj) for name, (plural, obj) in cases.documents().items()}


def _written(client: Client, plural: str, document: Object) -> Object:
    response = client.post(f"{REGISTRATION}/{plural}?dryRun=All", document)
    if response.status == 201:
        return {key: value for key, value in response.json.items() if key in ("spec", "webhooks")}
    return {"code": response.status, "causes": sorted([c["reason"], c["field"], c["message"]] for c in response.causes)}


def _wait_until_in_force(client: Client) -> None:
    """Until both configurations object, and policies do with their parameters at hand."""
    pending = {"denied": "nope", "mutation-denied": "nope", "policy-broken": "failed", "policy-param": "not as wanted"}
    for _ in range(600):
        for name, word in list(pending.items()):
            response = client.post(f"{CONFIG_MAPS}?dryRun=All", cases.config_map(name))
            if response.status >= 400 and word in response.message:
                del pending[name]
        if not pending:
            return
        time.sleep(0.1)
    raise AssertionError(f"not in force: {pending}")


def _verdict(client: Client, name: str, way: str, port: int) -> Object:
    path = f"{CONFIG_MAPS}/{name}"
    match way:
        case "delete":
            response = client.delete(path)
        case "update":
            now = client.get(path).json
            response = client.put(path, {**now, "data": {**now["data"], "more": "data"}})
        case "dry-run":
            response = client.post(f"{CONFIG_MAPS}?dryRun=All", cases.config_map(name))
        case _:
            response = client.post(CONFIG_MAPS, cases.config_map(name))
    return _result_of(response, port)


def _result_of(response: Answer, port: int) -> Object:
    if response.status >= 400:
        body = response.json
        verdict = cases.denial(response.status, response.reason, response.message, body.get("details"), port)
        return dict(json.loads(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", json.dumps(verdict))))
    return {"data": response.json.get("data"), "warnings": [_unquoted(warning) for warning in response.warnings]}


def _unquoted(warning: str) -> str:
    return str(json.loads(warning.removeprefix("299 - ")))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        replies = {name: case[1] for name, case in cases.WEBHOOKS.items()}
        with Kubernetes(Path(directory) / "kube") as kubernetes, WebhookServer(Path(directory), replies) as server:
            results = verdicts(kubernetes.admin, server)
    cases.RECORDED.write_text(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
