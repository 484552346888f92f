"""Table rows, compared cell by cell with kube-apiserver."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tests.api.table_cases import CASES, CLUSTER_CASES
from tests.support.kubernetes import Server

from torchyard.api.builtins import builtin_resources
from torchyard.api.objects import Object
from torchyard.api.printing import columns_of, table

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
NAMESPACE = "tables"
# The same objects in another version.
OTHER_VERSIONS = {
    "v1 events": "events.k8s.io/v1 events",
    "autoscaling/v2 horizontalpodautoscalers": "autoscaling/v1 horizontalpodautoscalers",
}
HOLD = "torchyard.test/hold"


def path_of(which: str, *, namespaced: bool) -> str:
    version, plural = which.split()
    root = "/apis" if "/" in version else "/api"
    return f"{root}/{version}/namespaces/{NAMESPACE}/{plural}" if namespaced else f"{root}/{version}/{plural}"


def create(server: Server, path: str, case: Object) -> None:
    """Create an object and bring it into the state of its case."""
    body = {key: value for key, value in case.items() if key not in ("status", "terminating")}
    name = body["metadata"]["name"]
    if case.get("terminating"):
        body["metadata"] = {**body["metadata"], "finalizers": [HOLD]}
    answer = server.admin.post(path, body)
    assert answer.status in (201, 409), answer
    if "status" in case and answer.status == 201:
        created = answer.json
        answer = server.admin.put(f"{path}/{name}/status", {**created, "status": case["status"]})
        assert answer.status == 200, answer
    if case.get("terminating"):
        answer = server.admin.delete(f"{path}/{name}")
        assert answer.status in (200, 202), answer


def same_row(group: str, plural: str, row: Object, moments: list[datetime]) -> bool:
    """Whether our row equals the server's at one of the seconds at which the server may have built it."""
    columns = columns_of(group, plural)
    ours = [table(columns, [row["object"]], moment, include="Object")["rows"][0] for moment in moments]
    if row in ours:
        return True
    print(f"{plural} {row['object']['metadata']['name']}:\n  real {row['cells']}\n  ours {ours[0]['cells']}")
    return False


def compare(server: Server, which: str, path: str) -> None:
    version, plural = which.split()
    group = version.rpartition("/")[0]
    before = datetime.now(UTC)
    answer = server.admin.get(path, headers=TABLE, query={"includeObject": "Object"}).json
    after = datetime.now(UTC)
    moments = [before, after, *(before + timedelta(seconds=n) for n in range(1, int((after - before).seconds)))]
    wrong = [row for row in answer["rows"] if not same_row(group, plural, row, moments)]
    assert not wrong, f"{len(wrong)} of {len(answer['rows'])} rows of {plural} differ"


@pytest.fixture(scope="module")
def server(kube_bare: Server) -> Server:
    kube_bare.admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    return kube_bare


@pytest.mark.cluster
@pytest.mark.parametrize("which", CASES)
def test_rows_of_namespaced_kinds_match_kube_apiserver(server: Server, which: str) -> None:
    path = path_of(which, namespaced=True)
    for case in CASES[which]:
        create(server, path, case)
    compare(server, which, path)
    if which in OTHER_VERSIONS:
        compare(server, OTHER_VERSIONS[which], path_of(OTHER_VERSIONS[which], namespaced=True))


@pytest.mark.cluster
@pytest.mark.parametrize("which", CLUSTER_CASES)
def test_rows_of_cluster_scoped_kinds_match_kube_apiserver(server: Server, which: str) -> None:
    path = path_of(which, namespaced=False)
    for case in CLUSTER_CASES[which]:
        create(server, path, case)
    compare(server, which, path)
    if which.endswith(" storageclasses"):
        # a default class would change the claims of other tests that share this server
        for case in CLUSTER_CASES[which]:
            server.admin.delete(f"{path}/{case['metadata']['name']}")


@pytest.mark.cluster
@pytest.mark.parametrize("which", ["v1 namespaces", "apiregistration.k8s.io/v1 apiservices"])
def test_rows_of_preinstalled_objects_match_kube_apiserver(server: Server, which: str) -> None:
    compare(server, which, path_of(which, namespaced=False))


@pytest.mark.cluster
def test_rows_of_signing_requests_match_kube_apiserver(server: Server) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    spec = {
        "request": base64.b64encode(request.public_bytes(Encoding.PEM)).decode(),
        "signerName": "example.com/signer",
        "usages": ["client auth"],
    }
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    for csr, word in (("pending", ""), ("approved", "Approved"), ("denied", "Denied")):
        body = {"metadata": {"name": csr}, "spec": {**spec, **({"expirationSeconds": 86400} if word else {})}}
        created = server.admin.post(path, body)
        assert created.status in (201, 409), created
        if word and created.status == 201:
            conditions = [{"type": word, "status": "True", "reason": "r"}]
            answer = server.admin.put(f"{path}/{csr}/approval", {**created.json, "status": {"conditions": conditions}})
            assert answer.status == 200, answer
    compare(server, "certificates.k8s.io/v1 certificatesigningrequests", path)


@pytest.mark.cluster
def test_columns_of_every_kind_match_kube_apiserver(server: Server) -> None:
    wrong = {}
    for resource in builtin_resources():
        if "list" not in resource.verbs or resource.group == "metrics.k8s.io":
            continue
        path = path_of(f"{resource.api_version} {resource.plural}", namespaced=False)
        real = server.admin.get(path, headers=TABLE, query={"limit": 1}).json["columnDefinitions"]
        ours = [column.definition() for column in columns_of(resource.group, resource.plural).columns]
        shape = [
            [{key: column[key] for key in column if key != "description"} for column in side] for side in (real, ours)
        ]
        if shape[0] != shape[1]:
            wrong[resource.plural] = shape
        assert all(column["description"] for column in ours), resource.plural
    assert not wrong
