"""Verdicts on CRDs and custom resources match the real server's, which are recorded and can be checked."""

from __future__ import annotations

import pytest
from tests.apiserver.crd import cases, kubernetes_server, torchyard_server
from tests.support.kubernetes import Server

CASES = cases.load()
SAME = [name for name, case in CASES.items() if "differs" not in case]
DIFFERENT = [name for name, case in CASES.items() if "differs" in case]


@pytest.mark.parametrize("name", SAME)
def test_each_case_has_the_recorded_verdict(name: str) -> None:
    assert torchyard_server.verdict(name, CASES[name]) == cases.recorded()[name]


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_listed_difference_exists(name: str) -> None:
    assert torchyard_server.verdict(name, CASES[name]) != cases.recorded()[name]


@pytest.mark.parametrize("name", CASES)
def test_the_server_returns_the_verdict_of_the_pure_functions(name: str, yard: Server) -> None:
    assert kubernetes_server.verdict(yard.admin, name, CASES[name]) == torchyard_server.verdict(name, CASES[name])


@pytest.mark.cluster
@pytest.mark.parametrize("name", CASES)
def test_a_real_server_returns_the_recorded_verdict(name: str, kube_bare: Server) -> None:
    assert kubernetes_server.verdict(kube_bare.admin, name, CASES[name]) == cases.recorded()[name]
