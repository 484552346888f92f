"""Every rule about a kind, judged by a real kube-apiserver: the same verdict, the same words, the same defaults."""

from __future__ import annotations

import pytest
from tests.api.differential import cases_cluster, cases_job, cases_pod, cases_service, cases_volume, cases_workload
from tests.api.differential.judge import Case, Judge, compare
from tests.support.kubernetes import Server

NAMESPACE = "diff"
CASES = [
    pytest.param(case, id=f"{module.__name__.rpartition('_')[2]}: {case.name}")
    for module in (cases_cluster, cases_pod, cases_job, cases_service, cases_volume, cases_workload)
    for case in module.CASES
]


@pytest.fixture(scope="module")
def judge(kube_bare: Server) -> Judge:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    answer = kube_bare.admin.post("/api/v1/namespaces", body)
    assert answer.status in (201, 409), answer
    return Judge(kube_bare.admin, NAMESPACE)


@pytest.mark.cluster
@pytest.mark.parametrize("case", CASES)
def test_our_rules_say_what_a_real_server_says(judge: Judge, case: Case) -> None:
    assert compare(judge, case) == []
