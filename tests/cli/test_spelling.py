"""Misspelled fields, kinds, versions, queues, claims, classes and images get a suggestion."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.cli.test_jobs import BATCH, batch_job, call
from tests.cli.test_run import job, manifest, pod
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.cli import jobs
from torchyard.sdk import Yard as SdkYard


def refusal(plane: Yard, directory: Path, obj: Object) -> str:
    code, output = call(plane, "run", manifest(directory, obj))
    assert code == 1, output
    return output


def test_a_misspelled_field_gets_a_suggestion(plane: Yard, tmp_path: Path) -> None:
    wrong = job("fields", "true")
    wrong["spec"]["pytorchReplicaSpec"] = wrong["spec"].pop("pytorchReplicaSpecs")
    output = refusal(plane, tmp_path, wrong)
    assert "field not declared in schema" in output
    assert "hint: did you mean pytorchReplicaSpecs?" in output

    code, output = call(plane, "run", manifest(tmp_path, batch_job("lost", "true")), "-n", "nowhere")
    assert code == 1
    assert "hint: create it: `kubectl create namespace nowhere`" in output

    wrong = batch_job("fields", "true")
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "busybox"
    assert "hint: did you mean image?" in refusal(plane, tmp_path, wrong)

    wrong = job("fields", "true")
    template = wrong["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    template["spec"]["containers"][0]["volumeMount"] = []
    assert "hint: did you mean volumeMounts?" in refusal(plane, tmp_path, wrong)


def test_a_misspelled_field_of_a_generated_name_is_not_dropped(plane: Yard, tmp_path: Path) -> None:
    wrong = pod("", "true")
    wrong["metadata"] = {"generateName": "fields-"}
    wrong["spec"]["restartPolice"] = "Never"
    output = refusal(plane, tmp_path, wrong)
    assert 'unknown field "spec.restartPolice"' in output
    assert "hint: did you mean restartPolicy?" in output


def test_the_sdk_refuses_a_misspelled_field(plane: Yard) -> None:
    wrong = pod("fields", "true")
    wrong["spec"]["restartPolice"] = "Never"
    with SdkYard(kubeconfig=plane.kubeconfig) as connection, pytest.raises(StatusError, match="restartPolice"):
        connection.submit(wrong)


@pytest.mark.parametrize(
    ("api_version", "kind", "hint"),
    [
        ("kubeflow.org/v1", "PytorchJob", "did you mean kind: PyTorchJob?"),
        ("v1", "Job", "did you mean apiVersion: batch/v1?"),
        ("kubeflow.org/v2", "PyTorchJob", "did you mean apiVersion: kubeflow.org/v1?"),
        ("bacth/v1", "Jobs", "did you mean apiVersion: batch/v1?"),
    ],
)
def test_a_misspelled_kind_gets_a_suggestion(
    plane: Yard, tmp_path: Path, api_version: str, kind: str, hint: str
) -> None:
    assert f"hint: {hint}" in refusal(
        plane, tmp_path, {**pod("kinds", "true"), "apiVersion": api_version, "kind": kind}
    )


def test_a_misspelled_claim_queue_and_class_get_a_suggestion(plane: Yard, tmp_path: Path) -> None:
    api = plane.server().admin
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    path = "/api/v1/namespaces/default/persistentvolumeclaims"
    assert (
        api.post(path, {"kind": "PersistentVolumeClaim", "metadata": {"name": "datasets"}, "spec": claim}).status == 201
    )
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "dataset"}}
    assert api.post(BATCH, batch_job("claim-typo", "true", volumes=[volume])).status == 201
    question = "(did you mean datasets?)"
    eventually(lambda: question in call(plane, "why", "claim-typo")[1], "the suggestion")
    call(plane, "delete", "claim-typo")

    queued = job("queue-typo", "true")
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "defalt"}
    command = [*_command(), "run", manifest(tmp_path, queued), "--kubeconfig", str(plane.kubeconfig)]
    environment = {"PATH": "/usr/bin:/bin", **_environment()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "waits in queue" in line)
        process.terminate()
    assert "did you mean default?" in line
    call(plane, "delete", "queue-typo")

    classed = {**pod("class-typo", "true")}
    classed["spec"] = {**classed["spec"], "priorityClassName": "system-node-critcal"}
    assert "hint: did you mean system-node-critical?" in refusal(plane, tmp_path, classed)


def test_no_escape_sequence_of_a_job_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    jobs._print_lines(["web  50% \x1b]0;title\x07\x9b31m é"])
    assert capsys.readouterr().out == "web  50% ?]0;title??31m é\n"
