"""The kinds that the comparisons with a real server write to, and how to make objects and changes of them.

Objects say explicitly what defaulting would fill in, so that a difference can only come from patching or applying.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from torchyard.api.builtins import builtin_resources
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.apiserver.crd.resource import resources_of

Made = st.SearchStrategy[Any]

NAMES = ("a", "b", "c")


def builtin(group: str, version: str, plural: str) -> Resource:
    return next(
        resource
        for resource in builtin_resources()
        if (resource.group, resource.version, resource.plural) == (group, version, plural)
    )


POD = builtin("", "v1", "pods")
CONFIG_MAP = builtin("", "v1", "configmaps")
NODE = builtin("", "v1", "nodes")
DEPLOYMENT = builtin("apps", "v1", "deployments")

_LEAF: Object = {"type": "string"}
WIDGET_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.torchyard.test"},
    "spec": {
        "group": "torchyard.test",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer"},
                                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                    "anything": {"x-kubernetes-preserve-unknown-fields": True},
                                    "port": {"x-kubernetes-int-or-string": True},
                                    "maybe": {"type": "string", "nullable": True},
                                    "texts": {"type": "object", "additionalProperties": _LEAF},
                                    "whole": {
                                        "type": "object",
                                        "x-kubernetes-map-type": "atomic",
                                        "additionalProperties": _LEAF,
                                    },
                                    "parts": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name", "side"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": _LEAF,
                                                "side": {"type": "string", "default": "left"},
                                                "colour": _LEAF,
                                                "tags": {
                                                    "type": "array",
                                                    "x-kubernetes-list-type": "set",
                                                    "items": _LEAF,
                                                },
                                            },
                                        },
                                    },
                                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": _LEAF},
                                    "steps": {
                                        "type": "array",
                                        "items": {"type": "object", "properties": {"run": _LEAF}},
                                    },
                                    "template": {
                                        "type": "object",
                                        "x-kubernetes-embedded-resource": True,
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": _LEAF,
                                    "ready": {"type": "integer", "minimum": 0},
                                    "about": {
                                        "type": "object",
                                        "properties": {"texts": {"type": "object", "additionalProperties": _LEAF}},
                                    },
                                    "conditions": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["type"],
                                        "items": {
                                            "type": "object",
                                            "required": ["type"],
                                            "properties": {
                                                "type": _LEAF,
                                                "status": {"type": "string", "enum": ["x", "y"]},
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}
_ESTABLISHED = [{"type": "Established", "status": "True"}]
WIDGET = resources_of(
    {**WIDGET_CRD, "status": {"acceptedNames": WIDGET_CRD["spec"]["names"], "conditions": _ESTABLISHED}}
)[0]


def path(resource: Resource, name: str = "", subresource: str = "") -> str:
    prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    space = "/namespaces/default" if resource.namespaced else ""
    tail = "".join(f"/{step}" for step in (name, subresource) if step)
    return f"{prefix}{space}/{resource.plural}{tail}"


def some(**fields: Made) -> Made:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def each_of(names: Any, make: Callable[[Any], Made]) -> Made:
    """A list of items with distinct names, in any order."""
    chosen = st.lists(st.sampled_from(names), unique=True, max_size=3)
    return chosen.flatmap(lambda order: st.tuples(*map(make, order)).map(list))


words = st.sampled_from(["x", "y", "z"])
texts = st.dictionaries(st.sampled_from(NAMES), words, max_size=3)
subsets = st.lists(st.sampled_from(NAMES), unique=True, max_size=3)
metadata = some(
    labels=texts, annotations=texts, finalizers=subsets.map(lambda names: [f"t.t/{name}" for name in names])
)


def container(name: str) -> Made:
    return st.fixed_dictionaries(
        {"name": st.just(name), "image": st.sampled_from(["x:1", "x:2"])},
        optional={
            "args": st.lists(words, max_size=2),
            "env": each_of(NAMES, lambda name: st.builds(lambda value: {"name": name, "value": value}, words)),
            "ports": each_of(
                [(80, "TCP"), (80, "UDP"), (81, "TCP")],
                lambda port: some(name=st.just(f"p{port[0]}{port[1].lower()}")).map(
                    lambda more: {"containerPort": port[0], "protocol": port[1], **more}
                ),
            ),
            "resources": some(limits=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2"]))),
            "workingDir": words,
        },
    )


def pod_template() -> Made:
    spec = st.fixed_dictionaries(
        {"containers": each_of(NAMES, container)},
        optional={
            "nodeSelector": texts,
            "volumes": each_of(NAMES, lambda name: st.just({"name": name, "emptyDir": {}})),
            "terminationGracePeriodSeconds": st.sampled_from([1, 30]),
        },
    )
    labels = texts.map(lambda more: {**more, "app": "x"})
    return st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"labels": labels}), "spec": spec})


_rolling = some(maxSurge=st.sampled_from([1, "25%"]), maxUnavailable=st.sampled_from([2, "25%"]))
_contents: dict[Resource, dict[str, Made]] = {
    CONFIG_MAP: {"data": texts, "immutable": st.just(False)},
    NODE: {"spec": some(unschedulable=st.booleans(), providerID=st.just("x://y"))},
    DEPLOYMENT: {
        "spec": some(
            replicas=st.integers(0, 3),
            paused=st.booleans(),
            minReadySeconds=st.integers(0, 2),
            strategy=st.builds(lambda how: {"type": "RollingUpdate", "rollingUpdate": how}, _rolling),
            template=pod_template(),
        )
    },
    WIDGET: {
        "spec": some(
            size=st.integers(0, 3),
            free=st.dictionaries(
                st.sampled_from(NAMES), st.one_of(words, texts, st.lists(words, max_size=2), st.none()), max_size=3
            ),
            anything=st.one_of(words, texts, st.lists(words, max_size=2)),
            port=st.one_of(words, st.integers(0, 2)),
            maybe=st.one_of(words, st.none()),
            texts=texts,
            whole=texts,
            parts=each_of(
                [("a", None), ("a", "left"), ("a", "right"), ("b", None)],
                lambda item: some(colour=words, tags=subsets).map(
                    lambda more: {"name": item[0], **({"side": item[1]} if item[1] else {}), **more}
                ),
            ),
            tags=subsets,
            steps=st.lists(some(run=words), max_size=2),
            template=texts.map(
                lambda some_texts: {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"labels": some_texts},
                    "spec": {"x": some_texts},
                }
            ),
        )
    },
}
_statuses: dict[Resource, Made] = {
    NODE: some(
        addresses=each_of(NAMES, lambda name: st.builds(lambda word: {"type": name, "address": word}, words)),
        conditions=each_of(
            NAMES,
            lambda name: st.builds(
                lambda status: {"type": name, "status": status, "lastHeartbeatTime": None, "lastTransitionTime": None},
                st.sampled_from(["True", "False"]),
            ),
        ),
    ),
    DEPLOYMENT: some(replicas=st.integers(0, 2), observedGeneration=st.integers(0, 2)),
    # one in three conditions is refused, and a negative number is
    WIDGET: some(
        phase=words,
        ready=st.integers(-1, 2),
        about=some(texts=texts),
        conditions=each_of(NAMES, lambda name: st.builds(lambda word: {"type": name, "status": word}, words)),
    ),
}
KINDS = tuple(_contents)
WITH_STATUS = tuple(_statuses)


def contents(resource: Resource, subresource: str = "") -> Made:
    """Parts of an object of the kind, for an apply or a merge patch."""
    fields = {"metadata": metadata, **_contents[resource]}
    if subresource:
        fields["status"] = _statuses[resource]
    return some(**fields)


def whole(resource: Resource) -> Made:
    """An object of the kind that can be created."""
    return contents(resource).map(lambda created: completed(resource, created))


def completed(resource: Resource, contents: Object) -> Object:
    """The object with everything that the kind requires."""
    result = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, **contents}
    if resource is NODE:
        # Admission would add it.
        result["spec"] = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]} | contents.get(
            "spec", {}
        )
    if resource is DEPLOYMENT:
        spec = result["spec"] = {"selector": {"matchLabels": {"app": "x"}}, **result.get("spec", {})}
        template = spec.setdefault("template", {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}})
        if not template["spec"]["containers"]:
            template["spec"]["containers"] = [{"name": "a", "image": "x:1"}]
    return result


def settled(resource: Resource, obj: Object) -> Object:
    """The object with the defaults of the few fields used here, in place."""
    resource.strategy.default(obj)
    if resource.custom is not None:
        resource.custom.prune(obj)
        resource.custom.default(obj)
    if resource is DEPLOYMENT and "containers" in obj["spec"].get("template", {}).get("spec", {}):
        _settle_deployment(obj["spec"])
    return obj


def _settle_deployment(spec: Object) -> None:
    for name, value in (("replicas", 1), ("revisionHistoryLimit", 10), ("progressDeadlineSeconds", 600)):
        spec.setdefault(name, value)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    pod = spec["template"]["spec"]
    for name, default in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        pod.setdefault(name, default)
    pod.setdefault("securityContext", {})
    for container in pod["containers"]:
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("resources", {})
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
