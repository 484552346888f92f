"""The documents' claims and volumes with a real kubectl: bound by label, and by the classes of other clusters."""

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

from torchyard.yard.selection import KNOWN

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif("persistentvolume-binder-controller" not in KNOWN, reason="no controller binds claims"),
]

EXAMPLES = ROOT / "examples"
TIMEOUT = 60


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("volumes"), controllers="*") as server:
        yield server


@pytest.fixture
def shell(plane: Server, tmp_path: Path) -> Kubectl:
    kubectl = kubectls.need()
    return kubectl.using(plane.kubeconfig, tmp_path)


def row(shell: Kubectl, *arguments: str) -> dict[str, str]:
    """Return the only row that `kubectl get` prints, by heading."""
    header, line = shell("get", *arguments).splitlines()
    starts = [heading.start() for heading in re.finditer(r"\S+(?: \S+)*", header)]
    return {
        header[start:end].strip(): line[start:end].strip()
        for start, end in zip(starts, [*starts[1:], None], strict=True)
    }


@pytest.mark.row("S1.2")
def test_a_claim_from_standard_input_is_bound_in_the_contexts_namespace(shell: Kubectl) -> None:
    shell("create", "namespace", "user")
    shell("config", "set-context", "--current", "--namespace=user")
    try:
        shell("apply", "-f", "-", stdin=(EXAMPLES / "pvc-checkpoints" / "data-claim.yaml").read_text())
        eventually(lambda: row(shell, "pvc", "data")["STATUS"] == "Bound", "the claim", TIMEOUT)
        claim = row(shell, "pvc", "data")
        assert (claim["CAPACITY"], claim["ACCESS MODES"]) == ("10Gi", "RWO")
        assert claim["STORAGECLASS"] == "k8s-storage-policy"
        assert "k8s-storage-policy" in shell("describe", "pvc", "data")
    finally:
        shell("config", "set-context", "--current", "--namespace=default")


@pytest.mark.row("S2.1", "S2.2")
def test_a_claim_selects_a_volume_by_its_labels(shell: Kubectl, tmp_path: Path) -> None:
    volume = yaml.safe_load((EXAMPLES / "custom-image" / "traindb-models-volume.yaml").read_text())
    volume["spec"]["hostPath"]["path"] = str(tmp_path)
    shell("apply", "-f", "-", stdin=yaml.safe_dump(volume))
    eventually(lambda: row(shell, "pv", "traindb-models-volume")["STATUS"] == "Available", "the volume free", TIMEOUT)
    if shell.run("get", "namespace", "kubeflow").returncode:
        shell("create", "namespace", "kubeflow")
    shell("apply", "-f", str(EXAMPLES / "custom-image" / "traindb-models-claim.yaml"), "-n", "kubeflow")
    eventually(lambda: row(shell, "pv", "traindb-models-volume")["STATUS"] == "Bound", "the volume bound", TIMEOUT)
    bound = row(shell, "pv", "traindb-models-volume", "-n", "kubeflow")
    assert (bound["CAPACITY"], bound["ACCESS MODES"], bound["RECLAIM POLICY"]) == ("10Gi", "RWX", "Retain")
    assert (bound["CLAIM"], bound["STORAGECLASS"]) == ("kubeflow/traindb-models-claim", "manual")
    eventually(
        lambda: row(shell, "pvc", "traindb-models-claim", "-n", "kubeflow")["STATUS"] == "Bound", "the claim", TIMEOUT
    )
    claim = row(shell, "pvc", "traindb-models-claim", "-n", "kubeflow")
    assert (claim["VOLUME"], claim["CAPACITY"]) == ("traindb-models-volume", "10Gi"), (
        "the capacity of the volume, not the requested 3Gi"
    )


@pytest.mark.row("S3.1")
def test_a_claim_with_another_clusters_storage_class_is_bound(shell: Kubectl) -> None:
    shell("create", "-f", str(EXAMPLES / "queued-jobs" / "pytorch-pvc.yaml"))
    eventually(lambda: row(shell, "pvc", "pytorch-pvc")["STATUS"] == "Bound", "the claim", TIMEOUT)
    assert row(shell, "pvc", "pytorch-pvc")["CAPACITY"] == "2Gi"
