"""The real Kubernetes of the tests starts, answers and is spoken to by every kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server, assets

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(("program", "runs"), [("#!/bin/sh\n", True), ("\x7fELF of another machine", False)])
def test_programs_that_do_not_run_here_are_none(
    program: str, runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).write_text(program)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert assets.__wrapped__() == (tmp_path if runs else None)


def test_a_bare_server_answers_and_says_its_version(kube_bare: Server) -> None:
    answer = kube_bare.admin.get("/version")
    assert answer.status == 200
    assert answer.json["major"] == "1"


def test_a_write_is_seen_by_a_watch(kube_bare: Server) -> None:
    before = kube_bare.admin.get(CONFIG_MAPS).json["metadata"]["resourceVersion"]
    with kube_bare.admin.watch(CONFIG_MAPS, query={"resourceVersion": before}) as watch:
        assert watch.quiet()
        created = kube_bare.admin.post(CONFIG_MAPS, {"metadata": {"name": "seen"}, "data": {"a": "1"}})
        assert created.status == 201
        event = watch.next()
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "seen")
    assert kube_bare.admin.delete(f"{CONFIG_MAPS}/seen").status == 200


def test_every_kubectl_reads_from_it(kubectl: Kubectl, kube_bare: Server, tmp_path: Path) -> None:
    output = kubectl.using(kube_bare.kubeconfig, tmp_path)("get", "namespaces", "-o", "name")
    assert "namespace/default" in output.split()


def test_housekeeping_makes_the_default_service_account(kube: Server) -> None:
    assert kube.admin.get("/api/v1/namespaces/default/serviceaccounts/default").status == 200
