"""Which pods go first, which claims have which owner, and the names of revisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from torchyard.api.gvr import STATEFUL_SETS
from torchyard.api.objects import Object
from torchyard.api.times import to_rfc3339
from torchyard.core.workload.pods import is_available, name_prefix, seconds_until_available
from torchyard.core.workload.ranking import surplus
from torchyard.core.workload.revisions import make_revision
from torchyard.core.workload.statefulset import StatefulSetView, decide
from torchyard.core.workload.statefulset_pods import claim_owners, is_stale, ordinal

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(
    name: str, *, node: str = "n", phase: str = "Running", ready: float | None = 60, restarts: int = 0, cost: str = ""
) -> Object:
    """`ready`: for how many seconds; None: not ready."""
    since = to_rfc3339(NOW - timedelta(seconds=ready or 0))
    conditions = [{"type": "Ready", "status": str(ready is not None), "lastTransitionTime": since}]
    containers = [{"restartCount": restarts}]
    metadata: Object = {"name": name, "uid": name, "creationTimestamp": to_rfc3339(NOW - timedelta(hours=1))}
    if cost:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": status}


ORDER = [
    pod("unassigned", node=""),
    pod("pending", phase="Pending", ready=None),
    pod("unready", ready=None),
    pod("cheap", cost="-5"),
    pod("crowded", node="full"),
    pod("young", ready=1),
    pod("restarted", restarts=3),
    pod("old"),
]


@pytest.mark.parametrize("index", range(len(ORDER) - 1))
def test_the_pod_that_costs_least_goes_first(index: int) -> None:
    related = [*(pod(f"neighbour-{number}", node="full") for number in range(9)), *ORDER]
    (first,) = surplus([ORDER[index + 1], ORDER[index]], related, 1, NOW)
    assert first["metadata"]["name"] == ORDER[index]["metadata"]["name"]


def test_availability_begins_min_ready_seconds_after_readiness() -> None:
    young = pod("p", ready=3)
    assert not is_available(young, 10, NOW)
    assert seconds_until_available(young, 10, NOW) == 7
    assert is_available(young, 3, NOW)
    assert seconds_until_available(young, 3, NOW) is None


def test_a_name_that_cannot_end_with_a_dash_is_a_prefix_as_it_is() -> None:
    assert name_prefix("web") == "web-"
    assert name_prefix("web.") == "web."


def stateful(**spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}}
    body = {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "db"}},
        "template": template,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        **spec,
    }
    return {"metadata": {"name": "db", "namespace": "n", "uid": "s"}, "spec": body}


@pytest.mark.parametrize(
    ("scaled", "deleted", "inside", "surplus_owner"),
    [
        ("Retain", "Retain", [], []),
        ("Retain", "Delete", ["StatefulSet"], ["StatefulSet"]),
        ("Delete", "Retain", [], ["Pod"]),
        ("Delete", "Delete", ["StatefulSet"], ["Pod"]),
    ],
)
def test_the_retention_policy_decides_who_owns_a_claim(
    scaled: str, deleted: str, inside: list[str], surplus_owner: list[str]
) -> None:
    policy = {"whenScaled": scaled, "whenDeleted": deleted}
    owner = stateful(persistentVolumeClaimRetentionPolicy=policy)
    claim: Object = {"metadata": {"ownerReferences": [{"kind": "Other", "uid": "x"}]}}
    for number, expected in ((0, inside), (1, surplus_owner)):
        member = {"metadata": {"name": f"db-{number}", "uid": f"p{number}"}}
        kinds = [reference["kind"] for reference in claim_owners(owner, member, claim)]
        assert kinds == ["Other", *expected]


def test_a_claim_of_an_earlier_pod_of_the_same_name_is_stale() -> None:
    claim = {"metadata": {"ownerReferences": [{"kind": "Pod", "name": "db-0", "uid": "old"}]}}
    assert is_stale("db-0", "new", claim)
    assert not is_stale("db-0", "old", claim)
    assert not is_stale("db-1", "new", claim)


@pytest.mark.parametrize(
    ("name", "expected"), [("db-0", 0), ("db-12", 12), ("db", -1), ("db-x", -1), ("db-9999999999", -1)]
)
def test_ordinals_are_read_from_names(name: str, expected: int) -> None:
    assert ordinal({"metadata": {"name": name}}) == expected


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_pass_over_two_billion_replicas_is_bounded(policy: str) -> None:
    owner = stateful(replicas=2**31 - 1, podManagementPolicy=policy)
    revision = make_revision(owner, STATEFUL_SETS, "StatefulSet", 1, 0)
    decision = decide(StatefulSetView(owner, (), revision, revision, 0, NOW))
    assert len(decision.create) == (1 if policy == "OrderedReady" else 500)


def test_the_revision_of_a_stateful_set_has_the_name_that_upstream_gives_it() -> None:
    """The real kube-controller-manager named the revision of this template."""
    container = {
        "args": ["x < 1"],
        "image": "busybox",
        "imagePullPolicy": "Always",
        "name": "c",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    spec = {
        "containers": [container],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "none",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    template = {"metadata": {"annotations": {"a": "<b> & ü"}, "labels": {"app": "hashed"}}, "spec": spec}
    owner = {"metadata": {"name": "hashed", "namespace": "default", "uid": "u"}, "spec": {"template": template}}
    assert make_revision(owner, STATEFUL_SETS, "StatefulSet", 1, 0)["metadata"]["name"] == "hashed-58dbf669f5"
