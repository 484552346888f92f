"""Invalid requests, mixed with almost valid ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from tests.support.draw import Drawn, json_values


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND"]
ROOTS = [
    *("/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/apis/fuzz.torchyard.dev/v1", "/apis/coordination.k8s.io/v1"),
    *("/apis/apiextensions.k8s.io/v1", "/apis/events.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1", "/apis"),
    *("/api", "", "/openapi/v3", "/openapi/v2", "/version", "/healthz", "/livez", "/metrics", "/apis/policy/v1"),
    *("/apis/authorization.k8s.io/v1", "/apis/metrics.k8s.io/v1beta1", "/api/v1/watch", "/apis/autoscaling/v2"),
]
# Where each resource really is, so that most requests get past routing.
HOMES = {
    "/api/v1": [
        *("pods", "configmaps", "secrets", "services", "events", "persistentvolumeclaims", "serviceaccounts"),
        *("bindings", "replicationcontrollers", "endpoints", "limitranges", "resourcequotas", "podtemplates"),
    ],
    "/apis/apps/v1": ["deployments", "statefulsets", "replicasets", "daemonsets", "controllerrevisions"],
    "/apis/batch/v1": ["jobs", "cronjobs"],
    "/apis/fuzz.torchyard.dev/v1": ["thingies"],
    "/apis/coordination.k8s.io/v1": ["leases"],
    "/apis/events.k8s.io/v1": ["events"],
    "/apis/rbac.authorization.k8s.io/v1": ["roles", "rolebindings"],
    "/apis/policy/v1": ["poddisruptionbudgets"],
    "/apis/autoscaling/v2": ["horizontalpodautoscalers"],
    "/apis/networking.k8s.io/v1": ["ingresses", "networkpolicies"],
    "/apis/discovery.k8s.io/v1": ["endpointslices"],
}
CLUSTER_WIDE = [
    *("/api/v1/namespaces", "/api/v1/nodes", "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses"),
    *("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    *("/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    *("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "/apis/authentication.k8s.io/v1/x"),
]
SUBRESOURCES = ["status", "scale", "log", "exec", "binding", "eviction", "token", "finalize", "proxy", "nothing", ""]
# The namespace is always one of these, so that nothing that other tests need is deleted.
NAMESPACES = ["fuzz", "nowhere", "", "Up Per", "%2e%2e", "fuzz%00", "x" * 300]
NAMES = ["a", "b", "..", "%2F", "a%20b", "ä", "x" * 300, "%", "%zz", "a;b", "fuzz", "system:x", "\u202e"]
QUERIES: dict[str, list[str]] = {
    "limit": ["1", "-1", "x", "99999999999999999999"],
    "continue": ["x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "%00", "=" * 50],
    "labelSelector": ["a=b", "a in (", "!", ",,,", "a in (b,c),!d", "x" * 3000, "a>1", "\u0000"],
    "fieldSelector": ["metadata.name=a", "spec.nothing=x", "=", "a=b=c", "\\", "metadata.name=a\\"],
    "resourceVersion": ["0", "1", "-1", "abc", "99999999999999999999999", "1.5"],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "Never"],
    "watch": ["true", "1", "maybe", "false"],
    "timeoutSeconds": ["1", "0", "-5", "x"],
    "sendInitialEvents": ["true", "x"],
    "allowWatchBookmarks": ["true", "7"],
    "dryRun": ["All", "None", ""],
    "fieldManager": ["me", "", "x" * 200, "\n"],
    "force": ["true", "maybe"],
    "fieldValidation": ["Strict", "Warn", "Ignore", "Loose"],
    "propagationPolicy": ["Background", "Orphan", "Foreground", "Sideways"],
    "gracePeriodSeconds": ["0", "-1", "x"],
    "pretty": ["true", "x"],
    "includeObject": ["None", "Metadata", "Object", "All"],
    "container": ["main", ""],
    "command": ["true"],
    "as": ["Table"],
}
TYPES = [
    *("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "text/plain"),
    *("application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json"),
    *("application/apply-patch+yaml", "application/json; charset=utf-16", "a/b/c", ";", "multipart/form-data", ""),
]
PATCHES = [kind_type for kind_type in TYPES if "patch" in kind_type]
ACCEPTS = [
    *("application/json", "*/*", "application/yaml", "text/html", "application/vnd.kubernetes.protobuf"),
    *("application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v9;g=meta.k8s.io"),
    *("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", ";;;", "a", "application/json;q=x", "*"),
    *("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "application/json;as=;v=;g="),
]
KEYS = [
    *("metadata", "spec", "status", "name", "labels", "containers", "template", "data", "kind", "ports", "replicas"),
    *("apiVersion", "$patch", "$setElementOrder/containers", "items", "op", "path", "value", "finalizers", "limits"),
    *("ownerReferences", "managedFields", "selector", "resources", "versions", "image", "env", "key", "operator"),
]
VALUES = json_values(KEYS)
NASTY = [
    b"",
    b"{",
    b"[" * 5000,
    b'{"a":' * 3000,
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"7",
    b'"x"',
    b"NaN",
    b'{"metadata":{"name":"\\ud800"}}',
    b'{"metadata":{"name":"a","name":"b"}}',
    b"k8s\x00",
    b"k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"k8s\x00" + b"\x12\x80\x80\x80\x80\x10",
    b"a: &a [*a, *a]\n",
    b"x: &a [1]\n" + b"".join(b"y%d: [*a,*a,*a,*a,*a]\n" % i for i in range(50)),
    b"a: &a [x,x]\n" + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 106)),
    b"!!python/object/apply:os.system ['true']\n",
    b"--- 1\n--- 2\n",
    b"\t- a",
    b'[{"op":"add","path":"/' + b"a/" * 2000 + b'","value":1}]',
    b'[{"op":"copy","from":"","path":"/metadata/annotations"}]',
]


def _object(kind: str, version: str, spec: Drawn) -> Drawn:
    named = st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b", "a", "b", "A", ""])},
        optional={"generateName": st.just("g-"), "labels": VALUES, "finalizers": st.just(["f.io/x"])},
    )
    return st.fixed_dictionaries(
        {"metadata": st.one_of(named, named, VALUES)},
        optional={
            "apiVersion": st.just(version),
            "kind": st.just(kind),
            "spec": spec,
            "status": VALUES,
            "data": VALUES,
            "rules": VALUES,
            "involvedObject": VALUES,
        },
    )


CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", ""]), "image": st.just("b")},
        optional={"env": VALUES, "ports": VALUES, "resources": VALUES},
    ),
    max_size=2,
)
POINTERS = st.sampled_from(["", "/", "/metadata/labels", "/spec", "/metadata/name", "/data/a", "/spec/x/-", "x", "/~2"])
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "test", "replace", "move", "copy", "x"]), "path": POINTERS},
        optional={"value": VALUES, "from": POINTERS},
    )
)
SPECS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"containers": st.one_of(CONTAINERS, VALUES)}, optional={"volumes": VALUES, "affinity": VALUES}
    ),
    st.fixed_dictionaries({"template": VALUES}, optional={"selector": VALUES, "replicas": VALUES}),
    st.fixed_dictionaries({"ports": VALUES}, optional={"type": VALUES, "clusterIP": VALUES}),
    st.fixed_dictionaries({"group": st.just("x.io"), "names": VALUES, "versions": VALUES, "scope": VALUES}),
)
OBJECTS = st.one_of(
    *(
        _object(kind, version, SPECS)
        for kind, version in (
            ("Pod", "v1"),
            ("ConfigMap", "v1"),
            ("Service", "v1"),
            ("Job", "batch/v1"),
            ("Deployment", "apps/v1"),
            ("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
            ("Thing", "fuzz.torchyard.dev/v1"),
            ("DeleteOptions", "v1"),
        )
    )
)


Draw = Callable[[Drawn], Any]


def _often(usual: list[str], *rest: str) -> Drawn:
    """Almost always one of the usual values."""
    return st.one_of(*[st.sampled_from(usual)] * 9, st.sampled_from([*usual, *rest]))


@st.composite
def paths(draw: Draw, method: str) -> str:
    """Usually a collection or an object that could exist, sometimes nonsense."""
    kind = draw(st.integers(0, 11))
    if kind == 0:
        nonsense = st.sampled_from(["", "/", "/nonsense", "/a/b/c/d/e", "//"])
        return f"{draw(st.sampled_from(ROOTS))}{draw(nonsense)}"
    if kind == 1 and method != "DELETE":
        at = draw(st.sampled_from(CLUSTER_WIDE))
    else:
        root = draw(st.sampled_from(sorted(HOMES)))
        # Collections over all namespaces may be read, not deleted: other tests use them.
        namespace = "fuzz" if method == "DELETE" else draw(_often(NAMESPACES[:1], *NAMESPACES))
        within = f"/namespaces/{namespace}" if namespace else ""
        at = f"{root}{within}/{draw(st.sampled_from(HOMES[root]))}"
    if method in ("PUT", "PATCH") or (method != "POST" and draw(st.booleans())):
        at += f"/{draw(_often(NAMES[:2], *NAMES))}"
        if draw(st.integers(0, 4)) == 4:
            at += f"/{draw(st.sampled_from(SUBRESOURCES))}"
    return str(at)


_SPEC: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
_TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": _SPEC}
_SELECTOR = {"matchLabels": {"a": "b"}}
# A valid object for each resource that users write; the fuzzer breaks it in one place.
GOOD: dict[str, dict[str, Any]] = {
    "pods": {"spec": {**_SPEC, "tolerations": [{"key": "k", "operator": "Exists"}]}},
    "configmaps": {"data": {"a": "b"}},
    "secrets": {"stringData": {"a": "b"}, "type": "Opaque"},
    "services": {"spec": {"ports": [{"port": 80, "targetPort": "http", "name": "x"}], "selector": {"a": "b"}}},
    "persistentvolumeclaims": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "jobs": {"spec": {"suspend": True, "template": {"spec": {**_SPEC, "restartPolicy": "Never"}}}},
    "deployments": {"spec": {"replicas": 1, "selector": _SELECTOR, "template": _TEMPLATE}},
    "statefulsets": {"spec": {"serviceName": "s", "selector": _SELECTOR, "template": _TEMPLATE}},
    "leases": {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 5}},
    "roles": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "limitranges": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    "thingies": {"spec": {"replicas": 3, "data": "x"}},
    "endpointslices": {"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": []},
}


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    inside: list[tuple[Any, Any]] = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(pairs):
        inside += [(value, key), *_places(item)]
    return inside


@st.composite
def nearly_right(draw: Draw, path: str) -> Any:
    """A valid object for the path, usually with one error in it."""
    resource = next((part for part in path.split("/") if part in GOOD), "configmaps")
    obj = json.loads(json.dumps({"metadata": {"name": draw(st.sampled_from(["a", "b"]))}, **GOOD[resource]}))
    if draw(st.integers(0, 4)) > 0:
        holder, key = draw(st.sampled_from(_places(obj)))
        if isinstance(holder, dict) and draw(st.booleans()):
            key = draw(st.sampled_from(KEYS))
        holder[key] = draw(VALUES)
    return obj


def _bodies(path: str) -> Drawn:
    written = [nearly_right(path)] * 6 + [OBJECTS, OPERATIONS]
    junk = st.builds(bytes.__add__, st.sampled_from([b"", b"k8s\x00"]), st.binary(max_size=40))
    return st.one_of(
        *(item.map(lambda value: json.dumps(value).encode()) for item in written), st.sampled_from(NASTY), junk
    )


@st.composite
def requests(draw: Draw) -> Request:
    """One request: path, query, headers and body, each usually of the right shape and never quite right."""
    method = draw(_often(METHODS[:5], *METHODS))
    path = draw(paths(method))
    names = draw(st.one_of(st.just([]), st.lists(st.sampled_from(sorted(QUERIES)), max_size=2, unique=True)))
    query = "&".join(f"{name}={draw(st.sampled_from(QUERIES[name]))}" for name in names)
    headers = {"Accept": draw(st.sampled_from(ACCEPTS))} if draw(st.integers(0, 4)) == 4 else {}
    body = None
    if method in ("POST", "PUT", "PATCH", "DELETE") and draw(st.integers(0, 19)) < 19:
        headers["Content-Type"] = draw(_often(PATCHES if method == "PATCH" else TYPES[:1], *TYPES))
        body = draw(_bodies(path))
    return Request(method, f"{path}?{query}" if query else path, headers, body)
