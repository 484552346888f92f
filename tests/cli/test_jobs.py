"""The commands that lead back to a job: ps, logs, why, events, stop, resume, delete."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_run import job, manifest, pod
from tests.node.support import need_network
from tests.support.waiting import eventually
from tests.support.yard import Yard, _command, _environment, yard

from torchyard.api.objects import Object

BATCH = "/apis/batch/v1/namespaces/default/jobs"
ENDLESS = "trap 'exit 0' TERM; sleep 600 & wait"
TRAINING = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    need_network()
    plane = Yard(tmp_path_factory.mktemp("jobs"), controllers="*", flags=("--node",))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        yard("down", state=plane.state, timeout=120)


def call(plane: Yard, *arguments: str) -> tuple[int, str]:
    """Run a command to its end; return its exit code and its output."""
    verb, *rest = arguments  # the option comes before a possible --
    process = subprocess.run(
        [*_command(), verb, "--kubeconfig", str(plane.kubeconfig), *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=240,
        check=False,
        env={"PATH": "/usr/bin:/bin", **_environment()},
    )
    return process.returncode, process.stdout


def batch_job(name: str, script: str, **more: object) -> Object:
    template = {"spec": {**pod("", script)["spec"], **more}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template},
    }


def state_of(plane: Yard, name: str) -> str:
    rows = json.loads(call(plane, "ps", "-o", "json")[1])
    return next((str(row["state"]) for row in rows if row["name"] == name), "")


def test_a_running_job_is_listed_followed_suspended_and_deleted(plane: Yard) -> None:
    api = plane.server().admin
    assert api.post(TRAINING, job("walk", f"echo rank $RANK is up; {ENDLESS}")).status == 201
    eventually(lambda: state_of(plane, "walk") == "Running", "the job to run")
    code, output = call(plane, "ps")
    assert code == 0
    header, row = output.splitlines()[0].split(), next(x for x in output.splitlines() if x.startswith("walk")).split()
    assert header == ["NAME", "KIND", "STATE", "REPLICAS", "QUEUE", "AGE", "PROGRESS"]
    assert row[:3] == ["walk", "PyTorchJob", "Running"]
    eventually(lambda: "3/3" in call(plane, "ps")[1], "all replicas to run")
    assert call(plane, "ps", "-o", "name")[1].splitlines().count("pytorchjob.kubeflow.org/walk") == 1

    eventually(lambda: call(plane, "logs", "walk")[1].count("is up") == 3, "the line of every replica")
    assert call(plane, "logs", "walk")[1].splitlines() == [
        "[master-0] rank 0 is up",
        "[worker-0] rank 1 is up",
        "[worker-1] rank 2 is up",
    ]
    assert call(plane, "logs", "walk", "--rank", "2")[1] == "[worker-1] rank 2 is up\n"
    assert call(plane, "logs", "walk", "--rank", "worker-0", "--grep", "nothing")[1] == ""
    code, output = call(plane, "logs", "walk", "--rank", "7")
    assert code == 1
    assert "error: walk has no rank 7" in output
    assert "0/master-0, 1/worker-0, 2/worker-1" in output

    code, output = call(plane, "events", "walk")
    assert code == 0
    assert "SuccessfulCreatePod" in output
    assert "pod/walk-master-0: " in output

    assert "suspended" in call(plane, "stop", "walk")[1]
    eventually(lambda: state_of(plane, "walk") == "Suspended", "the job to be suspended")
    assert "start it with: yard resume walk" in call(plane, "why", "walk")[1]
    assert "suspended already" in call(plane, "stop", "walk")[1]
    assert "resumed" in call(plane, "resume", "walk")[1]
    eventually(lambda: state_of(plane, "walk") == "Running", "the job to run again")
    assert call(plane, "delete", "pytorchjob/walk") == (0, "pytorchjob.kubeflow.org/walk deleted\n")
    eventually(lambda: state_of(plane, "walk") == "", "the job to be gone")


def test_a_failed_job_says_why_and_names_its_log(plane: Yard) -> None:
    api = plane.server().admin
    assert api.post(BATCH, batch_job("broken", "echo cannot open data; exit 4")).status == 201
    eventually(lambda: state_of(plane, "broken") == "Failed", "the job to fail")
    code, output = call(plane, "why", "broken")
    assert code == 0
    assert "Job broken is Failed: " in output
    assert "exit code 4" in output
    command = output.splitlines()[-1].removeprefix("its last lines: yard ").split()
    assert call(plane, *command)[1].endswith("cannot open data\n")


def test_a_job_whose_pod_waits_is_pending_and_says_for_what(plane: Yard) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    assert plane.server().admin.post(BATCH, batch_job("claimless", "true", volumes=[volume])).status == 201
    eventually(lambda: "nowhere" in call(plane, "why", "claimless")[1], "the reason")
    assert state_of(plane, "claimless") == "Pending"
    call(plane, "delete", "claimless")


def test_logs_wait_for_a_job_that_is_pending(plane: Yard) -> None:
    suspended = batch_job("later", "echo here I am")
    suspended["spec"]["suspend"] = True
    assert plane.server().admin.post(BATCH, suspended).status == 201
    command = [*_command(), "logs", "later", "-f", "--kubeconfig", str(plane.kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
        assert "resumed" in call(plane, "resume", "later")[1]
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert output.endswith("here I am\n")


def test_a_misspelled_name_gets_a_suggestion(plane: Yard) -> None:
    assert plane.server().admin.post(BATCH, batch_job("mnist-train", "true")).status == 201
    code, output = call(plane, "why", "mnist-trian")
    assert code == 1
    assert "no job is called mnist-trian in namespace default" in output
    assert "did you mean mnist-train?" in output
    assert "is not a kind of job" in call(plane, "logs", "deployment/x")[1]
    assert "it is not a duration" in call(plane, "logs", "mnist-train", "--since", "soon")[1]
    assert "it is not a regular expression" in call(plane, "logs", "mnist-train", "--grep", "(")[1]


def test_the_name_of_another_kind_gets_a_hint(plane: Yard) -> None:
    admin = plane.server().admin
    selector = {"app": "board"}
    template = {"metadata": {"labels": selector}, "spec": {"containers": [{"name": "main", "image": "python:3.11"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": selector}, "template": template}
    deployment = {"metadata": {"name": "board"}, "spec": spec}
    assert admin.post("/apis/apps/v1/namespaces/default/deployments", deployment).status == 201
    schedule = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": batch_job("any", "true")["spec"]}}
    cron = {"metadata": {"name": "nightly"}, "spec": schedule}
    assert admin.post("/apis/batch/v1/namespaces/default/cronjobs", cron).status == 201
    assert "board is a Deployment, which is not a job: use kubectl" in call(plane, "logs", "board")[1]
    assert "nightly is a CronJob; it has created no job yet" in call(plane, "why", "nightly")[1]
    uid = admin.get("/apis/batch/v1/namespaces/default/cronjobs/nightly").json["metadata"]["uid"]
    job = batch_job("nightly-1", "true")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": uid, "controller": True}
    job["metadata"]["ownerReferences"] = [owner]
    assert admin.post(BATCH, job).status == 201
    assert "nightly is a CronJob; it has created nightly-1" in call(plane, "why", "nightly")[1]
    assert "nightly-1" in call(plane, "why", "nightly-1")[1]


def test_a_changed_manifest_of_a_running_job_is_refused_or_replaces_it(plane: Yard, tmp_path: Path) -> None:
    api = plane.server().admin
    assert api.post(TRAINING, job("edited", ENDLESS)).status == 201
    eventually(lambda: state_of(plane, "edited") == "Running", "the job to run")
    file = manifest(tmp_path, job("edited", "echo second version"))
    code, output = call(plane, "run", file)
    assert code == 1
    assert "error: pytorchjob.kubeflow.org/edited exists, is Running, and cannot be changed in place" in output
    assert re.search(r"^\+ +- echo second version$", output, re.MULTILINE)
    assert "hint: use --replace" in output
    code, output = call(plane, "run", file, "--diff")
    assert code == 0
    assert "pytorchjob.kubeflow.org/edited would be replaced" in output
    code, output = call(plane, "run", file, "--replace")
    assert code == 0, output
    assert "[master-0] second version" in output


def test_a_changed_manifest_of_a_batch_job_is_refused_with_the_difference(plane: Yard, tmp_path: Path) -> None:
    assert plane.server().admin.post(BATCH, batch_job("fixed", ENDLESS)).status == 201
    eventually(lambda: state_of(plane, "fixed") == "Running", "the job to run")
    code, output = call(plane, "run", manifest(tmp_path, batch_job("fixed", "echo changed")))
    assert code == 1
    assert "field is immutable" in output
    assert re.search(r"^\+ +- echo changed$", output, re.MULTILINE)
    call(plane, "delete", "fixed")


def test_a_replica_that_outlives_its_failed_job_is_named(plane: Yard, tmp_path: Path) -> None:
    script = 'if [ "$RANK" = 0 ]; then sleep 1; exit 3; fi; ' + ENDLESS
    training = job("outlived", script)
    training["spec"]["runPolicy"] = {"cleanPodPolicy": "None", "backoffLimit": 0}
    code, output = call(plane, "run", manifest(tmp_path, training))
    assert code == 3, output
    assert "outlived-worker-0 is still running; delete it with: kubectl delete" in output
    call(plane, "delete", "outlived")


def test_a_queued_job_gives_the_reason(plane: Yard, tmp_path: Path) -> None:
    queued = job("queued", "true")
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "mispelled"}
    command = [*_command(), "run", manifest(tmp_path, queued), "--kubeconfig", str(plane.kubeconfig)]
    environment = {"PATH": "/usr/bin:/bin", **_environment()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "waits in queue" in line)
        process.terminate()
    assert "queued waits in queue mispelled: " in line
    assert "doesn't exist" in line
    assert "doesn't exist" in call(plane, "why", "queued")[1]
    call(plane, "delete", "queued")


def test_a_job_that_deletes_its_pods_before_it_fails_gives_their_exit_code(plane: Yard, tmp_path: Path) -> None:
    crashing = batch_job("crashing", "echo begun; sleep 1; exit 5")
    crashing["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    code, output = call(plane, "run", manifest(tmp_path, crashing))
    assert code == 5, output
    assert "first to fail: crashing-" in output
    eventually(lambda: "begun" in call(plane, "logs", "crashing")[1], "the kept log")
    assert re.search(r"Failed +5 +Error", call(plane, "history", "crashing")[1])
