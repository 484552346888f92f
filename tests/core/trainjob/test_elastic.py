"""The annotation of elastic jobs: its maximum is the number of pods, and only torchrun is elastic."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from torchyard.api.trainjob.runtimes import runtimes
from torchyard.api.trainjob.validation import validate, validate_runtime
from torchyard.core.trainjob.jobset import make_jobset

Object = dict[str, Any]
PLAIN, ELASTIC = runtimes()


def job(nodes: int | None, elastic: str | None = None) -> Object:
    metadata: Object = {"name": "job", "namespace": "ns", "uid": "u"}
    if elastic is not None:
        metadata["annotations"] = {"torchyard.dev/elastic": elastic}
    trainer = {} if nodes is None else {"numNodes": nodes}
    return {"metadata": metadata, "spec": {"runtimeRef": {"name": "r"}, "trainer": trainer}}


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
        (job(17), ELASTIC, "spec.trainer.numNodes: Invalid value: 17: must be between 1 and 16"),
        (job(4, "1:4"), with_policy(PLAIN, jax={}), "only torchrun is elastic"),
        (job(4, "1:4"), with_policy(PLAIN, numNodes=4), "only torchrun is elastic"),
    ],
)
def test_a_range_that_cannot_be_kept_is_refused(train_job: Object, runtime: Object, words: str) -> None:
    assert words in "; ".join(str(err) for err in validate(train_job, runtime))


def test_a_runtime_with_a_range_that_cannot_be_kept_is_refused() -> None:
    assert "only torchrun is elastic" in str(validate_runtime(with_policy(ELASTIC, jax={}))[0])
    bad = copy.deepcopy(ELASTIC)
    bad["metadata"]["annotations"] = {"torchyard.dev/elastic": "3:1"}
    assert 'must be "MIN:MAX"' in str(validate_runtime(bad)[0])
