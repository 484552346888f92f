"""Labels and annotations of queued jobs and pods that Kueue's webhooks refuse are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.queue import names
from torchyard.api.queue.job_validation import validate_job

QUEUED = {names.QUEUE_NAME: "q"}
GROUP = {**QUEUED, names.POD_GROUP: "pair"}


def _job(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"labels": QUEUED if labels is None else labels, "annotations": annotations or {}},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("kind", "job", "field", "message"),
    [
        ("Job", _job({names.QUEUE_NAME: ""}), f"metadata.labels[{names.QUEUE_NAME}]", "the name of a LocalQueue"),
        ("Job", _job({**QUEUED, names.MAX_SECONDS: "x"}), f"metadata.labels[{names.MAX_SECONDS}]", "number of seconds"),
        ("Job", _job({**QUEUED, names.MAX_SECONDS: "0"}), f"metadata.labels[{names.MAX_SECONDS}]", "1 or more"),
        (
            "Job",
            _job({**QUEUED, names.PREBUILT_WORKLOAD: "w"}),
            f"metadata.labels[{names.PREBUILT_WORKLOAD}]",
            "prebuilt workloads are not supported",
        ),
        (
            "Job",
            _job(annotations={names.MIN_PARALLELISM: "3"}, parallelism=3),
            f"metadata.annotations[{names.MIN_PARALLELISM}]",
            "a number from 1 to 2",
        ),
        (
            "Job",
            _job(annotations={names.SYNC_COMPLETIONS: "maybe"}),
            f"metadata.annotations[{names.SYNC_COMPLETIONS}]",
            "true or false",
        ),
        (
            "Job",
            _job(annotations={names.SYNC_COMPLETIONS: "true"}, parallelism=2, completions=2),
            f"metadata.annotations[{names.SYNC_COMPLETIONS}]",
            "NonIndexed",
        ),
        (
            "Job",
            _job(annotations={names.SYNC_COMPLETIONS: "1"}, parallelism=2, completions=3, completionMode="Indexed"),
            "spec.completions",
            "equal to parallelism",
        ),
        ("Pod", _job(GROUP), f"metadata.annotations[{names.POD_GROUP_SIZE}]", "should be set"),
        (
            "Pod",
            _job(annotations={names.POD_GROUP_SIZE: "2"}),
            f"metadata.labels[{names.POD_GROUP}]",
            "should be set",
        ),
        (
            "Pod",
            _job(GROUP, {names.POD_GROUP_SIZE: "0"}),
            f"metadata.annotations[{names.POD_GROUP_SIZE}]",
            "1 or more",
        ),
        (
            "Pod",
            _job({**QUEUED, names.POD_GROUP: "A_b"}, {names.POD_GROUP_SIZE: "1"}),
            f"metadata.labels[{names.POD_GROUP}]",
            "RFC 1123",
        ),
        (
            "Pod",
            _job(annotations={"kueue.x-k8s.io/podset-preferred-topology": "rack"}),
            "metadata.annotations[kueue.x-k8s.io/podset-preferred-topology]",
            "topologies are not supported",
        ),
        ("Pod", _job(annotations={names.ELASTIC: "true"}), f"metadata.annotations[{names.ELASTIC}]", "batch Jobs only"),
    ],
)
def test_new_job_is_refused_by_field(kind: str, job: dict[str, Any], field: str, message: str) -> None:
    (err,) = validate_job(kind, job, None, is_running=False)
    assert err.field == field
    assert message in err.message


@pytest.mark.parametrize(
    "job",
    [
        _job({}, {names.MIN_PARALLELISM: "x", names.SYNC_COMPLETIONS: "x"}),
        _job(annotations={names.MIN_PARALLELISM: "2", names.SYNC_COMPLETIONS: "f"}, parallelism=3),
        _job(annotations={names.SYNC_COMPLETIONS: "T"}, parallelism=2, completions=2, completionMode="Indexed"),
        _job({**QUEUED, names.MAX_SECONDS: "60", names.PRIORITY: "high"}),
    ],
    ids=["not queued", "partial admission", "synchronized completions", "labels"],
)
def test_valid_job_is_accepted(job: dict[str, Any]) -> None:
    assert not list(validate_job("Job", job, None, is_running=False))


@pytest.mark.parametrize(
    ("before", "after", "refused_suspended", "refused_running"),
    [
        (QUEUED, {names.QUEUE_NAME: "other"}, [], [names.QUEUE_NAME]),
        (QUEUED, {}, [], [names.QUEUE_NAME]),
        (QUEUED, {**QUEUED, names.MAX_SECONDS: "60"}, [], [names.MAX_SECONDS]),
        (QUEUED, {**QUEUED, names.PRIORITY: "high"}, [], [names.PRIORITY]),
        ({**QUEUED, names.PRIORITY: "low"}, {**QUEUED, names.PRIORITY: "high"}, [], []),
        ({**QUEUED, names.PRIORITY: "low"}, QUEUED, [names.PRIORITY], [names.PRIORITY]),
    ],
)
def test_labels_of_a_running_job_are_fixed_but_its_class_may_change(
    before: dict[str, str], after: dict[str, str], refused_suspended: list[str], refused_running: list[str]
) -> None:
    for is_running, names_refused in ((False, refused_suspended), (True, refused_running)):
        errs = list(validate_job("Job", _job(after), _job(before), is_running=is_running))
        assert [err.field for err in errs] == [f"metadata.labels[{name}]" for name in names_refused]


def test_deployment_stays_queued_but_may_change_its_queue() -> None:
    (err,) = validate_job("Deployment", _job({}), _job(), is_running=False)
    assert err.field == f"metadata.labels[{names.QUEUE_NAME}]"
    assert not list(validate_job("Deployment", _job({names.QUEUE_NAME: "other"}), _job(), is_running=False))


def test_pod_stays_in_its_group() -> None:
    old = _job(GROUP, {names.POD_GROUP_SIZE: "2"})
    (err,) = validate_job("Pod", _job({**GROUP, names.POD_GROUP: "other"}), old, is_running=False)
    assert err.field == f"metadata.labels[{names.POD_GROUP}]"


def test_stored_job_with_a_value_that_is_refused_now_can_be_changed() -> None:
    stored = _job({names.QUEUE_NAME: "q", names.MAX_SECONDS: "x"}, {names.MIN_PARALLELISM: "9"}, parallelism=3)
    changed = _job({**stored["metadata"]["labels"], "team": "a"}, stored["metadata"]["annotations"], parallelism=3)
    assert not list(validate_job("Job", changed, stored, is_running=False))
