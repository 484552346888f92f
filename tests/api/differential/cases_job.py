"""Valid and invalid Jobs and CronJobs."""

from __future__ import annotations

import copy
from typing import Any

from tests.api.differential.changes import both, set_
from tests.api.differential.pods import CONTAINER
from tests.api.differential.verdict import Case

from torchyard.api.objects import Object

TEMPLATE: Object = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
INDEXED: Object = {"completionMode": "Indexed", "completions": 5, "parallelism": 2}


def job(
    spec: Object | None = None, *, template: Object | None = None, pod: Object | None = None, **meta: Any
) -> Object:
    own = copy.deepcopy(template or TEMPLATE)
    own["spec"].update(pod or {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", **meta},
        "spec": copy.deepcopy({"template": own, **(spec or {})}),
    }


def rules(*some: Object, **more: Any) -> Object:
    return {"podFailurePolicy": {"rules": list(some)}, **more}


def cron(spec: Object, *, job_spec: Object | None = None, **meta: Any) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c", **meta},
        "spec": {"jobTemplate": {"spec": {"template": copy.deepcopy(TEMPLATE), **(job_spec or {})}}, **spec},
    }


def true(*kinds: str) -> list[Object]:
    return [{"type": kind, "status": "True"} for kind in kinds]


GOOD: dict[str, Object] = {
    "minimal": job(),
    "a work queue": job({"parallelism": 3}),
    "completions alone": job({"completions": 3}),
    "indexed": job(INDEXED),
    "a limit per index": job({**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2}),
    "a failure policy": job(
        rules(
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 42], "containerName": "main"}},
        )
    ),
    "a success policy": job(
        {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0,2-4", "succeededCount": 2}]}}
    ),
    "another manager": job({"managedBy": "example.com/me"}),
    "labels of its own": job(labels={"a": "b"}),
    "labels of the template": job(template={"metadata": {"labels": {"a": "b"}}, **TEMPLATE}),
    "a selector of its own": job(
        {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}},
        template={"metadata": {"labels": {"a": "b"}}, **TEMPLATE},
    ),
    "suspended": job({"suspend": True}),
    "a name with dots only warns": job(name="a.b"),
    "restart on failure": job(pod={"restartPolicy": "OnFailure"}),
    "a cron job": cron({"schedule": "*/5 0-4,6 1 JAN mon-fri"}),
    "a cron job by the hour": cron({"schedule": "@hourly", "timeZone": "Europe/Berlin"}),
    "a cron job every so often": cron({"schedule": "@every 1h30m"}),
    "a cron job with dots only warns": cron({"schedule": "0 0 ? * *"}, name="a.b"),
    "a cron job with a policy": cron(
        {"schedule": "1,,2 * * * *"},
        job_spec=rules({"action": "Count", "onPodConditions": [{"type": "X"}]}),
    ),
}

BAD: dict[str, Object] = {
    "no template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {}},
    "no restart policy": job(template={"spec": {"containers": [CONTAINER]}}),
    "an odd restart policy": job(pod={"restartPolicy": "X"}),
    "negative numbers": job(
        {
            "completions": -1,
            "parallelism": -1,
            "activeDeadlineSeconds": -1,
            "backoffLimit": -1,
            "ttlSecondsAfterFinished": -1,
            "completionMode": "X",
            "podReplacementPolicy": "X",
            "maxFailedIndexes": 1,
        }
    ),
    "index limits without indexes": job({"backoffLimitPerIndex": -1, "maxFailedIndexes": -1}),
    "no completion mode": job({"completionMode": ""}),
    "indexed without completions": job({"completionMode": "Indexed", "parallelism": 2}),
    "indexed and huge": job(
        {
            "completionMode": "Indexed",
            "completions": 200000,
            "parallelism": 100001,
            "backoffLimitPerIndex": 1,
            "maxFailedIndexes": 150000,
        }
    ),
    "indexed and huge without a limit": job(
        {"completionMode": "Indexed", "completions": 200000, "parallelism": 20000, "backoffLimitPerIndex": 1}
    ),
    "more failed indexes than there are": job({**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 6}),
    "success rules": job(
        {
            **INDEXED,
            "successPolicy": {
                "rules": [
                    {},
                    {"succeededIndexes": "1,3-2", "succeededCount": -1},
                    {"succeededIndexes": "1-2", "succeededCount": 6},
                    {"succeededIndexes": "a"},
                    {"succeededIndexes": "1-2-3"},
                    {"succeededIndexes": "9"},
                    {"succeededIndexes": "3,1"},
                    {"succeededIndexes": "1-x"},
                ]
            },
        }
    ),
    "too many success rules": job({**INDEXED, "successPolicy": {"rules": [{"succeededCount": 1}] * 21}}),
    "no success rules": job({**INDEXED, "successPolicy": {"rules": []}}),
    "success rules without indexes": job({"successPolicy": {"rules": [{"succeededCount": 1}]}}),
    "failure rules": job(
        rules(
            {"action": "", "onExitCodes": {"operator": "", "values": []}},
            {
                "action": "FailIndex",
                "onExitCodes": {"operator": "In", "values": [2, 1, 0, 0], "containerName": "z"},
                "onPodConditions": [{"type": "", "status": "X"}],
            },
            {"action": "X"},
            {"action": "Count", "onExitCodes": {"operator": "X", "values": list(range(256))}},
            {"action": "Count", "onPodConditions": [{"type": "A"}] * 21},
            podReplacementPolicy="TerminatingOrFailed",
        )
    ),
    "too many failure rules": job(rules(*[{"action": "Count", "onPodConditions": [{"type": "A"}]}] * 21)),
    "failure rules and restarts": job(
        rules({"action": "Count", "onPodConditions": [{"type": "A"}]}), pod={"restartPolicy": "OnFailure"}
    ),
    "a manager without a domain": job({"managedBy": "x"}),
    "a manager with a long name": job({"managedBy": "a.b/" + "c" * 70}),
    "a manager with a bad name": job({"managedBy": "A/c d"}),
    "an empty manager": job({"managedBy": ""}),
    "a selector that is not its own": job({"selector": {"matchLabels": {"a": "b"}}}),
    "a manual selector that selects nothing": job({"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}),
    "a manual selector that is missing": job({"manualSelector": True}),
    "a selector that is none": job({"selector": {"matchExpressions": [{"key": "", "operator": "X"}]}}),
    "labels that clash": job(
        template={"metadata": {"labels": {"job-name": "other", "controller-uid": "x"}}, **TEMPLATE}
    ),
    "a name that is too long": job(name="a" * 64),
    "a name that is too long with its index": job({"completionMode": "Indexed", "completions": 10}, name="a" * 62),
    "a bad template": job(pod={"containers": [{"name": "A", "image": ""}], "nodeName": "X"}),
    "cron: nothing": cron({"schedule": ""}),
    "cron: numbers": cron(
        {
            "schedule": "* * * * *",
            "timeZone": "Foo/Bar",
            "concurrencyPolicy": "X",
            "startingDeadlineSeconds": -1,
            "successfulJobsHistoryLimit": -1,
            "failedJobsHistoryLimit": -1,
        },
        name="a" * 53,
    ),
    "cron: an empty zone": cron({"schedule": "* * * * *", "timeZone": ""}),
    "cron: the local zone": cron({"schedule": "* * * * *", "timeZone": "local"}),
    "cron: an odd zone": cron({"schedule": "* * * * *", "timeZone": "../x"}),
    "cron: a selector": cron(
        {"schedule": "* * * * *"},
        job_spec={"selector": {"matchLabels": {"a": "b"}}, "manualSelector": True, "completions": -1},
    ),
}
SCHEDULES = [
    "x",
    "* * * *",
    "60 * * * *",
    "TZ=UTC * * * * *",
    "@foo",
    "@every x",
    "*/0 * * * *",
    "1-70 * * * *",
    "5-1 * * * *",
    "* * 0 * *",
    "a * * * *",
    "1/2/3 * * * *",
    "1-2-3 * * * *",
    "* * * * 8",
    "-1 * * * *",
    "*/-1 * * * *",
    "* 24 * * *",
    "* * * 13 *",
]

STARTED = "2026-01-01T00:00:00Z"
ENDED = "2026-01-01T01:00:00Z"


def status(**fields: Any) -> Any:
    return set_("status", fields)


UPDATES: list[Case] = [
    Case("parallelism", job(), set_("spec.parallelism", 5)),
    Case("suspend", job(), set_("spec.suspend", True)),
    Case(
        "deadline, limit and ttl",
        job(),
        both(
            set_("spec.activeDeadlineSeconds", 5), set_("spec.backoffLimit", 1), set_("spec.ttlSecondsAfterFinished", 1)
        ),
    ),
    Case("completions", job(), set_("spec.completions", 5)),
    Case("completions of an indexed job", job(INDEXED), set_("spec.completions", 7)),
    Case(
        "completions and parallelism of an indexed job",
        job(INDEXED),
        both(set_("spec.completions", 7), set_("spec.parallelism", 7)),
    ),
    Case("the template", job(), set_("spec.template.spec.containers.0.image", "x")),
    Case("the node selector of a running job", job(), set_("spec.template.spec.nodeSelector", {"a": "b"})),
    Case(
        "the node selector of a suspended job",
        job({"suspend": True}),
        set_("spec.template.spec.nodeSelector", {"a": "b"}),
    ),
    Case(
        "labels of a suspended job's template",
        job({"suspend": True}),
        lambda o: o["spec"]["template"]["metadata"]["labels"].update(x="y"),
    ),
    Case(
        "affinity of a suspended job",
        job({"suspend": True}),
        set_(
            "spec.template.spec.affinity",
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
                    }
                }
            },
        ),
    ),
    Case("the image of a suspended job", job({"suspend": True}), set_("spec.template.spec.containers.0.image", "x")),
    Case("the selector", job(), set_("spec.selector", {"matchLabels": {"a": "b"}})),
    Case("the mode", job({"completions": 1}), set_("spec.completionMode", "Indexed")),
    Case("the manager", job(), set_("spec.managedBy", "a.b/c")),
    Case("a failure policy", job(), set_("spec.podFailurePolicy", {"rules": []})),
    Case("a limit per index", job(INDEXED), set_("spec.backoffLimitPerIndex", 3)),
    Case("a success policy", job(INDEXED), set_("spec.successPolicy", {"rules": [{"succeededCount": 1}]})),
    Case("the status by the main endpoint", job(), status(active=5)),
    Case("running", job(), status(active=1, ready=1, startTime=STARTED), part="status"),
    Case("more ready than active", job(), status(active=1, ready=2, startTime=STARTED), part="status"),
    Case("negative counts", job(), status(active=-1, succeeded=-1, failed=-1, ready=-1, terminating=-1), part="status"),
    Case(
        "complete",
        job(),
        status(startTime=STARTED, completionTime=ENDED, conditions=true("SuccessCriteriaMet", "Complete")),
        part="status",
    ),
    Case(
        "complete without its reason",
        job(),
        status(startTime=STARTED, completionTime=ENDED, conditions=true("Complete")),
        part="status",
    ),
    Case(
        "complete without a time",
        job(),
        status(startTime=STARTED, conditions=true("SuccessCriteriaMet", "Complete")),
        part="status",
    ),
    Case(
        "complete before it began",
        job(),
        status(startTime=ENDED, completionTime=STARTED, conditions=true("SuccessCriteriaMet", "Complete")),
        part="status",
    ),
    Case(
        "complete and active",
        job(),
        status(
            startTime=STARTED,
            completionTime=ENDED,
            active=1,
            terminating=1,
            conditions=true("SuccessCriteriaMet", "Complete"),
        ),
        part="status",
    ),
    Case(
        "complete and uncounted",
        job(),
        status(
            startTime=STARTED,
            completionTime=ENDED,
            uncountedTerminatedPods={"succeeded": ["a"], "failed": ["a", ""]},
            conditions=true("SuccessCriteriaMet", "Complete"),
        ),
        part="status",
    ),
    Case(
        "complete and failed",
        job(),
        status(
            startTime=STARTED,
            completionTime=ENDED,
            conditions=true("SuccessCriteriaMet", "Complete", "Failed", "FailureTarget"),
        ),
        part="status",
    ),
    Case("failed", job(), status(startTime=STARTED, conditions=true("FailureTarget", "Failed")), part="status"),
    Case("failed without its target", job(), status(conditions=true("Failed")), part="status"),
    Case("a completion time too early", job(), status(completionTime=ENDED), part="status"),
    Case("indexes of a job without", job(), status(completedIndexes="0", failedIndexes="0"), part="status"),
    Case(
        "indexes",
        job({**INDEXED, "backoffLimitPerIndex": 1}),
        status(completedIndexes="0,2-3", failedIndexes="1"),
        part="status",
    ),
    Case(
        "indexes that overlap",
        job({**INDEXED, "backoffLimitPerIndex": 1}),
        status(completedIndexes="0-3", failedIndexes="2"),
        part="status",
    ),
    Case(
        "indexes out of order",
        job({**INDEXED, "backoffLimitPerIndex": 1}),
        status(completedIndexes="3,1", failedIndexes="9"),
        part="status",
    ),
    Case("the spec by the status endpoint", job(), set_("spec.parallelism", 9), part="status"),
    Case("cron: another schedule", cron({"schedule": "* * * * *"}), set_("spec.schedule", "@daily")),
    Case("cron: a zone in the schedule", cron({"schedule": "* * * * *"}), set_("spec.schedule", "TZ=UTC * * * * *")),
    Case(
        "cron: another template",
        cron({"schedule": "* * * * *"}),
        set_("spec.jobTemplate.spec.template.spec.containers.0.image", "x"),
    ),
]

CASES = [Case(f"good: {name}", obj) for name, obj in GOOD.items()]
CASES += [Case(f"bad: {name}", obj) for name, obj in BAD.items()]
CASES += [Case(f"bad schedule: {text}", cron({"schedule": text})) for text in SCHEDULES]
CASES += UPDATES
