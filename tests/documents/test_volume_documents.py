"""The documents' claims and volumes, typed with a real kubectl: bound by label, and by the classes of other places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.yard.controllers import KNOWN

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif("persistentvolume-binder-controller" not in KNOWN, reason="nothing binds claims yet"),
]

EXAMPLES = ROOT / "examples"
PATIENCE = 60


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("volumes"), controllers="*") as server:
        yield server


@pytest.fixture
def shell(plane: Server, tmp_path: Path) -> Kubectl:
    found = kubectls.need()
    return found.using(plane.kubeconfig, tmp_path)


def row(shell: Kubectl, *what: str) -> dict[str, str]:
    """The one line that `kubectl get` prints, by heading."""
    header, line = shell("get", *what).splitlines()
    starts = [found.start() for found in re.finditer(r"\S+(?: \S+)*", header)]
    return {
        header[start:end].strip(): line[start:end].strip()
        for start, end in zip(starts, [*starts[1:], None], strict=True)
    }


def test_s1_2_a_claim_from_a_here_document_in_a_namespace_of_ones_own(shell: Kubectl) -> None:
    shell("create", "namespace", "user")
    shell("config", "set-context", "--current", "--namespace=user")
    try:
        shell("apply", "-f", "-", stdin=(EXAMPLES / "pvc-checkpoints" / "data-claim.yaml").read_text())
        eventually(lambda: row(shell, "pvc", "data")["STATUS"] == "Bound", "the claim", PATIENCE)
        found = row(shell, "pvc", "data")
        assert (found["CAPACITY"], found["ACCESS MODES"]) == ("10Gi", "RWO")
        assert found["STORAGECLASS"] == "k8s-storage-policy"
        assert "k8s-storage-policy" in shell("describe", "pvc", "data")
    finally:
        shell("config", "set-context", "--current", "--namespace=default")


def test_s2_1_and_2_a_volume_is_bound_by_its_labels(shell: Kubectl, tmp_path: Path) -> None:
    volume = yaml.safe_load((EXAMPLES / "custom-image" / "traindb-models-volume.yaml").read_text())
    volume["spec"]["hostPath"]["path"] = str(tmp_path)
    shell("apply", "-f", "-", stdin=yaml.safe_dump(volume))
    eventually(lambda: row(shell, "pv", "traindb-models-volume")["STATUS"] == "Available", "the volume free", PATIENCE)
    if shell.run("get", "namespace", "kubeflow").returncode:
        shell("create", "namespace", "kubeflow")
    shell("apply", "-f", str(EXAMPLES / "custom-image" / "traindb-models-claim.yaml"), "-n", "kubeflow")
    eventually(lambda: row(shell, "pv", "traindb-models-volume")["STATUS"] == "Bound", "the volume bound", PATIENCE)
    found = row(shell, "pv", "traindb-models-volume", "-n", "kubeflow")
    assert (found["CAPACITY"], found["ACCESS MODES"], found["RECLAIM POLICY"]) == ("10Gi", "RWX", "Retain")
    assert (found["CLAIM"], found["STORAGECLASS"]) == ("kubeflow/traindb-models-claim", "manual")
    eventually(
        lambda: row(shell, "pvc", "traindb-models-claim", "-n", "kubeflow")["STATUS"] == "Bound", "the claim", PATIENCE
    )
    claim = row(shell, "pvc", "traindb-models-claim", "-n", "kubeflow")
    assert (claim["VOLUME"], claim["CAPACITY"]) == ("traindb-models-volume", "10Gi"), (
        "the volume's, not the 3Gi asked for"
    )


def test_s3_1_a_claim_of_another_places_class_is_bound(shell: Kubectl) -> None:
    shell("create", "-f", str(EXAMPLES / "queued-jobs" / "pytorch-pvc.yaml"))
    eventually(lambda: row(shell, "pvc", "pytorch-pvc")["STATUS"] == "Bound", "the claim", PATIENCE)
    assert row(shell, "pvc", "pytorch-pvc")["CAPACITY"] == "2Gi"
