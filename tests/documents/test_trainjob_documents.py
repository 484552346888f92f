"""The manifests of docs/trainjobs.md on a plane, and the commands of docs/moving-to-trainjobs.md."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kubernetes import ROOT, Server
from tests.support.waiting import eventually
from tests.support.yard import Yard

PAGE = (ROOT / "docs" / "trainjobs.md").read_text()
MANIFESTS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)]
TRAINJOBS = [manifest for manifest in MANIFESTS if manifest["kind"] == "TrainJob"]
RUNTIMES = [manifest for manifest in MANIFESTS if manifest["kind"] == "ClusterTrainingRuntime"]
PATCHED = next(manifest for manifest in MANIFESTS if manifest["metadata"]["name"] == "mnist-patched")
TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
JOBS = f"{TRAINER}/namespaces/default/trainjobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("trainjobs"), controllers="*") as server:
        runtime = f"{TRAINER}/clustertrainingruntimes/torchyard-elastic"
        eventually(lambda: server.admin.get(runtime).status == 200, "the runtimes")
        for manifest in RUNTIMES:  # of the jobs that follow them on the page
            created = server.admin.post(f"{TRAINER}/clustertrainingruntimes", manifest)
            assert created.status == 201, created
        yield server


def jobset_of(server: Server, name: str) -> dict[str, Any]:
    eventually(lambda: server.admin.get(f"{JOBSETS}/{name}").status == 200, "the JobSet")
    jobset: dict[str, Any] = server.admin.get(f"{JOBSETS}/{name}").json
    return jobset


@pytest.mark.parametrize("manifest", TRAINJOBS, ids=lambda manifest: manifest["metadata"]["name"])
def test_a_manifest_of_the_page_makes_a_jobset(server: Server, manifest: dict[str, Any]) -> None:
    created = server.admin.post(JOBS, manifest)
    assert created.status == 201, created
    name = manifest["metadata"]["name"]
    spec = jobset_of(server, name)["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert spec["parallelism"] == (manifest["spec"].get("trainer") or {}).get("numNodes", 1)
    assert server.admin.get(f"/api/v1/namespaces/default/configmaps/{name}-runtime-snapshot").status == 200
    eventually(lambda: server.admin.get(f"{JOBS}/{name}").json.get("status", {}).get("state") == "Created", "the state")


def test_a_suspended_job_takes_patches_and_is_resumed(server: Server) -> None:
    job = {**PATCHED, "metadata": {"name": "queued"}, "spec": {**PATCHED["spec"], "suspend": True}}
    assert server.admin.post(JOBS, job).status == 201
    assert jobset_of(server, "queued")["spec"]["suspend"] is True
    pods = {"spec": {"nodeSelector": {"zone": "a"}}}
    edit = {"name": "node", "template": {"spec": {"template": pods}}}
    patch = {
        "manager": "example.com/queue",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [edit]}}},
    }
    patches = [*PATCHED["spec"]["runtimePatches"], patch]
    assert server.admin.patch(f"{JOBS}/queued", {"spec": {"runtimePatches": patches}}).status == 200
    assert server.admin.patch(f"{JOBS}/queued", {"spec": {"suspend": False}}).status == 200

    def is_resumed() -> bool:
        spec = jobset_of(server, "queued")["spec"]
        pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        return not spec["suspend"] and pod.get("nodeSelector") == {"zone": "a"}

    eventually(is_resumed, "the resumed JobSet with the patch")
    refused = server.admin.patch(f"{JOBS}/queued", {"spec": {"runtimePatches": patches[:1]}})
    assert refused.status == 422
    assert "RuntimePatches can only be modified when the TrainJob is suspended" in refused.message


def test_a_queued_job_starts_with_the_node_selector_of_its_flavor(server: Server) -> None:
    queues = "/apis/kueue.x-k8s.io/v1beta2"
    flavors = [{"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    for kind, path, name, spec in (
        ("ResourceFlavor", "resourceflavors", "gpu", {"nodeLabels": {"kind": "gpu"}}),
        ("ClusterQueue", "clusterqueues", "team", {"namespaceSelector": {}, "resourceGroups": groups}),
        ("LocalQueue", "namespaces/default/localqueues", "team", {"clusterQueue": "team"}),
    ):
        obj = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
        assert server.admin.post(f"{queues}/{path}", obj).status == 201
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    job = {**MANIFESTS[0], "metadata": {"name": "with-queue", "labels": labels}}
    assert server.admin.post(JOBS, job).json["spec"]["suspend"] is True

    def is_started() -> bool:
        spec = jobset_of(server, "with-queue")["spec"]
        pods = spec["replicatedJobs"][0]["template"]["spec"]["template"]
        return not spec["suspend"] and pods["spec"].get("nodeSelector") == {"kind": "gpu"}

    eventually(is_started, "the start with the node selector")
    assert server.admin.patch(f"{queues}/clusterqueues/team", {"spec": {"stopPolicy": "HoldAndDrain"}}).status == 200

    def is_restored() -> bool:
        spec = server.admin.get(f"{JOBS}/with-queue").json["spec"]
        return spec["suspend"] and not any(patch.get("trainingRuntimeSpec") for patch in spec["runtimePatches"])

    eventually(is_restored, "the eviction")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runtimeRef": {"name": "none"}}, "specified clusterTrainingRuntime must be created before"),
        ({"trainer": {"numNodes": 0}}, "spec.trainer.numNodes: Invalid value: 0"),
        ({"trainer": {"env": [{"name": "PET_NNODES", "value": "1"}]}}, "must not have reserved envs"),
    ],
)
def test_bad_input_is_refused(server: Server, change: dict[str, Any], words: str) -> None:
    job = {**MANIFESTS[0], "metadata": {"name": "bad"}, "spec": {**MANIFESTS[0]["spec"], **change}}
    refused = server.admin.post(JOBS, job)
    assert refused.status == 422
    assert words in refused.message


def test_the_snapshot_outlives_the_runtime(server: Server) -> None:
    runtimes = f"{TRAINER}/clustertrainingruntimes"
    stored = server.admin.get(f"{runtimes}/torch-distributed").json
    copy = {**stored, "metadata": {"name": "short-lived", "labels": stored["metadata"]["labels"]}}
    assert server.admin.post(runtimes, copy).status == 201
    job = {**MANIFESTS[0], "metadata": {"name": "kept"}}
    job["spec"] = {**MANIFESTS[0]["spec"], "runtimeRef": {"name": "short-lived"}, "suspend": True}
    assert server.admin.post(JOBS, job).status == 201
    jobset_of(server, "kept")
    assert server.admin.delete(f"{runtimes}/short-lived").status == 200
    assert server.admin.patch(f"{JOBS}/kept", {"spec": {"suspend": False}}).status == 200
    eventually(lambda: jobset_of(server, "kept")["spec"]["suspend"] is False, "the resumed JobSet")


def test_the_commands_of_the_page_convert_there_and_back(tmp_path: Path) -> None:
    example = ROOT / "examples" / "mnist-ddp" / "pytorch_job_mnist_gloo_demo.yaml"

    def convert(path: Path) -> str:
        command = [sys.executable, "-m", "torchyard.cli", "convert", str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    manifest = tmp_path / "trainjob.yaml"
    manifest.write_text(convert(example))
    assert yaml.safe_load(manifest.read_text())["kind"] == "TrainJob"
    assert "# RANK, WORLD_SIZE" in manifest.read_text()
    assert yaml.safe_load(convert(manifest))["kind"] == "PyTorchJob"
