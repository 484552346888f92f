"""Scheduling: every filter with kube-scheduler's message, the hint that follows, and gangs as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from torchyard.api.objects import Object
from torchyard.core.scheduling.node_info import NodeInfo, requests
from torchyard.core.scheduling.schedule import (
    GANG_NAME,
    GANG_SIZE,
    Unschedulable,
    gang_of,
    gang_size,
    schedule_gang,
    schedule_pod,
)


def node(name: str = "n", *, cpu: str = "4", memory: str = "8Gi", spec: Object | None = None, **more: Any) -> Object:
    amounts = {"cpu": cpu, "memory": memory, "pods": more.pop("pods", "10"), **more.pop("extra", {})}
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec or {}, "status": {"allocatable": amounts}}


def pod(
    name: str = "p", cpu: str = "1", *, extra: Object | None = None, labels: Object | None = None, **spec: Any
) -> Object:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, **(extra or {})}}, **spec.pop("container", {})}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def views(*nodes: Object, on: dict[str, list[Object]] | None = None) -> list[NodeInfo]:
    return [NodeInfo.of(node, (on or {}).get(node["metadata"]["name"], ())) for node in nodes]


TAINT = {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


@pytest.mark.parametrize(
    ("given_pod", "nodes", "reason", "hint"),
    [
        (pod(cpu="5"), views(node()), "1 Insufficient cpu", "No node has more than 4 of cpu in total"),
        (
            pod(cpu="3"),
            views(node(), on={"n": [pod("other", "2")]}),
            "1 Insufficient cpu",
            "It requests 3 of cpu; other pods use too much of the 4: wait, delete a pod, or request less.",
        ),
        (
            pod(cpu="3", extra={"memory": "1Ti"}),
            views(node(), on={"n": [pod("other", "2")]}),
            "1 Insufficient cpu, 1 Insufficient memory",
            "No node has more than 8Gi of memory in total: it requests 1Ti.",
        ),
        (
            pod(extra={"nvidia.com/gpu": "1"}),
            views(node()),
            "1 Insufficient nvidia.com/gpu",
            "No node has any nvidia.com/gpu",
        ),
        (pod(extra={"memory": "9Gi"}, cpu="9"), views(node()), "1 Insufficient cpu, 1 Insufficient memory", ""),
        (pod(), views(node(pods="0")), "1 Too many pods", ""),
        (
            pod(nodeSelector={"disk": "ssd"}),
            views(node()),
            "1 node(s) didn't match Pod's node affinity/selector",
            "kubectl label node n disk=ssd",
        ),
        (pod(), views(node(spec=TAINT)), "1 node(s) had untolerated taint(s)", "Add a toleration for the {gpu: yes}"),
        (pod(), views(node(spec={"unschedulable": True})), "1 node(s) were unschedulable", "kubectl uncordon n"),
        (
            pod(container={"ports": [{"containerPort": 80, "hostPort": 80}]}),
            views(node(), on={"n": [pod("o", container={"ports": [{"containerPort": 1, "hostPort": 80}]})]}),
            "1 node(s) didn't have free ports for the requested pod ports",
            "",
        ),
        (
            pod(affinity=APART),
            views(node(), on={"n": [pod("o", labels={"app": "a"})]}),
            "1 node(s) didn't match pod anti-affinity rules",
            "",
        ),
        (
            pod(labels={"app": "a"}),
            views(node(), on={"n": [pod("o", affinity=APART)]}),
            "1 node(s) didn't satisfy existing pods anti-affinity rules",
            "",
        ),
    ],
)
def test_an_unschedulable_pod_gets_a_reason_and_a_hint(
    given_pod: Object, nodes: list[NodeInfo], reason: str, hint: str
) -> None:
    answer = schedule_pod(given_pod, nodes)
    assert isinstance(answer, Unschedulable)
    rest = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 "
    assert answer.message.startswith(f"0/1 nodes are available: {reason}. {rest}")
    assert hint in answer.hint


def test_without_nodes_the_hint_says_how_to_get_one() -> None:
    assert str(schedule_pod(pod(), [])) == (
        "no nodes available to schedule pods. "
        "yard status shows whether the plane has a node, and what keeps it from being ready."
    )


def test_the_message_of_a_pending_pod_does_not_change_while_other_pods_come_and_go() -> None:
    messages = {schedule_pod(pod(cpu="3"), views(node(), on={"n": [pod("other", cpu)]})) for cpu in ("2", "3", "1500m")}
    assert len(messages) == 1


@pytest.mark.parametrize(
    "given_pod",
    [
        pod(tolerations=[{"key": "gpu", "operator": "Exists"}]),
        pod(tolerations=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
        pod(tolerations=[{"operator": "Exists"}]),
    ],
)
def test_a_tolerated_taint_does_not_exclude_a_node(given_pod: Object) -> None:
    assert schedule_pod(given_pod, views(node(spec=TAINT))) == "n"


def test_the_emptier_node_is_taken_and_a_preference_wins_over_it() -> None:
    nodes = views(node("a"), node("b", labels={"fast": "yes"}), on={"b": [pod("o", "2")]})
    assert schedule_pod(pod(), nodes) == "a"
    term = {"matchExpressions": [{"key": "fast", "operator": "In", "values": ["yes"]}]}
    wish = [{"weight": 10, "preference": term}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}
    assert schedule_pod(pod(affinity=affinity), nodes) == "b"


def test_an_unbound_claim_excludes_every_node() -> None:
    answer = schedule_pod(pod(), views(node()), pre_filter_reason="pod has unbound immediate PersistentVolumeClaims")
    assert isinstance(answer, Unschedulable)
    assert "1 pod has unbound immediate PersistentVolumeClaims" in answer.message


def test_finished_pods_use_no_resources() -> None:
    done = {**pod("o", "4"), "status": {"phase": "Succeeded"}}
    assert schedule_pod(pod(cpu="4"), views(node(), on={"n": [done]})) == "n"


def test_requests_include_the_peak_of_the_initialization() -> None:
    def container(cpu: str, **more: str) -> Object:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("1", restartPolicy="Always"), container("5")],
        "containers": [container("2"), container("1")],
    }
    assert requests({"metadata": {}, "spec": spec})["cpu"] == 6000
    spec["initContainers"].pop()
    assert requests({"metadata": {}, "spec": spec})["cpu"] == 4000


def gang(count: int, cpu: str, size: int | None = None) -> list[Object]:
    pods = [pod(f"g{number}", cpu) for number in range(count)]
    for member in pods:
        member["metadata"]["annotations"] = {GANG_NAME: "g", GANG_SIZE: str(size or count)}
    return pods


def test_a_gang_is_scheduled_as_a_whole() -> None:
    answer = schedule_gang(gang(4, "2"), views(node("a"), node("b")), size=4)
    assert not isinstance(answer, Unschedulable)
    assert sorted(answer.values()) == ["a", "a", "b", "b"]


def test_a_gang_that_fits_in_part_is_pending_as_a_whole() -> None:
    answer = schedule_gang(gang(5, "2"), views(node("a"), node("b")), size=5)
    assert isinstance(answer, Unschedulable)
    assert answer.message.startswith("gang of 5 fits only 4 at once: 0/2 nodes are available: 2 Insufficient cpu.")


def test_a_gang_is_pending_until_its_last_pod_exists() -> None:
    pods = gang(2, "1", size=3)
    assert gang_of(pods[0]) == ("default", "g")
    answer = schedule_gang(pods, views(node()), size=gang_size(pods))
    assert isinstance(answer, Unschedulable)
    assert str(answer) == "gang has 2 of 3 pods. It starts when 1 more are created."


@given(some.lists(some.integers(1, 4), max_size=8), some.lists(some.integers(1, 6), min_size=1, max_size=4))
def test_no_node_is_ever_overcommitted(requests: list[int], sizes: list[int]) -> None:
    nodes = views(*(node(f"n{number}", cpu=str(size)) for number, size in enumerate(sizes)))
    pods = [pod(f"p{number}", str(cpu)) for number, cpu in enumerate(requests)]
    answer = schedule_gang(pods, nodes, size=len(pods))
    if isinstance(answer, Unschedulable):
        assert max(requests) > max(sizes) or sum(requests) > sum(sizes) - len(sizes) * max(requests)
        return
    for number, size in enumerate(sizes):
        mine = [
            cpu for item, cpu in zip(pods, requests, strict=True) if answer[item["metadata"]["uid"]] == f"n{number}"
        ]
        assert sum(mine) <= size


@pytest.mark.parametrize("size", ["²", "9" * 5000, "-1", "two", ""])
def test_a_gang_size_that_is_not_a_number_counts_the_pods(size: str) -> None:
    pods = gang(2, "1")
    for pod in pods:
        pod["metadata"].setdefault("annotations", {})[GANG_SIZE] = size
    assert gang_size(pods) == 2


@pytest.mark.parametrize(
    ("label", "operator", "bound", "fits"),
    [
        ("5", "Gt", "4", True),
        ("4", "Gt", "4", False),
        ("3", "Lt", "+4", True),
        ("-5", "Lt", "-4", True),
        ("--5", "Lt", "4", False),
        ("5", "Gt", "--4", False),
        ("\u00b2", "Lt", "4", False),
        ("1_0", "Gt", "4", False),
        (str(2**63), "Gt", "4", False),
        ("9" * 5000, "Gt", "4", False),
        ("5", "Gt", "", False),
    ],
)
def test_a_node_affinity_compares_64_bit_integers(label: str, operator: str, bound: str, fits: bool) -> None:
    term = {"matchExpressions": [{"key": "size", "operator": operator, "values": [bound]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    found = schedule_pod(pod(affinity={"nodeAffinity": required}), views(node(labels={"size": label})))
    assert isinstance(found, Unschedulable) is not fits
