"""The daily commands on jobs that have Jobs: JobSets and TrainJobs."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.test_jobs import BATCH, call, state_of
from tests.cli.test_past_jobs import records
from tests.support.waiting import eventually
from tests.support.yard import Yard

from torchyard.api.objects import Object

IMAGE = "busybox"
SCRIPT = 'echo "begun with $*"; echo loss=$2; trap "exit 0" TERM; [ "$2" = 0.2 ] || { sleep 600 & wait; }'
COMMAND = ["sh", "-c", SCRIPT, "train"]
ARGS = ["--lr", "0.1"]


def jobset(name: str) -> Object:
    container = {"name": "main", "image": IMAGE, "command": COMMAND, "args": ARGS}
    pods = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0, "template": pods}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": spec}}]},
    }


def trainjob(name: str) -> Object:
    trainer = {"numNodes": 2, "image": IMAGE, "command": COMMAND, "args": ARGS}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
    }


@pytest.mark.parametrize(("job", "role"), [(jobset("group"), "workers-0-1"), (trainjob("trained"), "node-0-1")])
def test_a_job_that_has_jobs_is_listed_read_stopped_run_again_and_remembered(
    plane: Yard, job: Object, role: str
) -> None:
    name, again, kind = job["metadata"]["name"], f"{job['metadata']['name']}-again", job["kind"]
    path = f"/apis/{job['apiVersion']}/namespaces/default/{kind.lower()}s"
    assert plane.server().admin.post(path, job).status == 201
    eventually(lambda: state_of(plane, name) == "Running", "the job to run")
    code, output = call(plane, "ps")
    assert re.search(rf"^{name} +{kind} +Running +2/2 ", output, re.MULTILINE), output
    eventually(lambda: call(plane, "logs", name)[1].count("begun with --lr 0.1") == 2, "the lines of both replicas")
    assert call(plane, "exec", name, "--rank", role, "--", "echo", "hello")[1].endswith("hello\n")
    events = json.loads(call(plane, "events", name, "-o", "json")[1])
    assert any(event["object"].startswith("job/") for event in events)

    assert call(plane, "stop", name)[0] == 0
    eventually(lambda: state_of(plane, name) == "Suspended", "the job to be suspended")
    assert "has not ended" in call(plane, "history", name)[1]
    code, output = call(plane, "rerun", name, "--name", again, "--set", "lr=0.2")
    assert code == 0, output
    code, output = call(plane, "compare", name, again)
    assert re.search(r"^--lr +0\.1 +0\.2$", output, re.MULTILINE), output

    assert call(plane, "delete", again)[0] == 0
    eventually(lambda: len(records(plane).get(again, {}).get("replicas", ())) == 2, "the record of both replicas")
    record = records(plane)[again]
    assert (record["kind"], record["exitCode"], record["replicaCount"]) == (kind, 0, 2)
    eventually(lambda: call(plane, "logs", again)[1].count("loss=0.2") == 2, "the kept logs of both replicas")
    code, output = call(plane, "logs", again, "--rank", "9")
    assert code == 1
    assert "has no log of rank 9" in output
    assert f"it was deleted: see `yard history {again}`" in call(plane, "events", again)[1]
    assert call(plane, "delete", name)[0] == 0


def test_a_job_of_the_same_name_as_a_jobset_has_to_be_named_with_its_kind(plane: Yard) -> None:
    api = plane.server().admin
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "both"},
        "spec": {"suspend": True, "template": jobset("x")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]},
    }
    suspended = jobset("both")
    suspended["spec"]["suspend"] = True
    assert api.post(BATCH, job).status == 201
    assert api.post("/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets", suspended).status == 201
    code, output = call(plane, "why", "both")
    assert code == 1
    assert "hint: name jobset.jobset.x-k8s.io/both or job.batch/both" in output
    for kind in ("jobset", "job.batch"):
        assert call(plane, "delete", f"{kind}/both")[0] == 0
