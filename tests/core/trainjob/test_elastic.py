"""The annotations of elastic jobs: torchrun's maximum is the number of pods; jobs of our runtime can be resized."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from torchyard.api.trainjob.runtimes import runtimes
from torchyard.api.trainjob.validation import validate, validate_runtime
from torchyard.core.trainjob.elastic import resize, wanted_nodes
from torchyard.core.trainjob.jobset import make_jobset

Object = dict[str, Any]
PLAIN, ELASTIC = runtimes()


def job(nodes: int | None, elastic: str | None = None, **annotations: str) -> Object:
    """The keywords are our other annotations, with `_` for `-`."""
    metadata: Object = {"name": "job", "namespace": "ns", "uid": "0123456789"}
    written = {"torchyard.dev/" + name.replace("_", "-"): value for name, value in annotations.items()}
    if elastic is not None:
        written["torchyard.dev/elastic"] = elastic
    if written:
        metadata["annotations"] = written
    trainer = {} if nodes is None else {"numNodes": nodes}
    return {"metadata": metadata, "spec": {"runtimeRef": {"name": "r"}, "trainer": trainer}}


def queued(train_job: Object) -> Object:
    train_job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    return train_job


def with_policy(runtime: Object, **policy: Any) -> Object:
    changed = copy.deepcopy(runtime)
    changed["spec"]["mlPolicy"] = policy
    return changed


def nnodes(train_job: Object, runtime: Object) -> tuple[int, str]:
    """The number of pods, and PET_NNODES."""
    spec = make_jobset(train_job, runtime)["spec"]["replicatedJobs"][0]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in spec["template"]["spec"]["containers"][0]["env"]}
    return spec["parallelism"], env["PET_NNODES"]


@pytest.mark.parametrize(
    ("train_job", "runtime", "expected"),
    [
        (job(4, "1:4"), PLAIN, (4, "1:4")),
        (job(4, "4:4"), PLAIN, (4, "4:4")),
        (job(3), ELASTIC, (3, "1:3")),
        (job(None), ELASTIC, (1, "1:1")),
        (job(4, "2:4"), ELASTIC, (4, "2:4")),
        (job(3), PLAIN, (3, "3")),
        (job(None, "2:3"), with_policy(PLAIN, numNodes=3, torch={}), (3, "2:3")),
        (job(2, "1:4"), ELASTIC, (2, "1:2")),
        (job(2, "1:4", rdzv_backend="torchyard"), PLAIN, (2, "1:2")),
        (job(2, num_nodes="5"), ELASTIC, (2, "1:2")),
    ],
)
def test_torchrun_waits_for_no_more_nodes_than_there_are_pods(
    train_job: Object, runtime: Object, expected: tuple[int, str]
) -> None:
    assert [*validate_runtime(runtime), *validate(train_job, runtime)] == []
    assert nnodes(train_job, runtime) == expected


@pytest.mark.parametrize(
    ("train_job", "runtime", "words"),
    [
        (job(2, "1:4"), PLAIN, "the maximum must be the number of nodes, which is 2: set spec.trainer.numNodes to 4"),
        (job(8, "1:4"), PLAIN, "the maximum must be the number of nodes, which is 8"),
        (job(None, "1:4"), PLAIN, 'or the annotation to "1:1"'),
        (job(4, "4"), PLAIN, 'must be "MIN:MAX"'),
        (job(5, "1:4"), ELASTIC, "must be between 1 and 4, as the annotation torchyard.dev/elastic of the job says"),
        (job(4, "1:4", rdzv_backend="etcd"), PLAIN, 'Unsupported value: "etcd": supported values: "c10d", "torchyard"'),
        (job(4, rdzv_backend="torchyard"), PLAIN, "metadata.annotations[torchyard.dev/elastic]: Required value"),
        (job(4, "1:4", num_nodes="2"), PLAIN, "only jobs of the elastic runtime can be resized"),
        (job(4, num_nodes="17"), ELASTIC, "must be a number from 1 to 16"),
        (job(4, num_nodes="two"), ELASTIC, "must be a number from 1 to 16"),
        (job(4, num_nodes="0"), ELASTIC, "must be a number from 1 to 16"),
        (queued(job(4, num_nodes="5")), ELASTIC, "from 1 to 4: the job's quota is that of numNodes"),
        (job(17), ELASTIC, "spec.trainer.numNodes: Invalid value: 17: must be between 1 and 16"),
        (job(4, "1:4"), with_policy(PLAIN, jax={}), "only torchrun and torchyard.elastic are elastic"),
        (job(4, "1:4"), with_policy(PLAIN, numNodes=4), "only torchrun and torchyard.elastic are elastic"),
    ],
)
def test_a_range_that_cannot_be_kept_is_refused(train_job: Object, runtime: Object, words: str) -> None:
    assert words in "; ".join(str(err) for err in validate(train_job, runtime))


def test_a_runtime_with_a_range_that_cannot_be_kept_is_refused() -> None:
    assert "only torchrun and torchyard.elastic are elastic" in str(validate_runtime(with_policy(ELASTIC, jax={}))[0])
    bad = copy.deepcopy(ELASTIC)
    bad["metadata"]["annotations"] = {"torchyard.dev/elastic": "3:1"}
    assert 'must be "MIN:MAX"' in str(validate_runtime(bad)[0])


def test_workers_of_the_elastic_runtime_find_the_coordinator_of_the_first_node() -> None:
    jobset = make_jobset(job(2, "1:4"), ELASTIC)
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in spec["template"]["spec"]["containers"][0]["env"]}
    assert env["TORCHYARD_ELASTIC_COORDINATOR"] == "job-node-0-0.job:29501"
    assert (env["TORCHYARD_ELASTIC_SERVE"], env["TORCHYARD_ELASTIC_WORLD"]) == ("29501", "1:2:4")
    assert env["TORCHYARD_ELASTIC_WORKER"] == "job-node-0-$(TORCHYARD_ELASTIC_INDEX)"
    order = list(env)
    assert order.index("TORCHYARD_ELASTIC_INDEX") < order.index("TORCHYARD_ELASTIC_WORKER"), (
        "it refers to the other one"
    )
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert spec["backoffLimit"] == 100


def test_the_job_of_an_elastic_runtime_may_say_otherwise() -> None:
    runtime = copy.deepcopy(ELASTIC)
    runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 3
    spec = make_jobset(job(2), runtime)["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert spec["backoffLimit"] == 3


@pytest.mark.parametrize(("asked", "count"), [(None, 2), ("1", 1), ("4", 4), ("9", 4)])
def test_a_job_has_the_nodes_that_its_annotation_asks_for(asked: str | None, count: int) -> None:
    annotations = {} if asked is None else {"num_nodes": asked}
    train_job = job(2, "1:4", **annotations)
    assert wanted_nodes(train_job, make_jobset(job(2, "1:4"), ELASTIC)) == ("job-node-0", count)
    assert wanted_nodes(train_job, make_jobset(job(2, "1:2"), PLAIN)) is None


@pytest.mark.parametrize(
    ("spec", "conditions", "is_resized"),
    [
        ({"parallelism": 2, "completions": 2}, [], True),
        ({"parallelism": 3, "completions": 3}, [], False),
        ({"parallelism": 2, "completions": 2, "suspend": True}, [], False),
        ({"parallelism": 2, "completions": 2}, [{"type": "SuccessCriteriaMet", "status": "True"}], False),
    ],
)
def test_a_job_that_runs_is_resized(spec: Object, conditions: list[Object], *, is_resized: bool) -> None:
    patch = resize({"spec": spec, "status": {"conditions": conditions}}, 3)
    assert patch == ({"spec": {"parallelism": 3, "completions": 3}} if is_resized else None)
