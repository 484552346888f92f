"""What a Deployment's pass decides, where a history cannot show it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.api.workload import labels
from torchyard.core.workload.deployment import after_collision, after_failed_creation, decide
from torchyard.core.workload.deployment_replicasets import make_replica_set, revision_annotations
from torchyard.core.workload.deployment_view import DeploymentView, size

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def deployment(
    replicas: int = 3, image: str = "a", surge: Any = "25%", unavailable: Any = "25%", **more: Any
) -> Object:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": image}]}}
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "progressDeadlineSeconds": 600,
        "revisionHistoryLimit": 10,
        **more,
    }
    return {"metadata": {"name": "web", "namespace": "n", "uid": "d", "generation": 1}, "spec": spec}


def view(obj: Object, *replica_sets: Object) -> DeploymentView:
    return DeploymentView(obj, replica_sets, (), NOW)


def replica_set(obj: Object, uid: str, replicas: int, available: int, revision: int = 1) -> Object:
    replica_set = make_replica_set(view(obj), [])
    replica_set["metadata"] |= {
        "uid": uid,
        "name": uid,
        "creationTimestamp": to_rfc3339(NOW + timedelta(seconds=revision)),
    }
    replica_set["metadata"]["annotations"][labels.REVISION] = str(revision)
    replica_set["spec"]["replicas"] = replicas
    replica_set["status"] = {"replicas": replicas, "readyReplicas": available, "availableReplicas": available}
    return replica_set


def test_another_hash_after_a_collision() -> None:
    first = make_replica_set(view(deployment()), [])
    collided = {**deployment(), "status": after_collision(view(deployment()))}
    second = make_replica_set(view(collided), [])
    assert collided["status"]["collisionCount"] == 1
    assert first["metadata"]["name"] != second["metadata"]["name"]
    for replica_set in (first, second):
        hash_ = replica_set["metadata"]["labels"][labels.POD_TEMPLATE_HASH]
        assert replica_set["metadata"]["name"] == f"web-{hash_}"
        assert replica_set["spec"]["selector"]["matchLabels"][labels.POD_TEMPLATE_HASH] == hash_
        assert replica_set["spec"]["template"]["metadata"]["labels"][labels.POD_TEMPLATE_HASH] == hash_


def test_a_replica_set_that_cannot_be_created_is_a_condition_and_an_event() -> None:
    status, event = after_failed_creation(view(deployment()), "web-x", "no room")
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        *("Progressing", "False", "ReplicaSetCreateError"),
    )
    assert condition["message"] == event.message == 'Failed to create new replica set "web-x": no room'


@pytest.mark.parametrize(
    ("surge", "unavailable", "expected"),
    [("25%", "25%", (1, 0)), (0, "1%", (0, 1)), ("100%", 0, (3, 0)), (0, 5, (0, 3))],
)
def test_percentages_round_so_that_a_rollout_can_move(surge: Any, unavailable: Any, expected: tuple[int, int]) -> None:
    subject = view(deployment(surge=surge, unavailable=unavailable))
    assert (subject.max_surge, subject.max_unavailable) == expected


def test_the_history_of_revisions_keeps_the_newest_within_its_length() -> None:
    obj = deployment()
    known = replica_set(obj, "r", 1, 1, revision=999)
    known["metadata"]["annotations"][labels.REVISION_HISTORY] = ",".join(str(number) for number in range(100, 600))
    history = revision_annotations(view(obj), known, 1000)[labels.REVISION_HISTORY]
    assert len(history) <= 2000
    assert history.endswith(",599,999")


@pytest.mark.parametrize(("known", "following"), [(2**63 - 8, str(2**63 - 7)), (2**63, "1"), (10**30, "1")])
def test_a_revision_is_any_number_of_64_bits(known: int, following: str) -> None:
    """A ReplicaSet that a Deployment adopts can have any revision; what is no such number counts as none."""
    obj = deployment()
    old = replica_set(obj, "r", 1, 1)
    old["metadata"]["annotations"][labels.REVISION] = str(known)
    new = make_replica_set(view(obj), [old])
    assert new["metadata"]["annotations"][labels.REVISION] == following


def test_the_next_look_is_at_the_progress_deadline() -> None:
    obj = deployment()
    first = decide(view(obj))
    assert first.wake_after == 601
    assert first.create is not None
    later = {**obj, "status": first.status}
    replica_set = {**first.create, "metadata": {**first.create["metadata"], "uid": "r"}}
    late = DeploymentView(later, (replica_set,), (), NOW + timedelta(seconds=602))
    assert late.status["conditions"]
    decision = decide(late)
    assert decision.status is not None
    progressing = next(item for item in decision.status["conditions"] if item["type"] == "Progressing")
    assert progressing["reason"] == "ProgressDeadlineExceeded"
    assert decision.wake_after is None


def test_a_paused_deployment_is_not_looked_at_when_its_deadline_passes() -> None:
    obj = deployment(paused=True)
    paused = {**obj, "status": decide(view(obj)).status}
    decision = decide(DeploymentView(paused, (), (), NOW + timedelta(hours=1)))
    assert (decision.status, decision.wake_after) == (None, None)


@given(
    replicas=st.integers(0, 12),
    surge=st.integers(0, 4),
    unavailable=st.integers(0, 4),
    old=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    new=st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
def test_a_pass_keeps_to_surge_and_availability(
    replicas: int, surge: int, unavailable: int, old: tuple[int, int], new: tuple[int, int]
) -> None:
    """Whatever the sizes: no pass adds pods beyond the surge, nor takes available ones below the minimum."""
    obj = deployment(replicas, "b", surge, unavailable)
    sets = [
        replica_set(deployment(replicas, image, surge, unavailable), name, total, min(ready, total), revision)
        for image, name, (total, ready), revision in (("a", "old", old, 1), ("b", "new", new, 2))
    ]
    subject = view(obj, *sets)
    decision = decide(subject)
    after = {item["metadata"]["uid"]: size(item) for item in sets}
    after |= {item["metadata"]["uid"]: size(item) for item, _event in decision.update}
    before = sum(map(size, sets))
    assert sum(after.values()) <= max(before, replicas + subject.max_surge)
    available = {item["metadata"]["uid"]: item["status"]["availableReplicas"] for item in sets}
    left = sum(min(after[uid], available[uid]) for uid in after)
    assert left >= min(sum(available.values()), replicas - subject.max_unavailable)
