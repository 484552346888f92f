"""Validation of PyTorchJobs: upstream's rules with their fields and messages, and inputs on which upstream fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.pytorchjobs import job, replica

from torchyard.api.objects import Object
from torchyard.api.pytorchjob.validation import DEPRECATED_PROCESSES, validate, validate_update, warnings

R = "spec.pytorchReplicaSpecs"


def errs(obj: Object) -> list[tuple[str, str]]:
    return [(err.field, err.message) for err in validate(obj)]


def bare(containers: list[Object]) -> Object:
    return {"replicas": 1, "template": {"spec": {"containers": containers}}}


CASES: dict[str, tuple[Object, list[tuple[str, str]]]] = {
    "valid": (job(), []),
    "no containers": (
        job(master=bare([])),
        [
            (f"{R}[Master].template.spec.containers", "Required value: must be specified"),
            (
                f"{R}[Master].template.spec.containers",
                "Required value: must have at least one container with name pytorch",
            ),
        ],
    ),
    "empty image": (
        job(master=bare([{"name": "pytorch", "image": ""}])),
        [(f"{R}[Master].template.spec.containers[0].image", "Required value: must be required")],
    ),
    "no container called pytorch": (
        job(worker=bare([{"name": "main", "image": "i"}])),
        [
            (
                f"{R}[Worker].template.spec.containers",
                "Required value: must have at least one container with name pytorch",
            )
        ],
    ),
    "two masters": (job(master=2), [(f"{R}[Master].replicas", "Forbidden: must be 1")]),
    "masters left open": (job(master=replica(None)), [(f"{R}[Master].replicas", "Forbidden: must be 1")]),
    "no workers": (job(worker=replica(0)), [(f"{R}[Worker].replicas", "Forbidden: must be at least 1")]),
    "both process counts": (
        job(nprocPerNode="2", elasticPolicy={"nProcPerNode": 2}),
        [("spec.elasticPolicy.nProcPerNode", "Forbidden: must not be used with spec.nprocPerNode")],
    ),
    "another manager": (
        job(run={"managedBy": "other"}),
        [
            (
                "spec.runPolicy.managedBy",
                'Unsupported value: "other": supported values: "kubeflow.org/training-operator", '
                '"kueue.x-k8s.io/multikueue"',
            )
        ],
    ),
    "an empty manager": (
        job(run={"managedBy": ""}),
        [
            (
                "spec.runPolicy.managedBy",
                'Unsupported value: "": supported values: "kubeflow.org/training-operator", '
                '"kueue.x-k8s.io/multikueue"',
            )
        ],
    ),
    "elastic without workers": (
        job(worker=None, elasticPolicy={}),
        [(f"{R}[Worker]", "Required value: must be configured if elastic policy is used")],
    ),
    "an unknown replica type": (
        {**job(), "spec": {"pytorchReplicaSpecs": {"worker": replica(1)}}},
        [(f"{R}[worker]", 'Unsupported value: "worker": supported values: "Master", "Worker"')],
    ),
    "no replicas at all": (
        {**job(), "spec": {"pytorchReplicaSpecs": {}}},
        [(R, "Required value: must have a Master or a Worker: a job without replicas never starts")],
    ),
    "null replicas": ({**job(), "spec": {"pytorchReplicaSpecs": None}}, [(R, "Required value: must be required")]),
    "a null replica": (
        {**job(), "spec": {"pytorchReplicaSpecs": {"Worker": None}}},
        [
            (
                f"{R}[Worker]",
                "Required value: must have a template; omit the entry if there are no such replicas",
            )
        ],
    ),
    "an empty rendezvous configuration": (
        job(elasticPolicy={"rdzvConf": []}),
        [("spec.elasticPolicy.rdzvConf", "Required value: must have an entry, or be omitted")],
    ),
    "elastic limits crossed": (
        job(elasticPolicy={"minReplicas": 3, "maxReplicas": 2}),
        [("spec.elasticPolicy.minReplicas", "Invalid value: 3: must not be more than maxReplicas, which is 2")],
    ),
    "a process count of words": (
        job(nprocPerNode="many"),
        [
            (
                "spec.nprocPerNode",
                'Invalid value: "many": must be "auto", "cpu", "gpu", "xpu" or a number of processes such as "2"',
            )
        ],
    ),
    "an unknown restart policy": (
        job(policy="Sometimes"),
        [
            (
                f"{R}[{kind}].restartPolicy",
                'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never", "ExitCode"',
            )
            for kind in ("Master", "Worker")
        ],
    ),
    "an unknown clean-up": (
        job(run={"cleanPodPolicy": ""}),
        [("spec.runPolicy.cleanPodPolicy", 'Unsupported value: "": supported values: "None", "Running", "All"')],
    ),
    "negative numbers": (
        job(run={"backoffLimit": -1, "ttlSecondsAfterFinished": -1, "activeDeadlineSeconds": -1}),
        [
            (f"spec.runPolicy.{name}", "Invalid value: -1: must be greater than or equal to 0")
            for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
        ],
    ),
    "a name too long for its replicas": (
        job("a" * 55, worker=11),
        [
            (
                "metadata.name",
                f'Invalid value: "{"a" * 55}": the replica name {"a" * 55}-worker-10 would have more than 63 '
                "characters; shorten the job name by 2",
            )
        ],
    ),
}


@pytest.mark.row("U5")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_invalid_jobs_have_these_errors(case: str) -> None:
    invalid_job, expected = CASES[case]
    assert errs(invalid_job) == expected


@pytest.mark.row("U5")
def test_a_job_name_must_be_valid_for_a_service() -> None:
    ((field, message),) = errs(job("0-test"))
    assert field == "metadata.name"
    assert message.startswith('Invalid value: "0-test": should match: a DNS-1035 label must consist of')


@pytest.mark.row("U5")
@pytest.mark.parametrize(
    ("old", "new"),
    [("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"), (None, "kueue.x-k8s.io/multikueue")],
)
def test_managed_by_is_immutable(old: str | None, new: str) -> None:
    before = job(run={"managedBy": old} if old else {})
    ((field, message),) = [(err.field, err.message) for err in validate_update(job(run={"managedBy": new}), before)]
    assert (field, message) == ("spec.runPolicy.managedBy", f'Invalid value: "{new}": field is immutable')


@pytest.mark.row("U5")
@pytest.mark.parametrize(
    ("obj", "expected"), [(job(elasticPolicy={"nProcPerNode": 2}), [DEPRECATED_PROCESSES]), (job(), [])]
)
def test_the_deprecated_process_count_causes_a_warning(obj: Object, expected: list[str]) -> None:
    assert warnings(obj) == expected


@pytest.mark.parametrize("longest", [job, lambda name: job(name, worker=None)])
def test_the_longest_valid_names_are_accepted(longest: Callable[[str], Object]) -> None:
    assert errs(longest("a" * 54)) == []
