"""Policies and webhooks see connections, evictions and token requests, and can refuse them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.accounts import wait_for_account
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.api.objects import Object

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NS = "connections"
POD = f"/api/v1/namespaces/{NS}/pods/here"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "here", "namespace": NS}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "here"}, "target": {"name": "node"}}
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["forbidden"]}}
# name -> (operation, resource, expression, method, path, body)
REFUSED: dict[str, tuple[str, str, str, str, str, Object | None]] = {
    "exec": ("CONNECT", "pods/exec", "object.command[0] != 'sh'", "POST", f"{POD}/exec?command=sh&command=-c", None),
    "attach": ("CONNECT", "pods/attach", "!has(object.stdin)", "POST", f"{POD}/attach?stdin=true&stdout=true", None),
    "portforward": ("CONNECT", "pods/portforward", "false", "POST", f"{POD}/portforward?ports=80", None),
    "eviction": ("CREATE", "pods/eviction", "object.metadata.name != 'here'", "POST", f"{POD}/eviction", EVICTION),
    "binding": ("CREATE", "pods/binding", "object.target.name != 'node'", "POST", f"{POD}/binding", BINDING),
    "token": (
        *("CREATE", "serviceaccounts/token", "!object.spec.audiences.exists(name, name == 'forbidden')", "POST"),
        *(f"/api/v1/namespaces/{NS}/serviceaccounts/default/token", TOKEN),
    ),
}


def _policy(name: str) -> list[tuple[str, Object]]:
    operation, resource, expression, *_ = REFUSED[name]
    rule = {"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NS}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
        "validations": [{"expression": expression, "message": "not here"}],
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": f"connections-{name}"}}
    bound = {"policyName": f"connections-{name}", "validationActions": ["Deny"]}
    return [
        (f"{ADMISSION}/validatingadmissionpolicies", {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec}),
        (
            f"{ADMISSION}/validatingadmissionpolicybindings",
            {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
        ),
    ]


@pytest.fixture(scope="module", params=["yard", pytest.param("kube", marks=pytest.mark.cluster)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    running: Server = request.getfixturevalue(request.param)
    client = running.admin
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}
    assert client.post("/api/v1/namespaces", namespace).status in (201, 409)
    wait_for_account(client, NS)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "here"}}
    assert (
        client.post(
            f"/api/v1/namespaces/{NS}/pods", {**pod, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        ).status
        == 201
    )
    for name in REFUSED:
        for path, obj in _policy(name):
            answer = client.post(path, obj)
            assert answer.status == 201, answer
    yield running
    for name in REFUSED:
        for path, obj in _policy(name):
            client.delete(f"{path}/{obj['metadata']['name']}")
    client.delete(f"/api/v1/namespaces/{NS}")


def _exists(server: Server, path: str) -> bool:
    return server.admin.get(path).status == 200


@pytest.mark.parametrize("name", REFUSED)
def test_a_policy_refuses_it(server: Server, name: str) -> None:
    _, _, _, method, path, body = REFUSED[name]
    message = (
        f"ValidatingAdmissionPolicy 'connections-{name}' with binding 'connections-{name}' denied request: not here"
    )

    def is_refused() -> bool:
        answer = server.admin.request(method, path, body, query={"dryRun": "All"} if body else None)
        return answer.status in (403, 422) and answer.message.endswith(message)

    eventually(is_refused, "the refusal")
    assert server.admin.get(POD).status == 200


def test_a_policy_lets_others_pass(server: Server) -> None:
    """Past admission, an exec fails for another reason: the pod is on no node."""
    assert "does not have a host assigned" in server.admin.post(f"{POD}/exec?command=ls").message
    token = {**TOKEN, "spec": {"audiences": ["allowed"]}}
    assert server.admin.post(f"/api/v1/namespaces/{NS}/serviceaccounts/default/token", token).status == 201
