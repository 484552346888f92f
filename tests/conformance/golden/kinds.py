"""Generated objects of the kinds people write, by the plural they are posted to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from tests.conformance.golden.draw import labels, metadata, quantities
from tests.conformance.golden.pods import pod_spec
from tests.support.draw import Drawn, mostly, optional

SELECTOR = {"matchLabels": {"app": "web"}}


def template(of: str) -> Drawn:
    return st.fixed_dictionaries({"metadata": st.just({"labels": {"app": "web"}}), "spec": pod_spec(template_of=of)})


def jobs() -> Drawn:
    return optional(
        {"template": template("job")},
        parallelism=mostly(st.sampled_from([0, 3]), [-1, "3"]),
        completions=mostly(st.sampled_from([1, 4]), [-1]),
        backoffLimit=mostly(st.just(0), [-1]),
        completionMode=mostly(st.sampled_from(["Indexed", "NonIndexed"]), ["Other"]),
        suspend=st.booleans(),
        activeDeadlineSeconds=mostly(st.just(9), [-1]),
        ttlSecondsAfterFinished=mostly(st.just(0), [-2]),
        podReplacementPolicy=mostly(st.just("Failed"), ["Soon"]),
        selector=st.just(SELECTOR),
        podFailurePolicy=st.sampled_from(
            [
                {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]},
                {"rules": [{"action": "Explode"}]},
                {"rules": []},
            ]
        ),
    )


def cron_jobs() -> Drawn:
    return optional(
        {
            "schedule": mostly(st.sampled_from(["*/5 * * * *", "@daily"]), ["whenever", "", "61 * * * *"]),
            "jobTemplate": st.fixed_dictionaries({"spec": jobs()}),
        },
        concurrencyPolicy=mostly(st.just("Forbid"), ["Often"]),
        timeZone=mostly(st.just("Etc/UTC"), ["Nowhere/City"]),
        startingDeadlineSeconds=mostly(st.just(5), [-1]),
        suspend=st.booleans(),
    )


def deployments() -> Drawn:
    limit = mostly(st.sampled_from([1, "25%", "0%"]), [-1, "x%", "200%"])
    strategy = st.one_of(
        st.just({"type": "Recreate"}),
        st.fixed_dictionaries(
            {"type": st.just("RollingUpdate"), "rollingUpdate": optional(maxSurge=limit, maxUnavailable=limit)}
        ),
        st.just({"type": "Magic"}),
    )
    return optional(
        {
            "selector": mostly(st.just(SELECTOR), [{"matchLabels": {"app": "other"}}, {}]),
            "template": template("deployment"),
        },
        replicas=mostly(st.sampled_from([0, 3]), [-1]),
        strategy=strategy,
        minReadySeconds=mostly(st.just(3), [-3]),
        revisionHistoryLimit=mostly(st.just(0), [-1]),
        paused=st.booleans(),
        progressDeadlineSeconds=mostly(st.just(60), [0]),
    )


def replica_sets() -> Drawn:
    return optional(
        {"selector": st.just(SELECTOR), "template": template("deployment")}, replicas=mostly(st.just(2), [-2])
    )


def stateful_sets() -> Drawn:
    return optional(
        {"selector": st.just(SELECTOR), "template": template("deployment"), "serviceName": st.just("s")},
        replicas=mostly(st.just(2), [-2]),
        podManagementPolicy=mostly(st.just("Parallel"), ["Any"]),
        volumeClaimTemplates=st.fixed_dictionaries({"metadata": st.just({"name": "v"}), "spec": claims()}).map(
            lambda target: [target]
        ),
    )


def daemon_sets() -> Drawn:
    return optional(
        {"selector": st.just(SELECTOR), "template": template("deployment")}, minReadySeconds=mostly(st.just(2), [-2])
    )


def services() -> Drawn:
    port = optional(
        {"port": mostly(st.sampled_from([80, 443]), [0, 99999])},
        name=mostly(st.sampled_from(["http", "x"]), ["Up", "a.b"]),
        targetPort=mostly(st.sampled_from([8080, "http"]), [0, "a b"]),
        protocol=mostly(st.sampled_from(["TCP", "UDP"]), ["X"]),
        appProtocol=st.just("http"),
    )
    return optional(
        {"ports": st.lists(port, max_size=2)},
        selector=labels(),
        type=mostly(st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]), ["Odd"]),
        clusterIP=mostly(st.just("None"), ["1.2.3", "192.0.2.7"]),
        sessionAffinity=mostly(st.just("ClientIP"), ["Cookie"]),
        externalName=mostly(st.just("example.com"), ["not a name"]),
        publishNotReadyAddresses=st.booleans(),
        externalIPs=mostly(st.just(["192.0.2.1"]), [["300.1.1.1"]]),
        internalTrafficPolicy=mostly(st.just("Local"), ["Far"]),
        ipFamilyPolicy=mostly(st.just("SingleStack"), ["Many"]),
    )


def claims() -> Drawn:
    return optional(
        {
            "accessModes": mostly(st.sampled_from([["ReadWriteOnce"], ["ReadOnlyMany", "ReadWriteMany"]]), [[], ["X"]]),
            "resources": st.fixed_dictionaries(
                {"requests": st.fixed_dictionaries({"storage": mostly(st.just("1Gi"), ["0", "-1", "much"])})}
            ),
        },
        storageClassName=mostly(st.sampled_from(["", "fast"]), ["Not Ok"]),
        volumeMode=mostly(st.sampled_from(["Block", "Filesystem"]), ["Tape"]),
        volumeName=st.just("pv"),
        selector=st.just(SELECTOR),
        dataSource=st.sampled_from([{"kind": "PersistentVolumeClaim", "name": "o"}, {"kind": "Odd", "name": "o"}]),
    )


def config_maps() -> Drawn:
    key = mostly(st.sampled_from(["a", "b.c"]), ["a b", "..", ""])
    return optional(
        data=st.dictionaries(key, mostly(st.just("1"), [1, None]), max_size=2),
        binaryData=st.dictionaries(key, mostly(st.just("YQ=="), ["***"]), max_size=1),
        immutable=st.booleans(),
    )


def secrets() -> Drawn:
    return optional(
        data=st.dictionaries(mostly(st.just("a"), ["a b"]), mostly(st.just("YQ=="), ["***"]), max_size=1),
        stringData=st.dictionaries(st.just("s"), st.just("text"), max_size=1),
        type=st.sampled_from(["Opaque", "kubernetes.io/tls", "kubernetes.io/dockerconfigjson", "mine"]),
        immutable=st.booleans(),
    )


def leases() -> Drawn:
    moment = mostly(st.just("2026-01-01T00:00:00.000000Z"), ["yesterday"])
    return optional(
        holderIdentity=st.sampled_from(["me", ""]),
        leaseDurationSeconds=mostly(st.just(15), [0, -1]),
        leaseTransitions=mostly(st.just(1), [-1]),
        renewTime=moment,
        acquireTime=moment,
    )


def budgets() -> Drawn:
    amount = mostly(st.sampled_from([1, "50%"]), [-1, "half"])
    return optional({"selector": st.just(SELECTOR)}, minAvailable=amount, maxUnavailable=amount)


def quotas() -> Drawn:
    hard = st.dictionaries(mostly(st.sampled_from(["pods", "requests.cpu", "count/jobs.batch"]), ["a b"]), quantities())
    return optional({"hard": hard}, scopes=mostly(st.just(["BestEffort"]), [["Odd"]]))


def limit_ranges() -> Drawn:
    amounts = optional(cpu=quantities(), memory=quantities())
    limit = optional(
        {"type": mostly(st.sampled_from(["Container", "Pod"]), ["Thing"])},
        max=amounts,
        min=amounts,
        default=amounts,
        defaultRequest=amounts,
    )
    return st.fixed_dictionaries({"limits": st.lists(limit, max_size=1)})


def roles() -> Drawn:
    rule = optional(
        {"verbs": mostly(st.just(["get"]), [[]]), "resources": mostly(st.just(["pods"]), [[]])},
        apiGroups=st.just([""]),
        nonResourceURLs=st.just(["/x"]),
    )
    return st.fixed_dictionaries({"rules": st.lists(rule, max_size=1)})


def widgets() -> Drawn:
    """Objects of the CustomResourceDefinition WIDGET."""
    return optional(
        {"size": mostly(st.sampled_from([1, 9]), [0, 10, "1", 1.5])},
        color=mostly(st.sampled_from(["red", "blue"]), ["green", 7]),
        words=mostly(st.sampled_from([["a"], []]), [["a", "a"], ["UP"], "a"]),
        parts=st.lists(
            optional({"id": mostly(st.sampled_from(["a", "b"]), [3])}, weight=mostly(st.just(2), ["2"])), max_size=2
        ),
        port=mostly(st.sampled_from([80, "http"]), [True, 1.5]),
        free=st.sampled_from([{"any": {"thing": [1, "x"]}}, {}]),
        note=st.sampled_from([None, "x"]),
        unknown=st.just("pruned"),
        bounds=st.sampled_from([{"low": 1, "high": 2}, {"low": 3, "high": 2}, {"low": 1}]),
    )


WIDGET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "words": {
                    "type": "array",
                    "items": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 5},
                    "maxItems": 3,
                    "x-kubernetes-list-type": "set",
                },
                "parts": {
                    "type": "array",
                    "maxItems": 4,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "properties": {"id": {"type": "string"}, "weight": {"type": "integer", "default": 1}},
                    },
                },
                "port": {"x-kubernetes-int-or-string": True},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "note": {"type": "string", "nullable": True},
                "bounds": {
                    "type": "object",
                    "properties": {"low": {"type": "integer"}, "high": {"type": "integer", "default": 5}},
                    "x-kubernetes-validations": [{"rule": "self.low <= self.high", "message": "low is above high"}],
                },
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
WIDGET_DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.golden.torchyard.dev"},
    "spec": {
        "group": "golden.torchyard.dev",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
            }
        ],
    },
}

# plural → (apiVersion, kind, the spec's generator, or the generator of the top-level fields)
SPECS: dict[str, tuple[str, str, Drawn]] = {
    "pods": ("v1", "Pod", pod_spec()),
    "jobs": ("batch/v1", "Job", jobs()),
    "cronjobs": ("batch/v1", "CronJob", cron_jobs()),
    "deployments": ("apps/v1", "Deployment", deployments()),
    "replicasets": ("apps/v1", "ReplicaSet", replica_sets()),
    "statefulsets": ("apps/v1", "StatefulSet", stateful_sets()),
    "daemonsets": ("apps/v1", "DaemonSet", daemon_sets()),
    "services": ("v1", "Service", services()),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim", claims()),
    "leases": ("coordination.k8s.io/v1", "Lease", leases()),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget", budgets()),
    "resourcequotas": ("v1", "ResourceQuota", quotas()),
    "limitranges": ("v1", "LimitRange", limit_ranges()),
    "widgets": ("golden.torchyard.dev/v1", "Widget", widgets()),
}
PLAIN: dict[str, tuple[str, str, Drawn]] = {
    "configmaps": ("v1", "ConfigMap", config_maps()),
    "secrets": ("v1", "Secret", secrets()),
    "roles": ("rbac.authorization.k8s.io/v1", "Role", roles()),
}
# How often each is drawn: what users write most is tried most.
WEIGHTS = {"pods": 6, "jobs": 4, "services": 3, "persistentvolumeclaims": 2, "deployments": 2, "widgets": 4}


@st.composite
def objects(draw: Callable[[Drawn], Any]) -> tuple[str, dict[str, Any]]:
    """(plural, an object without a name)."""
    plural = draw(st.sampled_from([plural for plural in (*SPECS, *PLAIN) for _ in range(WEIGHTS.get(plural, 1))]))
    version, kind, content = (SPECS | PLAIN)[plural]
    obj: dict[str, Any] = {"apiVersion": version, "kind": kind, "metadata": draw(metadata())}
    drawn = draw(content)
    return plural, obj | ({"spec": drawn} if plural in SPECS else drawn)
