"""CertificateSigningRequests: who requests, who decides, who signs."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import certificate_request, key_pem, new_key
from tests.support.http import Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

from torchyard.apiserver.access.certificates import ensure
from torchyard.core.certificate.request import decode_request

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
APPROVED = {"type": "Approved", "status": "True", "reason": "Test", "message": "by a test"}
DENIED, FAILED, OTHER = ({**APPROVED, "type": type} for type in ("Denied", "Failed", "Other"))
LABEL = "consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character"


def request(api: Client, **spec: Any) -> Any:
    body = {"request": certificate_request("jane"), "signerName": "example.com/signer", "usages": ["client auth"]}
    return api.post(PATH, {"metadata": {"generateName": "test-"}, "spec": {**body, **spec}})


def change(api: Client, name: str, subresource: str, status: Any) -> Any:
    obj = api.get(f"{PATH}/{name}").json
    return api.put(f"{PATH}/{name}{subresource}", {**obj, "status": status})


def test_the_server_names_the_requester(api: Client) -> None:
    created = request(api, username="somebody", groups=["a"], uid="b", extra={"c": ["d"]}).json
    assert created["spec"]["groups"] == ["system:masters", "system:authenticated"]
    assert created["spec"]["username"] in ("admin", "yard-admin")
    assert "extra" not in created["spec"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["client auth"] * 2}, 'spec.usages[1]: Duplicate value: "client auth"'),
        ({"usages": ["x"]}, 'spec.usages[0]: Unsupported value: "x": supported values: "any", "cert sign", '),
        ({"request": "YWJj"}, 'spec.request: Invalid value: "YWJj": PEM block type must be CERTIFICATE REQUEST'),
        ({"signerName": ""}, "spec.signerName: Required value"),
        (
            {"signerName": "kubernetes.io/legacy-unknown"},
            'spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": '
            "the legacy signerName is not allowed via this API version",
        ),
        (
            {"signerName": "a.b/c/d"},
            'spec.signerName: Invalid value: "a.b/c/d": '
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (
            {"signerName": "example/x"},
            'spec.signerName: Invalid value: "example": '
            "should be a domain with at least two segments separated by dots",
        ),
        (
            {"signerName": "A.b/x"},
            f'spec.signerName: Invalid value: "A.b": validating label "A": a lowercase RFC 1123 label must {LABEL}',
        ),
        (
            {"expirationSeconds": 599},
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ),
    ],
)
def test_invalid_requests_are_refused(api: Client, spec: dict[str, Any], message: str) -> None:
    refused = request(api, **spec)
    assert refused.status == 422
    assert refused.message.split(" is invalid: ", 1)[1].startswith(message)


def test_an_approval_is_final_and_has_times(api: Client) -> None:
    name = request(api).json["metadata"]["name"]
    approved = change(api, name, "/approval", {"conditions": [APPROVED, OTHER], "certificate": "YWJj"})
    assert approved.status == 200, approved
    assert "certificate" not in approved.json["status"]
    first, _ = approved.json["status"]["conditions"]
    assert first["lastUpdateTime"] == first["lastTransitionTime"] != ""
    assert {key: first[key] for key in APPROVED} == APPROVED
    for subresource in ("/approval", "/status"):
        refused = change(api, name, subresource, {"conditions": []})
        assert refused.message.endswith(
            'status.conditions: Forbidden: updates may not remove a condition of type "Approved"'
        )


@pytest.mark.parametrize(
    ("subresource", "conditions", "message"),
    [
        ("/status", [APPROVED], 'status.conditions: Forbidden: updates may not add a condition of type "Approved"'),
        (
            "/approval",
            [APPROVED, DENIED],
            'status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive',
        ),
        ("/approval", [APPROVED, APPROVED], 'status.conditions[1].type: Duplicate value: "Approved"'),
        (
            "/approval",
            [{**APPROVED, "status": "False"}],
            'status.conditions[0].status: Unsupported value: "False": supported values: "True"',
        ),
        ("/approval", [{"type": "Denied"}], "status.conditions[0].status: Required value"),
        ("/approval", [{**OTHER, "type": ""}], "status.conditions[0].type: Required value"),
        (
            "/status",
            [{**OTHER, "status": "Q"}],
            'status.conditions[0].status: Unsupported value: "Q": supported values: "False", "True", "Unknown"',
        ),
    ],
)
def test_contradictory_decisions_are_refused(
    api: Client, subresource: str, conditions: list[Any], message: str
) -> None:
    name = request(api).json["metadata"]["name"]
    refused = change(api, name, subresource, {"conditions": conditions})
    assert refused.message.split(" is invalid: ", 1)[1] == message


def test_a_decision_of_the_main_resource_is_ignored(api: Client) -> None:
    name = request(api).json["metadata"]["name"]
    assert "conditions" not in change(api, name, "", {"conditions": [APPROVED]}).json["status"]


def test_an_issued_certificate_is_checked_and_stays(api: Client, tmp_path: Path) -> None:
    certificate = ensure(tmp_path).load("ca").certificate

    def encoded(*blocks: bytes) -> str:
        return base64.b64encode(b"".join(blocks)).decode()

    name = request(api).json["metadata"]["name"]
    malformed = b"-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n"
    other = base64.b64decode(certificate_request("x"))
    for content, problem in (
        (b"abc", "must contain at least one CERTIFICATE PEM block"),
        (other, 'only CERTIFICATE PEM blocks are allowed, found "CERTIFICATE REQUEST"'),
        (malformed, "x509: malformed certificate"),
        (certificate.replace(b"-\n", b"-\na: b\n\n", 1), "no PEM block headers are permitted"),
    ):
        refused = change(api, name, "/status", {"certificate": encoded(content)})
        assert refused.message.endswith(f'status.certificate: Invalid value: "<certificate data>": {problem}')
    issued = change(api, name, "/status", {"conditions": [FAILED], "certificate": encoded(b"text\n", certificate)})
    assert issued.status == 200, issued
    for changed in ({}, {"certificate": encoded(certificate, certificate)}):
        refused = change(api, name, "/status", {"conditions": issued.json["status"]["conditions"], **changed})
        assert refused.message.endswith(
            "status.certificate: Forbidden: updates may not modify existing certificate content"
        )


def test_the_verbs_approve_and_sign_are_needed_for_the_signer(api: Client) -> None:
    group = "rbac.authorization.k8s.io"
    user = f"approver-{new_key().private_numbers().private_value % 10**9}"
    rules = [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["get"]},
        {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests/approval", "certificatesigningrequests/status"],
            "verbs": ["update"],
        },
        {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["signers"],
            "resourceNames": ["example.com/*"],
            "verbs": ["approve"],
        },
    ]
    api.post(f"/apis/{group}/v1/clusterroles", {"metadata": {"name": user}, "rules": rules})
    api.post(
        f"/apis/{group}/v1/clusterrolebindings",
        {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    )
    mine, others = (request(api, signerName=signer).json for signer in ("example.com/signer", "example.org/signer"))

    def put(csr: Any, subresource: str, condition: Any) -> Any:
        name = csr["metadata"]["name"]
        body = {**api.get(f"{PATH}/{name}").json, "status": {"conditions": [condition]}}
        headers = {"Impersonate-User": user, "Content-Type": "application/json"}
        return api.request("PUT", f"{PATH}/{name}/{subresource}", body, headers=headers)

    eventually(lambda: put(mine, "approval", APPROVED).status == 200, "the role to be known")
    refused = put(others, "approval", APPROVED)
    assert refused.status == 403
    assert refused.message.endswith('user not permitted to approve requests with signerName "example.org/signer"')
    refused = put(others, "status", FAILED)
    assert refused.status == 403
    assert refused.message.endswith('user not permitted to sign requests with signerName "example.org/signer"')


def test_an_approved_request_gets_a_certificate_that_the_server_knows(server: Server, tmp_path: Path) -> None:
    api, key = server.admin, new_key()
    body = certificate_request("jane", ["developers"], key=key)
    created = request(api, request=body, signerName="kubernetes.io/kube-apiserver-client", expirationSeconds=600)
    name = created.json["metadata"]["name"]
    assert change(api, name, "/approval", {"conditions": [APPROVED]}).status == 200
    status: dict[str, Any] = {}

    def is_issued() -> bool:
        status.update(api.get(f"{PATH}/{name}").json["status"])
        return "certificate" in status

    eventually(is_issued, "the certificate")
    certificate, key_file = tmp_path / "jane.crt", tmp_path / "jane.key"
    certificate.write_bytes(base64.b64decode(status["certificate"]))
    key_file.write_bytes(key_pem(key))
    jane = Client(server.url, "", str(server.ca), (str(certificate), str(key_file)))
    review = jane.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).json["status"]["userInfo"]
    assert (review["username"], review["groups"]) == ("jane", ["developers", "system:authenticated"])
    refused = request(api, signerName="kubernetes.io/kube-apiserver-client", usages=["server auth"]).json["metadata"]
    change(api, refused["name"], "/approval", {"conditions": [APPROVED]})

    def failure() -> Any:
        conditions = api.get(f"{PATH}/{refused['name']}").json["status"]["conditions"]
        return next((condition for condition in conditions if condition["type"] == "Failed"), None)

    eventually(lambda: failure() is not None, "the condition Failed")
    assert failure()["message"] == "invalid usage for client certificate: server auth"


HARMLESS = base64.b64decode(certificate_request("jane"))
MASTER = base64.b64decode(certificate_request("eve", ["system:masters"]))
BROKEN = b"-----BEGIN X-----\n!!!!bad\n-----END X-----"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (MASTER, 403),
        (MASTER + BROKEN, 403),
        (b"text\n" + MASTER + HARMLESS, 403),
        (BROKEN + b"\n" + MASTER, None),
        (HARMLESS.replace(b"REQUEST-----\n", b"REQUEST----- \n", 1) + MASTER, 201),
    ],
)
def test_no_client_certificate_is_for_masters_whatever_surrounds_the_request(
    api: Client, content: bytes, status: int | None
) -> None:
    encoded = base64.b64encode(content).decode()
    answer = request(api, request=encoded, signerName="kubernetes.io/kube-apiserver-client")
    assert answer.status == (status or answer.status)
    if answer.status == 403:
        assert "signer with system:masters group is not allowed" in answer.message
    else:  # the first block is another one, which is what a signer reads
        assert answer.status in (201, 422)
        if answer.status == 201:
            assert decode_request(answer.json).organizations == ()
