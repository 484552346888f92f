"""Nodes without heartbeats, and when their pods are evicted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.core.node.eviction import (
    TERMINATED,
    TERMINATING_UNSCHEDULED,
    eviction_time,
    garbage_kinds,
    terminated_beyond,
)
from torchyard.core.node.health import unknown_conditions, with_no_execute_taint

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = to_rfc3339(NOW + timedelta(seconds=60))
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": to_rfc3339(NOW)}


def node(status: str = "") -> Object:
    conditions = [{"type": "Ready", "status": status, "reason": "KubeletReady"}] if status else []
    return {"metadata": {"name": "n"}, "spec": {}, "status": {"conditions": conditions}}


def pod(name: str = "p", *, phase: str = "Running", on: str = "n", tolerations: list[Object] | None = None) -> Object:
    metadata = {"name": name, "namespace": "d", "creationTimestamp": to_rfc3339(NOW)}
    return {
        "metadata": metadata,
        "spec": {"nodeName": on, "tolerations": tolerations or []},
        "status": {"phase": phase},
    }


def test_a_node_without_heartbeats_gets_unknown_conditions() -> None:
    conditions = unknown_conditions(node("True"), LATER)
    assert conditions is not None
    assert {item["type"]: (item["status"], item["reason"]) for item in conditions} == {
        "Ready": ("Unknown", "NodeStatusUnknown"),
        **dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure"), ("Unknown", "NodeStatusNeverUpdated")),
    }
    assert unknown_conditions({**node(), "status": {"conditions": conditions}}, LATER) is None


@pytest.mark.parametrize(
    ("status", "before", "keys"),
    [
        ("True", [], []),
        ("True", [UNREACHABLE], []),
        ("Unknown", [], ["node.kubernetes.io/unreachable"]),
        ("Unknown", [UNREACHABLE], ["node.kubernetes.io/unreachable"]),
        ("False", [UNREACHABLE], ["node.kubernetes.io/not-ready"]),
        ("", [], []),
        ("True", [{"key": "mine", "effect": "NoExecute"}], ["mine"]),
    ],
)
def test_a_node_that_is_not_ready_gets_a_no_execute_taint(status: str, before: list[Object], keys: list[str]) -> None:
    taints = with_no_execute_taint(node(status), before, LATER, alone=False)
    assert [item["key"] for item in taints] == keys
    if status == "Unknown" and before:
        assert taints == before, "the time it came is kept"


def test_no_pod_is_evicted_when_no_node_is_ready() -> None:
    assert with_no_execute_taint(node("Unknown"), [UNREACHABLE], LATER, alone=True) == []


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 30),  # at once: now
        ([{"operator": "Exists"}], None),
        ([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}], 300),
        ([{"operator": "Exists", "tolerationSeconds": 300}, {"operator": "Exists", "tolerationSeconds": 9}], 9),
        ([{"key": "other", "operator": "Exists"}], 30),
        ([{"operator": "Exists", "effect": "NoSchedule"}], 30),
        ([{"operator": "Exists", "tolerationSeconds": -1}], 0),
    ],
)
def test_a_pod_is_evicted_when_its_toleration_expires(tolerations: list[Object], seconds: int | None) -> None:
    moment = eviction_time(pod(tolerations=tolerations), [UNREACHABLE], NOW + timedelta(seconds=30))
    assert moment == (None if seconds is None else NOW + timedelta(seconds=seconds))


def test_a_no_schedule_taint_evicts_no_pod() -> None:
    assert eviction_time(pod(), [{**UNREACHABLE, "effect": "NoSchedule"}], NOW) is None


def test_ended_pods_and_terminating_pods_without_a_node_may_be_garbage() -> None:
    ending, ended = pod("ending", on=""), pod("ended", phase="Failed", on="")
    ending["metadata"]["deletionTimestamp"] = ended["metadata"]["deletionTimestamp"] = LATER
    assert [garbage_kinds(item) for item in (pod("here"), pod("waiting", on=""))] == [[], []]
    assert garbage_kinds(ending) == [TERMINATING_UNSCHEDULED]
    assert garbage_kinds(ended) == [TERMINATED, TERMINATING_UNSCHEDULED]


@pytest.mark.parametrize(("threshold", "garbage"), [(2, ["a"]), (3, []), (0, ["a", "b", "c"])])
def test_the_oldest_terminated_pods_beyond_the_threshold_are_garbage(threshold: int, garbage: list[str]) -> None:
    every = [
        pod(name, phase=phase) for name, phase in zip("abcd", ("Succeeded", "Failed", "Failed", "Running"), strict=True)
    ]
    assert [item["metadata"]["name"] for item in terminated_beyond(every, threshold)] == garbage
