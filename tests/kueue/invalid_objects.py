"""Objects that Kueue refuses, or accepts against expectation, each with the requests that lead to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tests.kueue.harness import Object, Scenario, condition, container, cpu_group, group, pod_set, quota, scenario
from tests.support.http import Answer

_unchecked = (
    ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation"
)
_immutable = re.compile(r"\{.*\}: field is immutable")
_multiple = re.compile(r"is not a multiple of [0-9]+")  # Kueue prints an address
_denied = re.compile(r'^admission webhook "[a-z.]+" denied the request: ')
_refused = re.compile(r'^[A-Za-z]+\.kueue\.x-k8s\.io "[^"]*" is invalid: ')


def _answer(s: Scenario, case: str, answer: Answer) -> None:
    """Record whether a request was refused, and why. The texts around the error differ between CRD and webhook."""
    message = "" if answer.status < 400 else answer.message.replace(s.prefix, "")
    plain = _refused.sub("", _denied.sub("", message))
    if _unchecked in plain:  # a schema with rules says so when the types are wrong
        plain = plain.replace(_unchecked, "").removeprefix("[").removesuffix("]")
    plain = _multiple.sub("is not a multiple of ?", _immutable.sub("?: field is immutable", plain))
    s.results.append({"case": case, "refused": answer.status >= 400, "message": plain})


def _try(
    s: Scenario, kind: str, cases: Iterable[tuple[str, Object]], namespace: str = "", version: str = "v1beta2"
) -> None:
    for number, (case, obj) in enumerate(cases):
        metadata = {"name": f"{s.prefix}o{number}", **obj.pop("metadata", {})}
        if namespace:
            metadata["namespace"] = s.named(namespace)
        path = s.path(kind, "x", namespace).rsplit("/", 1)[0].replace("/v1beta2/", f"/{version}/")
        body = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": metadata, **obj}
        _answer(s, case, s.client.post(path, body))
        if version != "v1beta2":
            del s.results[-1]["message"]  # the plane names the fields of the version that it stores


def _queue(*groups: Object, **spec: Any) -> Object:
    return {"spec": {"namespaceSelector": {}, "resourceGroups": list(groups), **spec}}


@scenario
def invalid_cluster_queues(s: Scenario) -> None:
    two = group(("f", [quota("cpu", 1), quota("memory", 1)]))
    _try(
        s,
        "ClusterQueue",
        [
            ("negative weight", _queue(fairSharing={"weight": "-1"})),
            ("tiny weight", _queue(fairSharing={"weight": "1n"})),
            ("smallest weight", _queue(fairSharing={"weight": "2n"})),
            ("zero weight", _queue(fairSharing={"weight": "0"})),
            ("resource name", _queue(group(("f", [quota("@cpu", 1)])))),
            ("negative quota", _queue(cpu_group(-1))),
            ("negative limits", _queue(cpu_group(1, borrowingLimit=-1, lendingLimit=-1), cohortName="c")),
            ("borrowing limit without cohort", _queue(cpu_group(1, borrowingLimit=1))),
            ("lending limit without cohort", _queue(cpu_group(1, lendingLimit=1))),
            ("lending limit above quota", _queue(cpu_group(1, lendingLimit=2), cohortName="c")),
            ("selector key", _queue(namespaceSelector={"matchLabels": {"@key": "a"}})),
            ("selector value", _queue(namespaceSelector={"matchLabels": {"key": "@a"}})),
            (
                "selector operator",
                _queue(namespaceSelector={"matchExpressions": [{"key": "key", "operator": "Is", "values": ["a"]}]}),
            ),
            ("selector values", _queue(namespaceSelector={"matchExpressions": [{"key": "key", "operator": "In"}]})),
            ("cohort name", _queue(cohortName="@c")),
            ("flavor name", _queue(cpu_group(1, "@f"))),
            ("duplicate flavor", _queue(cpu_group(1), group(("f", [quota("memory", 1)])))),
            ("duplicate resource", _queue(cpu_group(1), cpu_group(1, "g"))),
            ("missing resource", _queue({**two, "flavors": cpu_group(1)["flavors"]})),
            ("resource order", _queue({**two, "coveredResources": ["memory", "cpu"]})),
            (
                "borrow without reclaim",
                _queue(preemption={"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}),
            ),
            ("preemption policy", _queue(preemption={"withinClusterQueue": "Sometimes"})),
            ("strategy", _queue(queueingStrategy="LIFO")),
            ("stop policy", _queue(stopPolicy="Stop")),
            ("preference", _queue(flavorFungibility={"preference": "BorrowingOverPreemption"})),
            ("fungibility", _queue(flavorFungibility={"whenCanBorrow": "Borrow"})),
            ("no checks", _queue(admissionChecksStrategy={"admissionChecks": []})),
            ("check name", _queue(admissionChecksStrategy={"admissionChecks": [{"name": ""}]})),
            (
                "check on flavor",
                _queue(admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["x"]}]}),
            ),
            (
                "duplicate check",
                _queue(admissionChecksStrategy={"admissionChecks": [{"name": "a"}, {"name": "a"}]}),
            ),
            ("no flavors", _queue({"coveredResources": ["cpu"], "flavors": []})),
            ("valid", _queue(two, cohortName="c", fairSharing={"weight": "2"})),
        ],
    )


@scenario
def invalid_cohorts(s: Scenario) -> None:
    def cohort(*groups: Object, **spec: Any) -> Object:
        return {"spec": {"resourceGroups": list(groups), **spec}}

    _try(
        s,
        "Cohort",
        [
            ("lending limit above quota", cohort(cpu_group(1, lendingLimit=2), parentName="p")),
            ("lending limit without parent", cohort(cpu_group(1, lendingLimit=1))),
            ("borrowing limit without parent", cohort(cpu_group(1, borrowingLimit=1))),
            ("negative quota", cohort(cpu_group(-1))),
            ("parent name", cohort(parentName="@p")),
            ("negative weight", cohort(fairSharing={"weight": "-1"})),
            ("tiny weight", cohort(fairSharing={"weight": "1n"})),
            ("resource name", cohort(group(("f", [quota("@cpu", 1)])))),
            ("duplicate resource", cohort(cpu_group(1), cpu_group(1, "g"))),
            ("valid", cohort(cpu_group(1), parentName="p")),
        ],
    )


@scenario
def invalid_flavors(s: Scenario) -> None:
    def flavor(**spec: Any) -> Object:
        return {"spec": spec}

    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    _try(
        s,
        "ResourceFlavor",
        [
            ("label key", flavor(nodeLabels={"@a": "b"})),
            ("label value", flavor(nodeLabels={"a": "@b"})),
            ("many labels", flavor(nodeLabels={f"a{number}": "b" for number in range(9)})),
            ("taint key", flavor(nodeTaints=[{**taint, "key": "@a"}])),
            ("taint value", flavor(nodeTaints=[{**taint, "value": "@a"}])),
            ("taint effect", flavor(nodeTaints=[{**taint, "effect": "Never"}])),
            ("many taints", flavor(nodeTaints=[{**taint, "key": f"a{number}"} for number in range(9)])),
            ("duplicate taint", flavor(nodeTaints=[taint, taint])),
            ("toleration key", flavor(tolerations=[{"key": "@a", "operator": "Exists"}])),
            ("toleration without key", flavor(tolerations=[{"operator": "Equal", "value": "a"}])),
            ("toleration operator", flavor(tolerations=[{"key": "a", "operator": "Is"}])),
            ("toleration value", flavor(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}])),
            ("toleration effect", flavor(tolerations=[{"key": "a", "operator": "Exists", "effect": "Never"}])),
            (
                "toleration seconds",
                flavor(
                    tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]
                ),
            ),
            ("valid", flavor(nodeLabels={"a": "b"}, nodeTaints=[taint], tolerations=[{"operator": "Exists"}])),
        ],
    )


@scenario
def invalid_local_queues_and_checks(s: Scenario) -> None:
    s.namespace()
    _try(
        s,
        "LocalQueue",
        [
            ("cluster queue", {"spec": {"clusterQueue": "@q"}}),
            ("stop policy", {"spec": {"clusterQueue": "q", "stopPolicy": "Stop"}}),
            ("negative weight", {"spec": {"clusterQueue": "q", "fairSharing": {"weight": "-1"}}}),
            ("tiny weight", {"spec": {"clusterQueue": "q", "fairSharing": {"weight": "1n"}}}),
            ("valid", {"spec": {"clusterQueue": "q"}}),
        ],
        "ns",
    )
    parameters = {"apiGroup": "example.com", "kind": "Budget", "name": "b"}
    _try(
        s,
        "AdmissionCheck",
        [
            ("no controller", {"spec": {}}),
            ("empty controller", {"spec": {"controllerName": ""}}),
            ("group", {"spec": {"controllerName": "a/b", "parameters": {**parameters, "apiGroup": "@a"}}}),
            ("name", {"spec": {"controllerName": "a/b", "parameters": {**parameters, "name": "@a"}}}),
            ("valid", {"spec": {"controllerName": "a/b", "parameters": parameters}}),
        ],
    )
    path = s.path("AdmissionCheck", "o4")
    _answer(s, "change controller", s.client.patch(path, {"spec": {"controllerName": "c/d"}}))
    queue = s.path("LocalQueue", "x", "ns").rsplit("/", 1)[0] + f"/{s.prefix}o4"
    _answer(s, "change cluster queue", s.client.patch(queue, {"spec": {"clusterQueue": "other"}}))


def _workload(*pod_sets: Object, **spec: Any) -> Object:
    return {"spec": {"queueName": "q", "podSets": list(pod_sets) or [pod_set(cpu=1)], **spec}}


_PRIORITY = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}


@scenario
def invalid_workloads(s: Scenario) -> None:
    s.namespace()
    eight = [pod_set(f"p{number}", cpu=1) for number in range(9)]
    _try(
        s,
        "Workload",
        [
            ("no pod sets", {"spec": {"queueName": "q", "podSets": []}}),
            ("many pod sets", _workload(*eight)),
            ("duplicate pod sets", _workload(pod_set(cpu=1), pod_set(cpu=1))),
            ("pod set name", _workload(pod_set("@main", cpu=1))),
            ("queue name", _workload(queueName="@q")),
            ("request for pods", _workload(pod_set(containers=[container(requests={"pods": "1"})]))),
            ("init request for pods", _workload(pod_set(cpu=1, initContainers=[container(requests={"pods": "1"})]))),
            ("negative request", _workload(pod_set(containers=[container(requests={"cpu": "-1"})]))),
            ("negative limit", _workload(pod_set(containers=[container(limits={"cpu": "-1"})]))),
            ("negative pod-level request", _workload(pod_set(cpu=1, resources={"requests": {"cpu": "-1"}}))),
            ("negative pod-level limit", _workload(pod_set(cpu=1, resources={"limits": {"cpu": "-1"}}))),
            ("pod-level request for pods", _workload(pod_set(cpu=1, resources={"requests": {"pods": "1"}}))),
            ("resource name", _workload(pod_set(containers=[container(requests={"@cpu": "1"})]))),
            ("overhead of pods", _workload(pod_set(cpu=1, overhead={"pods": "1"}))),
            ("negative count", _workload({**pod_set(cpu=1), "count": -1})),
            ("min count above count", _workload({**pod_set(cpu=1), "minCount": 2})),
            ("min count of zero", _workload({**pod_set(cpu=1), "minCount": 0})),
            (
                "two min counts",
                _workload(
                    {**pod_set("a", count=2, cpu=1), "minCount": 1}, {**pod_set("b", count=2, cpu=1), "minCount": 1}
                ),
            ),
            ("priority class without priority", _workload(priorityClassRef=_PRIORITY)),
            ("kind of priority class", _workload(priority=1, priorityClassRef={**_PRIORITY, "kind": "PriorityClass"})),
            (
                "kind of pod priority class",
                _workload(priority=1, priorityClassRef={**_PRIORITY, "group": "scheduling.k8s.io"}),
            ),
            ("group of priority class", _workload(priority=1, priorityClassRef={**_PRIORITY, "group": "example.com"})),
            ("name of priority class", _workload(priority=1, priorityClassRef={**_PRIORITY, "name": "@high"})),
            ("execution time", _workload(maximumExecutionTimeSeconds=0)),
            ("valid", _workload(priority=1, priorityClassRef=_PRIORITY)),
        ],
        "ns",
    )
    _try(
        s,
        "Workload",
        [
            (
                "v1beta1 priority class",
                _workload(priorityClassName="high", priorityClassSource="kueue.x-k8s.io/workloadpriorityclass"),
            ),
            ("v1beta1 source", _workload(priority=1, priorityClassName="high", priorityClassSource="other")),
            (
                "v1beta1 name",
                _workload(
                    priority=1, priorityClassName="@high", priorityClassSource="kueue.x-k8s.io/workloadpriorityclass"
                ),
            ),
            ("v1beta1 pods", _workload(pod_set(containers=[container(requests={"pods": "1"})]))),
        ],
        "ns",
        "v1beta1",
    )


def _reserved(*assignments: Object, **status: Any) -> Object:
    reserved = condition("QuotaReserved", "True", "QuotaReserved", "By test")
    return {
        "conditions": [reserved],
        "admission": {"clusterQueue": "q", "podSetAssignments": list(assignments)},
        **status,
    }


def _assignment(name: str = "main", *, count: int = 3, cpu: str = "3") -> Object:
    return {"name": name, "count": count, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu}}


@scenario
def invalid_workload_updates(s: Scenario) -> None:
    """No queue exists, so no controller changes these workloads."""
    s.namespace()
    template = pod_set(count=3, cpu=1)

    def new(name: str, *pod_sets: Object, **spec: Any) -> None:
        obj = _workload(*(pod_sets or (template,)), **{"priority": 1, "priorityClassRef": _PRIORITY, **spec})
        s.create("Workload", {"metadata": {"name": name, "namespace": s.named("ns")}, **obj})

    def status(name: str, case: str, status: Object) -> None:
        _answer(s, case, s.client.patch(s.path("Workload", name, "ns", "status"), {"status": status}))

    def spec(name: str, case: str, spec: Object) -> None:
        _answer(s, case, s.client.patch(s.path("Workload", name, "ns"), {"spec": spec}))

    new("a")
    status("a", "assignment of an unknown pod set", _reserved(_assignment("other")))
    status("a", "too many assignments", _reserved(_assignment(), _assignment("other")))
    status("a", "usage that does not divide", _reserved(_assignment(cpu="1")))
    status("a", "no admission", {"conditions": [condition("QuotaReserved", "True", "QuotaReserved", "By test")]})
    status("a", "reclaimable pods of an unknown pod set", {"reclaimablePods": [{"name": "other", "count": 1}]})
    status("a", "too many reclaimable pods", {"reclaimablePods": [{"name": "main", "count": 4}]})
    status("a", "negative reclaimable pods", {"reclaimablePods": [{"name": "main", "count": -1}]})
    check = {"name": "c", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    updates = {**check, "podSetUpdates": [{"name": "other"}]}
    status("a", "update of an unknown pod set", {"admissionChecks": [updates]})
    status(
        "a",
        "invalid label of an update",
        {"admissionChecks": [{**check, "podSetUpdates": [{"name": "main", "labels": {"@a": "b"}}]}]},
    )
    status(
        "a",
        "invalid annotation of an update",
        {"admissionChecks": [{**check, "podSetUpdates": [{"name": "main", "annotations": {"@a": "b"}}]}]},
    )
    status(
        "a",
        "invalid selector of an update",
        {"admissionChecks": [{**check, "podSetUpdates": [{"name": "main", "nodeSelector": {"@a": "b"}}]}]},
    )
    status(
        "a",
        "invalid toleration of an update",
        {
            "admissionChecks": [
                {**check, "podSetUpdates": [{"name": "main", "tolerations": [{"key": "@a", "operator": "Exists"}]}]}
            ]
        },
    )
    status("a", "check state", {"admissionChecks": [{**check, "state": "Maybe"}]})
    spec("a", "queue before the reservation", {"queueName": "other"})
    spec("a", "priority class before the reservation", {"priorityClassRef": {**_PRIORITY, "name": "low"}})
    status(
        "a", "reservation", _reserved(_assignment(), admissionChecks=[{**check, "podSetUpdates": [{"name": "main"}]}])
    )
    spec("a", "queue", {"queueName": "q"})
    spec("a", "pod sets", {"podSets": [pod_set(count=2, cpu=1)]})
    spec("a", "template", {"podSets": [pod_set(count=3, cpu=2)]})
    spec("a", "number of pod sets", {"podSets": [template, pod_set("other", cpu=1)]})
    spec("a", "name of the priority class", {"priorityClassRef": {**_PRIORITY, "name": "high"}})
    spec(
        "a",
        "other pod priority class",
        {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}},
    )
    spec("a", "no priority class", {"priorityClassRef": None})
    spec("a", "priority", {"priority": 5})
    status("a", "other admission", {"admission": {"clusterQueue": "other", "podSetAssignments": [_assignment()]}})
    status("a", "other assignment", {"admission": {"clusterQueue": "q", "podSetAssignments": [_assignment(cpu="6")]}})
    status("a", "reclaimable pods", {"reclaimablePods": [{"name": "main", "count": 2}]})
    status("a", "fewer reclaimable pods", {"reclaimablePods": [{"name": "main", "count": 1}]})
    status("a", "no reclaimable pods", {"reclaimablePods": None})
    status(
        "a",
        "other updates of a ready check",
        {"admissionChecks": [{**check, "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}]},
    )
    status("a", "cluster name", {"clusterName": "far"})
    spec("a", "active", {"active": False})
    new("b", priorityClassRef=None)
    status("b", "second reservation", _reserved(_assignment()))
    spec("b", "added priority class", {"priorityClassRef": _PRIORITY})
