"""Where a DaemonSet's pods run, and what happens to those that may not stay or have ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.core.workload.daemonset import DaemonSetView, decide
from torchyard.core.workload.daemonset_nodes import make_pod, node_of, place

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def daemon_set(**pod: Any) -> Object:
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [], **pod}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    selector = {"matchLabels": {"app": "agent"}}
    spec = {"selector": selector, "template": template, "updateStrategy": strategy}
    return {"metadata": {"name": "agent", "namespace": "n", "uid": "d", "generation": 1}, "spec": spec}


def node(name: str = "a", *taints: tuple[str, str], **labels: str) -> Object:
    spec = {"taints": [{"key": key, "effect": effect} for key, effect in taints]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {}}


def pod_on(owner: Object, name: str, *, uid: str = "", phase: str = "Running", bound: bool = True) -> Object:
    pod = make_pod(owner, name, "hash")
    pod["metadata"] |= {"name": uid or f"agent-{name}", "uid": uid or name}
    if bound:
        pod["spec"]["nodeName"] = name
    return {**pod, "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.mark.parametrize(
    ("taint", "should_run", "may_stay"),
    [
        (("node.kubernetes.io/unschedulable", "NoSchedule"), True, True),
        (("node.kubernetes.io/not-ready", "NoExecute"), True, True),
        (("node.kubernetes.io/network-unavailable", "NoSchedule"), False, True),
        (("mine", "NoSchedule"), False, True),
        (("mine", "NoExecute"), False, False),
        (("mine", "PreferNoSchedule"), True, True),
    ],
)
def test_taints_decide_about_new_pods_and_only_some_about_those_that_run(
    taint: tuple[str, str], should_run: bool, may_stay: bool
) -> None:
    assert place(daemon_set(), node("a", taint)) == (should_run, may_stay)


def test_a_pod_in_the_hosts_network_does_not_wait_for_the_nodes_network() -> None:
    missing = ("node.kubernetes.io/network-unavailable", "NoSchedule")
    assert place(daemon_set(hostNetwork=True), node("a", missing)).should_run


def test_selectors_and_a_node_name_choose_nodes() -> None:
    assert place(daemon_set(nodeSelector={"disk": "ssd"}), node("a", disk="ssd")) == (True, True)
    assert place(daemon_set(nodeSelector={"disk": "ssd"}), node("a", disk="hdd")) == (False, False)
    assert place(daemon_set(nodeName="b"), node("a")) == (False, False)


def test_a_pod_is_made_for_one_node_whatever_the_template_prefers() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]
    owner = daemon_set(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    pod = make_pod(owner, "a", "hash")
    assert node_of(pod) == "a"
    assert pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred


def view(owner: Object, pods: list[Object], nodes: list[Object], wait: float = 0.0) -> DaemonSetView:
    return DaemonSetView(owner, tuple(pods), tuple(nodes), "hash", None, NOW, lambda _node: wait)


def test_pods_go_from_nodes_that_they_may_not_stay_on_and_from_nodes_that_are_gone() -> None:
    owner = daemon_set()
    evicted = pod_on(owner, "a")
    waiting = pod_on(owner, "gone", bound=False)
    bound = pod_on(owner, "lost")
    decision = decide(view(owner, [evicted, waiting, bound], [node("a", ("mine", "NoExecute")), node("b")]))
    assert [pod["metadata"]["name"] for pod in decision.delete] == ["agent-a", "agent-gone"]
    assert decision.create == ["b"]
    assert decision.status["desiredNumberScheduled"] == 1
    assert decision.status["numberMisscheduled"] == 1


def test_a_failed_pod_is_replaced_after_its_backoff() -> None:
    owner = daemon_set()
    failed = pod_on(owner, "a", phase="Failed")
    waiting = decide(view(owner, [failed], [node("a")], wait=4.0))
    assert (waiting.delete, waiting.events, waiting.wake_after) == ([], [], 4.0)
    now = decide(view(owner, [failed], [node("a")]))
    assert now.failed_on == ["a"]
    assert [event.message for event in now.events] == [
        "Found failed daemon pod n/agent-a on node a, will try to kill it"
    ]


def test_of_several_pods_on_a_node_the_oldest_stays() -> None:
    owner = daemon_set()
    pods = [pod_on(owner, "a", uid=name) for name in ("young", "old")]
    pods[0]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"
    pods[1]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    decision = decide(view(owner, pods, [node("a")]))
    assert [pod["metadata"]["name"] for pod in decision.delete] == ["young"]
