"""Webhooks with hostile answers: the plane answers as kube-apiserver does, in time, and goes on working.

Run as a program, this module records a real server's answers in `data/`.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from tests.security.hostile_webhooks import CASES, HostileServer
from tests.support.http import Answer, Client
from tests.support.kubernetes import Kubernetes, Server
from tests.support.waiting import eventually

from torchyard.api.objects import Object

RECORDED = Path(__file__).parent / "data" / "hostile_webhook_answers.json"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
POLICIES = ("Fail", "Ignore")
# Cases in which only the reason differs: Go names its own functions and addresses there, or parses YAML too.
OTHER_WORDS = frozenset(
    (
        *("reset", "bomb", "not-http", "huge-header", "status-100", "not-json", "deep", "deep-object"),
        *("patch-is-not-json", "patch-of-nulls", "patch-without-op", "patch-op-unknown", "patch-op-is-a-number"),
        *("patch-path-missing", "patch-path-odd", "patch-path-is-a-number", "patch-removes-everything"),
        *("patch-makes-a-list", "patch-kind", "patch-doubling", "patch-index"),
    )
)
# Where we are stricter: case -> what our message contains.
STRICTER = {
    "endless": "the response is larger than 3145728 bytes",
    "status-302": "the redirect 302, which is not followed",
    "status-307": "the redirect 307, which is not followed",
    "patch-many-operations": "The allowed maximum operations in a JSON patch is 10000, got 20000",
}


def _answers(client: Client, hooks: HostileServer) -> dict[str, Object]:
    """The answer to a create that meets the webhook of each case, under both failure policies."""
    installed = _configurations(hooks)
    for path, obj in installed:
        answer = client.post(path, obj)
        assert answer.status == 201, answer
    try:
        for name in ("patch-denied-too", "code-is-unknown"):
            eventually(partial(_is_refused, client, _config_map(name, "Fail")), "the webhook configurations")
        with ThreadPoolExecutor(6) as threads, mock.patch("http.client._MAXHEADERS", 10_000):
            keys = [(name, policy) for name in CASES for policy in POLICIES]
            return dict(threads.map(lambda key: (" ".join(key), _answer(client, *key, port=hooks.port)), keys))
    finally:
        for path, obj in installed:
            client.delete(f"{path}/{obj['metadata']['name']}")


def _configurations(hooks: HostileServer) -> list[tuple[str, Object]]:
    configurations: list[tuple[str, Object]] = []
    for kind, is_mutating in (("Mutating", True), ("Validating", False)):
        webhooks = [
            hooks.webhook(name, policy=policy, selector=f"{name}.{policy}")
            for name, (mutating, _) in CASES.items()
            for policy in POLICIES
            if mutating == is_mutating
        ]
        for number, webhook in enumerate(webhooks):
            webhook["name"] = f"n{number}.{webhook['name']}"
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "hostile"},
            "webhooks": webhooks,
        }
        configurations.append((f"{REGISTRATION}/{kind.lower()}webhookconfigurations", configuration))
    return configurations


def _config_map(name: str, policy: str) -> Object:
    metadata = {"name": f"hostile-{name}-{policy.lower()}", "labels": {"case": f"{name}.{policy}"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


def _is_refused(client: Client, obj: Object, timeout: str = "") -> bool:
    return client.post(f"{CONFIG_MAPS}?dryRun=All&timeout={timeout}", obj).status >= 400


def _answer(client: Client, name: str, policy: str, *, port: int) -> Object:
    response = client.post(f"{CONFIG_MAPS}?dryRun=All", _config_map(name, policy))
    return _comparable(response, port)


def _comparable(response: Answer, port: int) -> Object:
    warnings = response.warnings
    shown = {"warnings": len(warnings), "first": warnings[0][:60], "size": sum(map(len, warnings))} if warnings else {}
    if response.status < 400:
        obj = response.json
        return {"status": response.status, "name": obj["metadata"]["name"], "data": _digest(obj.get("data")), **shown}
    message = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", response.message)
    message = re.sub(r"\bn\d+\.", "", message).replace(f":{port}", ":PORT")
    message = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:LOCAL", message)
    details = response.json.get("details") or {}
    return {
        "status": response.status,
        "message": message,
        "reason": response.reason,
        "details": sorted(details),
        **shown,
    }


def _digest(data: Object | None) -> Object:
    return {key: value if len(value) < 20 else len(value) for key, value in sorted((data or {}).items())[:5]}


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileServer]:
    with HostileServer(tmp_path_factory.mktemp("hostile")) as server:
        yield server


@pytest.fixture(scope="module")
def answers(yard: Server, hooks: HostileServer) -> dict[str, Object]:
    return _answers(yard.admin, hooks)


@pytest.mark.parametrize("case", [f"{name} {policy}" for name in CASES for policy in POLICIES])
def test_the_answer_is_kube_apiservers(answers: dict[str, Object], case: str) -> None:
    name, policy = case.split()
    answer, recorded = answers[case], json.loads(RECORDED.read_text())[case]
    if name in STRICTER and (policy == "Fail" or name.startswith("patch")):
        assert (answer["status"], answer["reason"]) == (500, "InternalError")
        assert STRICTER[name] in answer["message"]
        return
    if name in OTHER_WORDS and answer["status"] == recorded["status"] == 500:
        answer, recorded = ({**reply, "message": reply["message"][:24]} for reply in (answer, recorded))
    assert answer == recorded


def test_the_plane_works_on_and_its_log_has_no_traceback(yard: Server, answers: dict[str, Object]) -> None:
    assert len(answers) == len(CASES) * len(POLICIES)
    assert yard.admin.get("/readyz").status == 200
    assert "Traceback" not in (yard.kubeconfig.parents[1] / "yard.log").read_text()


@pytest.mark.cluster
def test_the_recorded_answers_are_a_real_servers(kube: Server, hooks: HostileServer) -> None:
    recorded, answers = json.loads(RECORDED.read_text()), _answers(kube.admin, hooks)
    assert {case: answer["status"] for case, answer in answers.items()} == {
        case: answer["status"] for case, answer in recorded.items()
    }


@pytest.mark.parametrize("server_name", ["yard", pytest.param("kube", marks=pytest.mark.cluster)])
@pytest.mark.parametrize("policy", POLICIES)
def test_webhooks_get_no_more_time_than_the_request(
    request: pytest.FixtureRequest, hooks: HostileServer, server_name: str, policy: str
) -> None:
    """However long each webhook may take, and whether or not its failure is ignored."""
    client = request.getfixturevalue(server_name).admin
    webhooks = [hooks.webhook("silent", policy=policy, selector="timeout") for _ in range(3)]
    for number, webhook in enumerate(webhooks):
        webhook |= {"name": f"n{number}.{webhook['name']}", "timeoutSeconds": 30}
    kind = "MutatingWebhookConfiguration"
    configuration = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "webhooks": webhooks}
    path = f"{REGISTRATION}/mutatingwebhookconfigurations"
    assert client.post(path, {**configuration, "metadata": {"name": "timeout"}}).status == 201
    try:
        obj = {**_config_map("timeout", policy), "metadata": {"name": "timeout", "labels": {"case": "timeout"}}}
        eventually(partial(_is_refused, client, obj, timeout="200ms"), "the webhook configuration")
        answer = client.post(f"{CONFIG_MAPS}?dryRun=All&timeout=200ms", obj)
        message = "Timeout: request did not complete within the allotted timeout"
        assert (answer.status, answer.reason, answer.message) == (504, "Timeout", message)
    finally:
        client.delete(f"{path}/timeout")


@pytest.mark.parametrize("server_name", ["yard", pytest.param("kube", marks=pytest.mark.cluster)])
def test_a_timeout_that_is_not_a_duration_is_refused(request: pytest.FixtureRequest, server_name: str) -> None:
    client = request.getfixturevalue(server_name).admin
    answer = client.post(f"{CONFIG_MAPS}?dryRun=All&timeout=abc", _config_map("none", "Fail"))
    message = 'invalid timeout specified in the request URL - time: invalid duration "abc"'
    assert (answer.status, answer.message) == (400, message)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        start = Path(directory)
        with Kubernetes(start / "kube") as kube, HostileServer(start) as server:
            recorded = _answers(kube.admin, server)
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
