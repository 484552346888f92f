"""Pod groups: which of their pods get a place in the workload, and when a group ends."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.errors import YardError
from torchyard.api.queue import names
from torchyard.core.queue import pod_groups

Object = dict[str, Any]


def _pod(
    name: str,
    *,
    cpu: str = "1",
    gated: bool = True,
    phase: str = "Pending",
    size: str = "2",
    annotations: Object | None = None,
    **metadata: Any,
) -> Object:
    labels = {names.QUEUE_NAME: "q", names.POD_GROUP: "pair"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec: Object = {"containers": [container]}
    if gated:
        spec["schedulingGates"] = [{"name": names.ADMISSION_GATE}]
    else:
        labels[names.POD_SET] = pod_groups.role_of({"spec": spec})
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z",
            "labels": labels,
            "annotations": {names.POD_GROUP_SIZE: size, **(annotations or {})},
            **metadata,
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def _workload(*pods: Object, size: int = 2) -> Object:
    pod_sets = pod_groups.pod_sets(list(pods), size)
    assert pod_sets is not None
    return {"metadata": {"ownerReferences": []}, "spec": {"podSets": pod_sets}}


def _places(workload: Object, *pods: Object) -> tuple[list[str], list[str]]:
    gated = pod_groups.gated_pods(list(pods), workload)
    startable, excess = ([pod["metadata"]["name"] for pod in part] for part in gated)
    return startable, excess


def test_workload_counts_the_first_pods_of_the_group_by_their_requests() -> None:
    pods = [_pod("c3"), _pod("a1"), _pod("b2", cpu="2")]
    pod_sets = pod_groups.pod_sets(pods, 2)
    assert pod_sets is not None
    assert [pod_set["count"] for pod_set in pod_sets] == [1, 1]
    assert {pod_set["name"] for pod_set in pod_sets} == {pod_groups.role_of(pod) for pod in pods}


def test_incomplete_group_has_no_workload_unless_it_is_admitted_with_its_first_pod() -> None:
    assert pod_groups.pod_sets([_pod("a1"), _pod("b2", phase="Failed")], 2) is None
    fast = _pod("a1", annotations={names.FAST_ADMISSION: "true"})
    pod_sets = pod_groups.pod_sets([fast], 3)
    assert pod_sets is not None
    assert [pod_set["count"] for pod_set in pod_sets] == [3]


def test_pods_beyond_the_size_or_with_other_requests_are_excess() -> None:
    first, second = _pod("a1"), _pod("b2")
    workload = _workload(first, second)
    assert _places(workload, first, second, _pod("c3"), _pod("d4", cpu="2")) == (["a1", "b2"], ["c3", "d4"])


def test_replacement_of_a_failed_pod_is_started() -> None:
    running, failed = _pod("a1", gated=False), _pod("b2", gated=False, phase="Failed")
    workload = _workload(_pod("a1"), _pod("b2"))
    assert pod_groups.needs_replacement([running, failed], 2)
    assert _places(workload, running, failed, _pod("c3")) == (["c3"], [])
    assert not pod_groups.needs_replacement([running, failed, _pod("c3")], 2)


def test_replacement_waits_for_the_place_of_a_pod_that_is_being_deleted() -> None:
    workload = _workload(_pod("a1"), _pod("b2"))
    running = _pod("a1", gated=False)
    ending = _pod("b2", gated=False, phase="Running", deletionTimestamp="2026-01-01T00:00:00Z")
    assert _places(workload, running, ending, _pod("c3")) == ([], [])
    assert _places(workload, running, _pod("c3")) == (["c3"], [])


def test_succeeded_pods_keep_their_place_and_give_back_their_quota() -> None:
    workload = _workload(_pod("a1"), _pod("b2"))
    succeeded, running = _pod("a1", gated=False, phase="Succeeded"), _pod("b2", gated=False)
    assert _places(workload, succeeded, running, _pod("c3")) == ([], ["c3"])
    assert pod_groups.reclaimable_pods([succeeded, running]) == {pod_groups.role_of(running): 1}


@pytest.mark.parametrize(
    ("phases", "annotations", "is_finished"),
    [
        (("Succeeded", "Succeeded"), {}, True),
        (("Succeeded", "Running"), {}, False),
        (("Failed", "Failed"), {}, False),
        (("Failed", "Succeeded", "Succeeded"), {}, True),
        (("Failed", "Failed"), {names.RETRIABLE_IN_GROUP: "false"}, True),
        (("Failed", "Running"), {names.RETRIABLE_IN_GROUP: "false"}, False),
    ],
)
def test_group_ends_when_no_pod_runs_or_will_be_replaced(
    phases: tuple[str, ...], annotations: Object, is_finished: bool
) -> None:
    pods = [
        _pod(f"p{number}", gated=False, phase=phase, annotations=annotations) for number, phase in enumerate(phases)
    ]
    assert pod_groups.is_finished(pods, 2) == is_finished


def test_single_pod_ends_when_it_fails() -> None:
    pod = _pod("a1", gated=False, phase="Failed")
    del pod["metadata"]["labels"][names.POD_GROUP]
    assert pod_groups.is_finished([pod], 1)


def test_pods_of_a_group_agree_on_size_and_queue() -> None:
    other = _pod("b2", size="3")
    other["metadata"]["labels"][names.QUEUE_NAME] = "r"
    with pytest.raises(YardError, match="same annotation"):
        pod_groups.group_size([_pod("a1"), other])
    with pytest.raises(YardError, match="same label"):
        pod_groups.queue_of([_pod("a1"), other])


def test_workload_gets_references_to_pods_that_came_later() -> None:
    first, second = _pod("a1"), _pod("b2")
    workload = _workload(first, second)
    workload["metadata"]["ownerReferences"] = [pod_groups.owner_of(first)]
    assert [owner["name"] for owner in pod_groups.missing_owners(workload, [first, second])] == ["b2"]
