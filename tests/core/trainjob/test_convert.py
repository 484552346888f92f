"""PyTorchJobs become TrainJobs and come back."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchyard.api.errors import YardError
from torchyard.api.pytorchjob.validation import validate as validate_pytorchjob
from torchyard.api.trainjob.runtimes import runtimes
from torchyard.api.trainjob.validation import validate, validate_runtime
from torchyard.cli.convert import convert
from torchyard.core.trainjob.convert import to_pytorchjob, to_trainjob
from torchyard.core.trainjob.jobset import make_jobset

Object = dict[str, Any]
EXAMPLES = Path(__file__).parents[3] / "examples"
DOCUMENTS = [
    document
    for path in sorted(EXAMPLES.rglob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document and document.get("kind") == "PyTorchJob"
]


def pytorchjob(*, pod: Object | None = None, workers: int = 1, **spec: Any) -> Object:
    container = {"name": "pytorch", "image": "i", "command": ["torchrun", "t.py"]}
    template = {"spec": {"containers": [container], **(pod or {})}}
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": template}
    specs = {"Master": replica, "Worker": {**copy.deepcopy(replica), "replicas": workers}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "mnist", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"pytorchReplicaSpecs": specs, **spec},
    }


def there_and_back(job: Object) -> Object:
    (*own_runtimes, train_job) = to_trainjob(job).objects
    (back,) = to_pytorchjob(train_job, own_runtimes).objects
    return back


def normalized(value: Any) -> Any:
    """Without fields that are empty: `limits:` with nothing below it."""
    if isinstance(value, dict):
        inner = {key: normalized(item) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item not in (None, {}, [])}
    return [normalized(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("job", DOCUMENTS, ids=lambda job: job["metadata"]["name"])
def test_the_examples_come_back_with_the_masters_template(job: Object) -> None:
    back = there_and_back(job)
    assert validate_pytorchjob(back) == []
    expected = copy.deepcopy(job)
    replicas = expected["spec"]["pytorchReplicaSpecs"]
    if "Worker" in replicas:
        replicas["Worker"]["template"] = replicas["Master"]["template"]
    assert normalized(back) == normalized(expected)


@pytest.mark.parametrize("job", DOCUMENTS, ids=lambda job: job["metadata"]["name"])
def test_the_train_jobs_of_the_examples_are_valid(job: Object) -> None:
    (*own_runtimes, train_job) = to_trainjob(job).objects
    runtime = own_runtimes[0] if own_runtimes else runtimes()[0]
    assert [*validate_runtime(runtime), *validate(train_job, runtime)] == []
    train_job["metadata"]["namespace"] = "default"
    assert make_jobset(train_job, runtime)["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == sum(
        each.get("replicas", 1) for each in job["spec"]["pytorchReplicaSpecs"].values()
    )


def test_what_a_patch_can_say_needs_no_runtime() -> None:
    pod = {"nodeSelector": {"a": "b"}, "volumes": [{"name": "v", "emptyDir": {}}], "serviceAccountName": "s"}
    conversion = to_trainjob(pytorchjob(pod=pod))
    (train_job,) = conversion.objects
    assert train_job["spec"]["runtimeRef"] == {"name": "torch-distributed"}
    assert conversion.notes == []
    assert there_and_back(pytorchjob(pod=pod)) == pytorchjob(pod=pod)


def test_policies_of_the_run_come_back() -> None:
    policy: Object = {"suspend": True, "activeDeadlineSeconds": 9, "ttlSecondsAfterFinished": 60, "backoffLimit": 3}
    policy["managedBy"] = "kueue.x-k8s.io/multikueue"
    job = pytorchjob(workers=3, runPolicy=policy, nprocPerNode="2")
    assert there_and_back(job) == job


def test_what_has_no_counterpart_is_noted() -> None:
    policy = {"cleanPodPolicy": "All", "schedulingPolicy": {"minAvailable": 2}}
    job = pytorchjob(runPolicy=policy, nprocPerNode="gpu", elasticPolicy={"maxReplicas": 4, "rdzvBackend": "etcd"})
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["hostNetwork"] = True
    job["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = "ExitCode"
    notes = "\n".join(to_trainjob(job).notes)
    for words in ("hostNetwork", "nprocPerNode", "cleanPodPolicy", "schedulingPolicy", "rdzvBackend", "ExitCode"):
        assert words in notes


def test_a_program_without_torchrun_is_noted() -> None:
    job = pytorchjob()
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["command"] = ["python", "t.py"]
    assert "torchrun" in to_trainjob(job).notes[0]


def test_a_runtime_that_is_not_in_the_file_is_asked_for() -> None:
    job = {"metadata": {"name": "a"}, "spec": {"runtimeRef": {"name": "mine"}}}
    conversion = to_pytorchjob(job, [])
    assert conversion.objects == []
    assert conversion.notes == ["ClusterTrainingRuntime mine is not in the file; add it"]


def test_a_job_of_the_elastic_runtime_keeps_its_limits() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 4, "rdzvBackend": "torchyard"}
    conversion = to_trainjob(pytorchjob(elasticPolicy=policy))
    train_job = conversion.objects[-1]
    expected = {"torchyard.dev/elastic": "1:4", "torchyard.dev/rdzv-backend": "torchyard"}
    assert train_job["metadata"]["annotations"] == expected
    (back,) = to_pytorchjob(train_job, conversion.objects[:-1]).objects
    assert back["spec"]["elasticPolicy"] == policy
    assert "backoffLimit" not in back["spec"].get("runPolicy", {})
    assert "annotations" not in back["metadata"]


def test_the_maximum_of_an_elastic_job_is_its_number_of_nodes() -> None:
    conversion = to_trainjob(pytorchjob(elasticPolicy={"minReplicas": 1, "maxReplicas": 4}))
    (train_job,) = conversion.objects
    assert train_job["metadata"]["annotations"] == {"torchyard.dev/elastic": "1:2"}
    assert validate(train_job, runtimes()[0]) == []
    assert "maxReplicas 4" in conversion.notes[0]
    (back,) = to_pytorchjob(train_job, []).objects
    assert back["spec"]["elasticPolicy"] == {"minReplicas": 1, "maxReplicas": 2}


def changed(job: Object, **spec: Any) -> Object:
    return {**job, "spec": {**job["spec"], **spec}}


def train_job(**spec: Any) -> Object:
    return {"metadata": {"name": "a"}, "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec}}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (changed(pytorchjob(), nprocPerNode=2), "spec.nprocPerNode must be of type string"),
        (changed(pytorchjob(), pytorchReplicaSpecs={}), "must have a Master or a Worker"),
        ({**pytorchjob(), "spec": None}, "spec"),
        ({**pytorchjob(), "metadata": {}}, "metadata.name"),
        ({**pytorchjob(), "metadata": {"generateName": 5}}, "metadata.generateName must be of type string"),
        (changed(pytorchjob(), pytorchReplicaSpecs={"Master": "x"}), "Master must be of type object"),
    ],
)
def test_a_pytorchjob_that_is_not_valid_is_refused(job: Object, words: str) -> None:
    with pytest.raises(YardError) as raised:
        to_trainjob(job)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"metadata": {"name": "a"}, "spec": {}}, "spec.runtimeRef is required"),
        ({**train_job(), "metadata": {"name": "a", "annotations": "x"}}, "metadata.annotations must be of type object"),
        (
            train_job(
                runtimePatches=[
                    {
                        "manager": "example.com/me",
                        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "x"}]}}},
                    }
                ]
            ),
            "must not have replicated job that doesn't exist",
        ),
        ({"metadata": None, "spec": {"runtimeRef": {"name": "torch-distributed"}}}, "metadata.name is required"),
        (
            {**train_job(), "metadata": {"name": "1job"}},
            'the resulting PyTorchJob 1job is not valid: metadata.name: Invalid value: "1job"',
        ),
    ],
)
def test_a_train_job_that_is_not_valid_is_refused(job: Object, words: str) -> None:
    with pytest.raises(YardError) as raised:
        to_pytorchjob(job, [])
    assert words in str(raised.value)


def test_a_pytorchjob_whose_trainjob_would_be_refused_is_refused() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 2**40}
    job = pytorchjob(workers=2**40, elasticPolicy=policy)
    del job["spec"]["pytorchReplicaSpecs"]["Master"]
    with pytest.raises(YardError, match="the resulting TrainJob mnist is not valid"):
        to_trainjob(job)


@pytest.mark.parametrize("metadata", [None, "x", {}, {"name": None}])
def test_a_runtime_without_a_name_is_not_the_job_s(metadata: Any) -> None:
    runtime = {"kind": "ClusterTrainingRuntime", "metadata": metadata, "spec": {}}
    job = train_job()
    job["spec"]["runtimeRef"] = {"name": "mine"}
    assert to_pytorchjob(job, [runtime]).notes == ["ClusterTrainingRuntime mine is not in the file; add it"]


def test_a_generated_name_stays_and_names_the_runtime() -> None:
    job = pytorchjob(runPolicy={"backoffLimit": 1})
    job["metadata"] = {"generateName": "mnist-"}
    runtime, train_job = to_trainjob(job).objects
    assert runtime["metadata"]["name"] == train_job["spec"]["runtimeRef"]["name"] == "mnist"
    assert train_job["metadata"] == {"generateName": "mnist-"}
    (back,) = to_pytorchjob(train_job, [runtime]).objects
    assert back["metadata"] == {"generateName": "mnist-"}


def test_what_would_be_lost_or_refused_later_is_noted() -> None:
    job = pytorchjob()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "PET_NNODES", "value": "9"}, {"name": "A", "value": "b"}]
    conversion = to_trainjob(job)
    notes = "\n".join(conversion.notes)
    assert "the Worker's is Never" in notes
    assert "env PET_NNODES" in notes
    assert conversion.objects[0]["spec"]["trainer"]["env"] == [{"name": "A", "value": "b"}]
    late = train_job()
    late["metadata"]["annotations"] = {"torchyard.dev/ttl-seconds-after-finished": "1h"}
    with pytest.raises(YardError, match='Invalid value: "1h": must be a number of seconds'):
        to_pytorchjob(late, [])


def test_an_object_that_cannot_be_converted_makes_the_command_fail(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    missing = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **train_job()}
    path.write_text(yaml.safe_dump(changed(missing, runtimeRef={"name": "mine"})))
    with pytest.raises(YardError, match="ClusterTrainingRuntime mine is not in the file"):
        convert(str(path))
