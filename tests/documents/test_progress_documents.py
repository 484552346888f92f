"""The endpoint for the progress of TrainJobs on a plane, and what the job shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.kubernetes import Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
JOBS = f"{TRAINER}/namespaces/default/trainjobs"
TOKENS = "/api/v1/namespaces/default/serviceaccounts/default/token"
STATUS = {
    "lastUpdatedTime": "2026-01-01T00:00:00.5+00:00",
    "progressPercentage": 45,
    "estimatedRemainingSeconds": 200,
    "metrics": [{"name": "loss", "value": "0.31"}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("progress"), controllers="*") as server:
        runtime = f"{TRAINER}/clustertrainingruntimes/torch-distributed"
        eventually(lambda: server.admin.get(runtime).status == 200, "the runtimes")
        eventually(lambda: server.admin.get(TOKENS.removesuffix("/token")).status == 200, "the service account")
        job = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "mnist"},
            "spec": {"runtimeRef": {"name": "torch-distributed"}},
        }
        assert server.admin.post(JOBS, job).status == 201
        yield server


def token(server: Server, job: str) -> str:
    audience = f"trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/{job}/status"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience]}}
    created: dict[str, Any] = server.admin.post(TOKENS, request).json
    return str(created["status"]["token"])


def test_a_report_is_answered_and_shown(server: Server) -> None:
    node = server.admin.as_user(token(server, "mnist"))
    answer = node.post(f"{JOBS}/mnist/status", {"trainerStatus": STATUS})
    assert (answer.status, answer.json) == (200, {"trainerStatus": STATUS})
    assert node.post(f"{JOBS}/mnist/status", {}).status == 200

    def shown() -> dict[str, Any]:
        status: dict[str, Any] = server.admin.get(f"{JOBS}/mnist").json.get("status") or {}
        return status

    eventually(lambda: shown().get("progress") == "45%, 3m20s left, loss 0.31", "the progress")
    assert shown()["trainerStatus"] == {**STATUS, "lastUpdatedTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("job", "of", "body", "status", "message"),
    [
        ("mnist", "other", {}, 403, "Forbidden"),
        ("none", "none", {}, 404, "Train job not found"),
        ("mnist", "mnist", [], 422, "Invalid payload"),
        ("mnist", "mnist", {"trainerStatus": {}}, 422, "lastUpdatedTime is required when trainerStatus is present"),
        ("mnist", "mnist", {"trainerStatus": {"metrics": "x" * 70000}}, 413, "limit is 65536"),
    ],
)
def test_a_report_with_a_mistake_gets_upstreams_answer(
    server: Server, job: str, of: str, body: Any, status: int, message: str
) -> None:
    answer = server.admin.as_user(token(server, of)).post(f"{JOBS}/{job}/status", body)
    assert answer.status == status, answer
    assert message in answer.message


def test_the_token_of_a_job_is_good_for_nothing_else(server: Server) -> None:
    node = server.admin.as_user(token(server, "mnist"))
    assert node.get(f"{JOBS}/mnist").status == 401
    assert node.put(f"{JOBS}/mnist/status", {}).status == 401
    assert node.post(JOBS, {}).status == 401


def test_the_nodes_get_the_address_and_a_token(server: Server) -> None:
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/mnist"
    eventually(lambda: server.admin.get(path).status == 200, "the JobSet")
    job = server.admin.get(path).json["spec"]["replicatedJobs"][0]["template"]
    pod = job["spec"]["template"]["spec"]
    variables = {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}
    assert variables["KUBEFLOW_TRAINER_SERVER_URL"].endswith(f"{JOBS}/mnist/status")
    assert variables["KUBEFLOW_TRAINER_SERVER_TOKEN"] == "/var/run/secrets/kubeflow/trainer/token"
    assert pod["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600


def test_a_patch_for_another_job_of_the_same_name_is_refused(server: Server) -> None:
    """The controller puts the uid into its patches, so that late reports do not change a job that has the name now."""
    assert server.admin.patch(f"{JOBS}/mnist", {"metadata": {"uid": "another"}}).status == 422
