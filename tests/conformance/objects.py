"""Small valid objects for the conformance tests, and the paths they live at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.http import Client
from tests.support.waiting import eventually

Object = dict[str, Any]

_GROUPS = {
    "batch/v1": ("jobs", "cronjobs"),
    "apps/v1": ("deployments", "replicasets", "statefulsets", "daemonsets"),
    "coordination.k8s.io/v1": ("leases",),
    "policy/v1": ("poddisruptionbudgets",),
    "events.k8s.io/v1": ("newevents",),
    "storage.k8s.io/v1": ("storageclasses",),
    "apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "rbac.authorization.k8s.io/v1": ("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
    "scheduling.k8s.io/v1": ("priorityclasses",),
    "admissionregistration.k8s.io/v1": ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
    "authorization.k8s.io/v1": ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
    "authentication.k8s.io/v1": ("selfsubjectreviews",),
    "test.torchyard.dev/v1": ("widgets",),
}
_GROUP_OF = {plural: group for group, plurals in _GROUPS.items() for plural in plurals}


def path(resource: str, name: str = "", sub: str = "", *, namespace: str = "", group: str = "") -> str:
    """The URL path of a collection, an object or a subresource."""
    group = group or _GROUP_OF.get(resource, "v1")
    root = "/api/v1" if group == "v1" else f"/apis/{group}"
    plural = "events" if resource == "newevents" else resource
    parts = [root, *(["namespaces", namespace] if namespace else []), plural, *filter(None, (name, sub))]
    return "/".join(parts)


@dataclass(frozen=True)
class Space:
    """The namespace of one test."""

    api: Client
    name: str

    def path(self, resource: str, name: str = "", sub: str = "", *, group: str = "") -> str:
        return path(resource, name, sub, namespace=self.name, group=group)

    def make(self, resource: str, obj: Object) -> Object:
        """Create an object, which must succeed; returns the response."""
        answer = self.api.post(self.path(resource), obj)
        assert answer.status == 201, answer
        created: Object = answer.json
        return created

    def get(self, resource: str, name: str) -> Object:
        answer = self.api.get(self.path(resource, name))
        assert answer.status == 200, answer
        got: Object = answer.json
        return got

    def gone(self, resource: str, name: str) -> bool:
        return self.api.get(self.path(resource, name)).status == 404


def meta(name: str = "", **more: Any) -> Object:
    return ({"name": name} if name else {}) | more


def config_map(name: str = "", data: dict[str, str] | None = None, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, **metadata), "data": data or {"a": "1"}}


def pod(name: str = "", *, spec: Object | None = None, container: Object | None = None, **metadata: Any) -> Object:
    main = {"name": "main", "image": "busybox"} | (container or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, **metadata),
        "spec": {"containers": [main]} | (spec or {}),
    }


def job(name: str = "", *, spec: Object | None = None, **metadata: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta(name, **metadata),
        "spec": {"template": template} | (spec or {}),
    }


def deployment(name: str = "", *, spec: Object | None = None, **metadata: Any) -> Object:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta(name, **metadata),
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template} | (spec or {}),
    }


def service(name: str = "", *, spec: Object | None = None, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta(name, **metadata),
        "spec": {"ports": [{"port": 80}]} | (spec or {}),
    }


def claim(name: str = "", *, spec: Object | None = None, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta(name, **metadata),
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}} | (spec or {}),
    }


def lease(name: str, **spec: Any) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta(name), "spec": spec}


def crd(plural: str, *, version: Object | None = None, **spec: Any) -> Object:
    """A CustomResourceDefinition in the group test.torchyard.dev, namespaced, with one version v1."""
    kind = plural.removesuffix("s").capitalize()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}} | (version or {})
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.test.torchyard.dev"},
        "spec": {
            "group": "test.torchyard.dev",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [served],
        }
        | spec,
    }


def custom(kind: str, name: str = "", **content: Any) -> Object:
    metadata = content.pop("metadata", {})
    return {"apiVersion": "test.torchyard.dev/v1", "kind": kind, "metadata": meta(name) | metadata, **content}


def owner(of: Object, **more: Any) -> Object:
    """An ownerReference to an object that the server returned."""
    named = {"apiVersion": of["apiVersion"], "kind": of["kind"]}
    return named | {"name": of["metadata"]["name"], "uid": of["metadata"]["uid"]} | more


class Definitions:
    """The CustomResourceDefinitions of one test."""

    def __init__(self, api: Client) -> None:
        self.api = api
        self.names: list[str] = []

    def create(self, definition: Object) -> Object:
        """Create a definition and wait until its objects can be listed; returns it as served then."""
        answer = self.api.post(path("customresourcedefinitions"), definition)
        assert answer.status == 201, answer
        name: str = answer.json["metadata"]["name"]
        self.names.append(name)
        eventually(lambda: self.condition(name, "Established") == "True", f"{name} established")
        spec = definition["spec"]
        for version in spec["versions"]:
            if version["served"]:
                collection = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
                eventually(partial(self.served, collection), f"{collection} served")
        return self.get(name)

    def get(self, name: str) -> Object:
        crd: Object = self.api.get(path("customresourcedefinitions", name)).json
        return crd

    def condition(self, name: str, kind: str) -> str:
        conditions = self.get(name).get("status", {}).get("conditions") or []
        return next((c["status"] for c in conditions if c["type"] == kind), "")

    def served(self, collection: str) -> bool:
        return self.api.get(collection).status == 200

    def remove(self) -> None:
        """Remove all definitions, even if a failed test left objects with finalizers."""
        for name in self.names:
            self.api.delete(path("customresourcedefinitions", name))
        for name in self.names:
            eventually(partial(self._gone, name), f"removal of {name}")

    def _gone(self, name: str) -> bool:
        definition = self.api.get(path("customresourcedefinitions", name))
        if definition.status == 404:
            return True
        spec = definition.json["spec"]
        root = f"/apis/{spec['group']}/{spec['versions'][0]['name']}"
        listed = self.api.get(f"{root}/{spec['names']['plural']}")
        for item in listed.json["items"] if listed.status == 200 else ():
            within = f"/namespaces/{item['metadata']['namespace']}" if "namespace" in item["metadata"] else ""
            at = f"{root}{within}/{spec['names']['plural']}/{item['metadata']['name']}"
            self.api.patch(at, {"metadata": {"finalizers": None}})
        return False
