"""What is refused or warned of beyond the recorded cases: fields that would have no effect."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.trainjob.validation import validate, warnings

Object = dict[str, Any]
TTL = "torchyard.dev/ttl-seconds-after-finished"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def runtime(*steps: str, policy: Object | None = None) -> Object:
    jobs = []
    for step in steps:
        containers = [{"name": {"trainer": "node"}.get(step, step), "volumeMounts": [{"name": "initializer"}]}]
        template: Object = {"spec": {"template": {"spec": {"containers": containers}}}}
        jobs.append({"name": step, "template": {**template, "metadata": {"labels": {STEP: step}}}})
    spec = {"mlPolicy": policy or {"torch": {}}, "template": {"spec": {"replicatedJobs": jobs}}}
    return {"metadata": {"name": "custom"}, "spec": spec}


def job(annotations: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "a", "annotations": annotations or {}},
        "spec": {"runtimeRef": {"name": "custom"}, **spec},
    }


def problems(job: Object, old: Object | None = None) -> list[str]:
    return [str(err) for err in validate(job, runtime("trainer"), old=old)]


@pytest.mark.parametrize("written", ["1h", "-1", "", "1.5", "9999999999"])
def test_a_time_to_live_that_is_no_number_of_seconds_is_refused(written: str) -> None:
    (problem,) = problems(job({TTL: written}))
    assert problem.startswith(f'metadata.annotations[{TTL}]: Invalid value: "{written}": must be a number of seconds')
    assert problems(job({TTL: written}), old=job({TTL: written})) == []  # stored before it was checked
    assert len(problems(job({TTL: written}), old=job({TTL: "5"}))) == 1
    assert problems(job({TTL: "3600"})) == []


@pytest.mark.parametrize(
    ("trainer", "is_refused"),
    [
        ({"command": ["tune", "run"]}, True),
        ({"command": ["tune", "run"], "args": ["dtype=bf16"]}, True),
        ({"command": ["tune", "run"], "args": ["full_finetune_single_device", "--config", "c"]}, False),
        ({"command": ["tune", "run", "full_finetune_single_device"]}, False),
        ({"args": ["dtype=bf16"]}, False),
    ],
)
def test_the_command_of_torchtune_needs_a_recipe(trainer: Object, is_refused: bool) -> None:
    found = problems(job(trainer=trainer))
    assert [problem.split(":")[0] for problem in found] == ["spec.trainer.command"] * is_refused


def test_fields_for_which_the_runtime_has_no_job_are_warned_of() -> None:
    with_fields = job(trainer={"image": "x", "numNodes": 2, "env": []}, initializer={"dataset": {}})
    text = (
        "{} no effect: no replicated job of ClusterTrainingRuntime 'custom' has the label "
        + STEP
        + ": {} on its Job template"
    )
    assert warnings(with_fields, runtime("worker")) == [
        text.format("spec.trainer.image, spec.trainer.numNodes have", "trainer"),
        text.format("spec.initializer.dataset has", "dataset-initializer"),
    ]
    assert warnings(with_fields, runtime("trainer", "dataset-initializer")) == []
    assert warnings(job(trainer={"numNodes": 2}), runtime("launcher", policy={"mpi": {}})) == []
    assert warnings(job(), runtime("worker")) == []
