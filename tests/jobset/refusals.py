"""JobSets that are refused when they are created, and changes that are refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
_CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {}}}


def valid() -> Object:
    container = {"name": "main", "image": "busybox:1"}

    def job(name: str) -> Object:
        pod = {"spec": {"containers": [copy.deepcopy(container)], "restartPolicy": "Never"}}
        return {"name": name, "replicas": 2, "template": {"spec": {"completions": 2, "template": pod}}}

    return {"metadata": {"name": "bad"}, "spec": {"replicatedJobs": [job("a"), job("b")]}}


def _spec(**fields: Any) -> Callable[[Object], None]:
    return lambda obj: obj["spec"].update(copy.deepcopy(fields))


def _job(index: int, **fields: Any) -> Callable[[Object], None]:
    return lambda obj: obj["spec"]["replicatedJobs"][index].update(copy.deepcopy(fields))


def _template(index: int, **fields: Any) -> Callable[[Object], None]:
    return lambda obj: obj["spec"]["replicatedJobs"][index]["template"]["spec"].update(copy.deepcopy(fields))


def _metadata(**fields: Any) -> Callable[[Object], None]:
    return lambda obj: obj["metadata"].update(fields)


def _rules(*rules: Object, **policy: Any) -> Callable[[Object], None]:
    return _spec(failurePolicy={"rules": list(rules), **policy})


def _rule(name: str = "rule", action: str = "FailJobSet", **fields: Any) -> Object:
    return {"name": name, "action": action, **fields}


def _claims(*templates: Object, **policy: Any) -> Callable[[Object], None]:
    return _spec(volumeClaimPolicies=[{"templates": list(templates), **policy}])


def _mounted(*templates: Object, volume: bool = False) -> Callable[[Object], None]:
    def change(obj: Object) -> None:
        _claims(*templates)(obj)
        pod = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["containers"][0]["volumeMounts"] = [
            {"name": template["metadata"]["name"], "mountPath": f"/{number}"}
            for number, template in enumerate(templates)
        ]
        if volume:
            pod["volumes"] = [{"name": templates[0]["metadata"]["name"], "emptyDir": {}}]

    return change


def _named(name: str) -> Object:
    return {**_CLAIM, "metadata": {"name": name}}


_A_ON_B = [{"name": "b", "status": "Ready"}]
CREATIONS: dict[str, Callable[[Object], None]] = {
    "valid": _spec(),
    "no replicated jobs": _spec(replicatedJobs=[]),
    "first depends": _job(0, dependsOn=_A_ON_B),
    "depends on itself": _job(1, dependsOn=[{"name": "b", "status": "Ready"}]),
    "depends on unknown": _job(1, dependsOn=[{"name": "z", "status": "Complete"}]),
    "depends on two, one unknown": _job(
        1, dependsOn=[{"name": "a", "status": "Ready"}, {"name": "z", "status": "Ready"}]
    ),
    "depends without status": _job(1, dependsOn=[{"name": "a"}]),
    "depends with bad status": _job(1, dependsOn=[{"name": "a", "status": "Running"}]),
    "depends on too many": _job(1, dependsOn=[{"name": f"n{i}", "status": "Ready"} for i in range(6)]),
    "depends twice on one": _job(1, dependsOn=[{"name": "a", "status": "Ready"}, {"name": "a", "status": "Complete"}]),
    "in order with dependsOn": lambda obj: (
        _job(1, dependsOn=[{"name": "a", "status": "Ready"}])(obj),
        _spec(startupPolicy={"startupPolicyOrder": "InOrder"})(obj),
    )[0],
    "bad startup order": _spec(startupPolicy={"startupPolicyOrder": "Random"}),
    "startup policy without order": _spec(startupPolicy={}),
    "bad success operator": _spec(successPolicy={"operator": "Most"}),
    "success policy without operator": _spec(successPolicy={"targetReplicatedJobs": ["a"]}),
    "unknown success target": _spec(successPolicy={"operator": "All", "targetReplicatedJobs": ["a", "z"]}),
    "bad subdomain": _spec(network={"subdomain": "Not_Good"}),
    "subdomain with dots": _spec(network={"subdomain": "a.b"}),
    "subdomain that starts with a digit": _spec(network={"subdomain": "1abc"}),
    "long subdomain": _spec(network={"subdomain": "a" * 64}),
    "very long subdomain": _spec(network={"subdomain": "a" * 254}),
    "manager without domain": _spec(managedBy="me"),
    "empty manager": _spec(managedBy=""),
    "manager with bad domain": _spec(managedBy="A_b/c"),
    "manager with bad path": _spec(managedBy="a.b/c d"),
    "long manager": _spec(managedBy=f"a.b/{'c' * 60}"),
    "bad group name": _job(0, groupName="Group_1"),
    "empty group name": _job(0, groupName=""),
    "long group name": _job(0, groupName="g" * 64),
    "bad name of a replicated job": _job(0, name="A_b"),
    "no name of a replicated job": _job(0, name=""),
    "same name twice": _job(1, name="a"),
    "long name": _metadata(name="x" * 60),
    "name too long for pods": _metadata(name="x" * 54),
    "name with dots": _metadata(name="a.b"),
    "name that starts with a digit": _metadata(name="1a"),
    "name with capitals": _metadata(name="Abc"),
    "generated name too long": lambda obj: (obj["metadata"].pop("name"), _metadata(generateName="y" * 56)(obj))[0],
    "negative replicas": _job(0, replicas=-1),
    "replicas is text": _job(0, replicas="two"),
    "too many pods": lambda obj: (_job(0, replicas=70_000)(obj), _template(0, parallelism=70_000)(obj))[0],
    "negative ttl": _spec(ttlSecondsAfterFinished=-1),
    "suspend is text": _spec(suspend="yes"),
    "rule without action": _rules({"name": "rule"}),
    "rule without name": _rules({"action": "FailJobSet"}),
    "rule with empty name": _rules(_rule("")),
    "rule with bad action": _rules(_rule(action="Explode")),
    "rule with bad name": _rules(_rule("1rule")),
    "rule name that ends badly": _rules(_rule("rule:")),
    "long rule name": _rules(_rule("r" * 129)),
    "same rule name twice": _rules(_rule("one"), _rule("two"), _rule("one")),
    "unknown rule target": _rules(_rule(targetReplicatedJobs=["a", "z"])),
    "unknown failure reason": _rules(_rule(onJobFailureReasons=["BackoffLimitExceeded", "Boredom"])),
    "bad message pattern": _rules(_rule(onJobFailureMessagePatterns=["("])),
    "bad restart strategy": _spec(failurePolicy={"restartStrategy": "Never"}),
    "in-place restart": _spec(failurePolicy={"restartStrategy": "InPlaceRestart"}),
    "negative max restarts": _spec(failurePolicy={"maxRestarts": -1}),
    "max restarts is text": _spec(failurePolicy={"maxRestarts": "1"}),
    "coordinator of unknown job": _spec(coordinator={"replicatedJob": "z"}),
    "coordinator without job": _spec(coordinator={"jobIndex": 0}),
    "coordinator with bad job index": _spec(coordinator={"replicatedJob": "a", "jobIndex": 2}),
    "coordinator with negative job index": _spec(coordinator={"replicatedJob": "a", "jobIndex": -1}),
    "coordinator with bad pod index": _spec(coordinator={"replicatedJob": "a", "podIndex": 2}),
    "coordinator of a job without completions": lambda obj: (
        _spec(coordinator={"replicatedJob": "a"})(obj),
        obj["spec"]["replicatedJobs"][0]["template"]["spec"].pop("completions"),
    )[0],
    "coordinator of a job without indexes": lambda obj: (
        _spec(coordinator={"replicatedJob": "a"})(obj),
        _template(0, completionMode="NonIndexed")(obj),
    )[0],
    "coordinator with a long label": lambda obj: (
        _spec(coordinator={"replicatedJob": "a"}, network={"subdomain": "s" * 60})(obj),
    )[0],
    "claim without mount": _claims(_CLAIM),
    "claim with a volume of its name": _mounted(_CLAIM, volume=True),
    "same claim twice": _mounted(_CLAIM, _CLAIM),
    "claim with bad name": _mounted(_named("Data_1")),
    "claim without name": _mounted(_named("")),
    "claim with long name": _mounted(_named("d" * 253)),
    "claim with namespace": _mounted({**_CLAIM, "metadata": {"name": "data", "namespace": "other"}}),
    "bad retention": _claims(_CLAIM, retentionPolicy={"whenDeleted": "Shred"}),
    "null node selector": lambda obj: obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"].update(
        nodeSelector=None
    ),
    "no containers": lambda obj: obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"].pop(
        "containers"
    ),
    "several at once": lambda obj: (
        _job(0, groupName="G", dependsOn=_A_ON_B)(obj),
        _rules(_rule("1", targetReplicatedJobs=["q"]))(obj),
        _spec(managedBy="x", successPolicy={"operator": "Any", "targetReplicatedJobs": ["q"]})(obj),
    )[0],
}

# Merge patches of the valid JobSet, and whether it is suspended before.
UPDATES: dict[str, tuple[Object, bool]] = {
    "suspend": ({"suspend": True}, False),
    "time to live": ({"ttlSecondsAfterFinished": 5}, False),
    "replicas": ({"replicatedJobs": "replicas"}, False),
    "replicas while suspended": ({"replicatedJobs": "replicas"}, True),
    "node selector": ({"replicatedJobs": "nodeSelector"}, False),
    "node selector while suspended": ({"replicatedJobs": "nodeSelector"}, True),
    "pod labels while suspended": ({"replicatedJobs": "labels"}, True),
    "job labels while suspended": ({"replicatedJobs": "jobLabels"}, True),
    "image while suspended": ({"replicatedJobs": "image"}, True),
    "fewer replicated jobs": ({"replicatedJobs": "fewer"}, True),
    "more replicated jobs": ({"replicatedJobs": "more"}, True),
    "success policy": ({"successPolicy": {"operator": "Any"}}, False),
    "startup policy": ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, False),
    "network": ({"network": {"subdomain": "other"}}, False),
    "failure policy": ({"failurePolicy": {"maxRestarts": 7}}, False),
    "manager": ({"managedBy": "example.com/me"}, False),
    "coordinator": ({"coordinator": {"replicatedJob": "a"}}, False),
}


def updated_jobs(jobs: list[Object], change: str) -> list[Object]:
    """The replicated jobs as a change of UPDATES writes them."""
    jobs = copy.deepcopy(jobs)
    template = jobs[0]["template"]["spec"]["template"]
    match change:
        case "replicas":
            jobs[0]["replicas"] = 1
        case "nodeSelector":
            template["spec"]["nodeSelector"] = {"pool": "x"}
        case "labels":
            template["metadata"] = {"labels": {"a": "b"}}
        case "jobLabels":
            jobs[0]["template"]["metadata"] = {"labels": {"a": "b"}}
        case "image":
            template["spec"]["containers"][0]["image"] = "other:1"
        case "fewer":
            jobs.pop()
        case "more":
            jobs.append({**copy.deepcopy(jobs[0]), "name": "c"})
    return jobs
