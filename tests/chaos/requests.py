"""Requests nobody in their right mind would send, mixed with ones that are nearly right."""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

from tests.support import draw as st
from tests.support.draw import Draw, json_values


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
# Where each resource really lives, so that most requests get past the first door.
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
# Nothing here may delete what the other tests of the session need, so the namespace is always one of these.
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
PATCHES = [one for one in TYPES if "patch" in one]
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


def _object(kind: str, version: str, spec: Draw) -> Draw:
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


def paths(rng: Random, method: str) -> str:
    """Usually a collection or an object that could exist, now and then nonsense."""
    kind = rng.randrange(12)
    if kind == 0:
        return rng.choice(ROOTS) + rng.choice(["", "/", "/nonsense", "/a/b/c/d/e", "//"])
    if kind == 1 and method != "DELETE":
        at = rng.choice(CLUSTER_WIDE)
    else:
        root = rng.choice(sorted(HOMES))
        # Collections over all namespaces may be read, not emptied: others live here too.
        namespace = "fuzz" if method == "DELETE" else rng.choice(NAMESPACES[:1] * 40 + NAMESPACES)
        within = f"/namespaces/{namespace}" if namespace else ""
        at = f"{root}{within}/{rng.choice(HOMES[root])}"
    if method in ("PUT", "PATCH") or (method != "POST" and rng.random() < 0.6):
        at += f"/{rng.choice(NAMES[:2] * 40 + NAMES)}"
        if rng.randrange(5) == 0:
            at += f"/{rng.choice(SUBRESOURCES)}"
    return at


_SPEC: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
_TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": _SPEC}
_SELECTOR = {"matchLabels": {"a": "b"}}
# A good object for each of the resources people write; the fuzzer breaks it in one place.
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
    for key, one in list(pairs):
        inside += [(value, key), *_places(one)]
    return inside


def nearly_right(rng: Random, path: str) -> bytes:
    """A good object for the path, usually with one thing wrong in it."""
    resource = next((part for part in path.split("/") if part in GOOD), "configmaps")
    obj = json.loads(json.dumps({"metadata": {"name": rng.choice(["a", "b"])}, **GOOD[resource]}))
    if rng.randrange(5) > 0:
        holder, key = rng.choice(_places(obj))
        if isinstance(holder, list) or rng.random() < 0.5:
            holder[key] = VALUES(rng)
        else:
            holder[rng.choice(KEYS)] = VALUES(rng)
    return json.dumps(obj).encode()


def bodies(rng: Random, path: str) -> bytes:
    kind = rng.randrange(10)
    if kind < 6:
        return nearly_right(rng, path)
    if kind < 8:
        return json.dumps(rng.choice((OBJECTS, OPERATIONS, VALUES))(rng)).encode()
    drawn: bytes = rng.choice(NASTY) if kind == 8 else rng.choice((b"", b"k8s\x00")) + st.junk()(rng)
    return drawn


def request(rng: Random) -> Request:
    """One request: a path, a query, headers and a body, each usually of the right shape and never quite right."""
    method = rng.choice(METHODS[:5] * 10 + METHODS)
    path = paths(rng, method)
    names = rng.sample(sorted(QUERIES), rng.choice((0, 0, 1, 2)))
    if names:
        path += "?" + "&".join(f"{name}={rng.choice(QUERIES[name])}" for name in names)
    headers = {"Accept": rng.choice(ACCEPTS)} if rng.randrange(5) == 0 else {}
    body = None
    if method in ("POST", "PUT", "PATCH", "DELETE") and rng.randrange(20) > 0:
        usual = PATCHES if method == "PATCH" else TYPES[:1]
        headers["Content-Type"] = rng.choice(usual * (80 // len(usual)) + TYPES)
        body = bodies(rng, path)
    return Request(method, path, headers, body)
