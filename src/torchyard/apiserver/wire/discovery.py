"""Discovery: the served groups, versions and resources, in the aggregated format and in the older ones.

Pure functions from resources to documents. Built-in groups come first, in the server's order of preference; the groups
of custom resources follow by name, with their most stable versions first.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal

from torchyard.api.group_version import GroupVersionKind
from torchyard.api.resources import Resource, Subresource

Document = dict[str, Any]
AggregatedVersion = Literal["v2", "v2beta1"]
# Of an extension API server: group, version, entries of its APIResourceList, whether they are current.
AggregatedApi = tuple[str, str, list[Document], bool]

# On a cluster an extension API server serves these, so they come last.
_LAST_GROUPS = ("metrics.k8s.io", "visibility.kueue.x-k8s.io")


def content_type(version: AggregatedVersion) -> str:
    return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


@lru_cache(maxsize=64)
def accepted(accept: str) -> AggregatedVersion | None:
    """The aggregated version that a client prefers to the older formats. kubectl 1.27 to 1.29 know only v2beta1."""
    for clause in accept.split(","):
        media, *fields = (part.strip() for part in clause.split(";"))
        parameters = dict(parameter.partition("=")[::2] for parameter in fields)
        if media in ("application/json", "*/*", "application/*") and "as" not in parameters:
            return None
        if media == "application/json" and parameters.get("g") == "apidiscovery.k8s.io":
            if parameters.get("v") == "v2":
                return "v2"
            if parameters.get("v") == "v2beta1":
                return "v2beta1"
    return None


def etag(body: bytes) -> str:
    return f'"{hashlib.sha512(body).hexdigest().upper()}"'


def aggregated(resources: Iterable[Resource], *, core: bool, version: AggregatedVersion = "v2") -> Document:
    """All resources in one document: of the core group for /api, of the other groups for /apis."""
    items = []
    for group, versions in _groups(resources):
        if (group == "") is not core:
            continue
        items.append(
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {
                        "version": name,
                        "resources": [_aggregated(resource) for resource in served],
                        "freshness": "Current",
                    }
                    for name, served in versions
                ],
            }
        )
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def api_versions(address: str) -> Document:
    """/api"""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def api_groups(resources: Iterable[Resource]) -> Document:
    """/apis"""
    groups = [_group(group, [name for name, _ in versions]) for group, versions in _groups(resources) if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(resources: Iterable[Resource], group: str) -> Document | None:
    """/apis/<group>; None if nothing is served there."""
    for name, versions in _groups(resources):
        if name == group and group:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, [version for version, _ in versions])}
    return None


def api_resources(resources: Iterable[Resource], group: str, version: str) -> Document | None:
    """/api/v1 and /apis/<group>/<version>; None if nothing is served there."""
    served = [resource for resource in resources if resource.group == group and resource.version == version]
    if not served:
        return None
    listed = [entry for resource in sorted(served, key=_by_name) for entry in _resource_entries(resource)]
    if not group:
        return {"kind": "APIResourceList", "groupVersion": version, "resources": listed}
    named = f"{group}/{version}"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": named, "resources": listed}


def add_aggregated(document: Document, served: Iterable[AggregatedApi]) -> Document:
    """The aggregated document with the groups of extension API servers, whose versions replace those of this server."""
    items = {item["metadata"].get("name", ""): dict(item) for item in document["items"]}
    for group, version, entries, is_current in served:
        item = items.setdefault(group, {"metadata": {"name": group}, "versions": []})
        others = [each for each in item["versions"] if each["version"] != version]
        freshness = "Current" if is_current else "Stale"
        own = {"version": version, "resources": _aggregated_entries(entries), "freshness": freshness}
        item["versions"] = [*others, own]
    return {**document, "items": list(items.values())}


def add_groups(document: Document, served: Iterable[AggregatedApi]) -> Document:
    """The list of groups with those of extension API servers."""
    groups = {group["name"]: dict(group) for group in document["groups"]}
    for group, version, _, _ in served:
        known = groups.get(group)
        names = [each["version"] for each in known["versions"]] if known else []
        groups[group] = _group(group, names if version in names else [*names, version])
    return {**document, "groups": list(groups.values())}


def add_group(document: Document | None, group: str, served: Iterable[AggregatedApi]) -> Document | None:
    """The document of one group with its versions of extension API servers; None if nobody serves the group."""
    own = [api for api in served if api[0] == group]
    if not own:
        return document
    groups = add_groups({"groups": [document] if document is not None else []}, own)["groups"]
    return {"kind": "APIGroup", "apiVersion": "v1", **groups[0]}


def _aggregated_entries(entries: Iterable[Document]) -> list[Document]:
    """Entries of an APIResourceList in the aggregated format."""
    resources: dict[str, Document] = {}
    for entry in entries:
        plural, _, subresource = str(entry["name"]).partition("/")
        kind = {
            "group": entry.get("group") or "",
            "version": entry.get("version") or "",
            "kind": entry.get("kind") or "",
        }
        verbs = list(entry.get("verbs") or ())
        if subresource:
            own = {"subresource": subresource, "responseKind": kind, "verbs": verbs}
            resources.setdefault(plural, {"resource": plural}).setdefault("subresources", []).append(own)
            continue
        resource: Document = {
            "resource": plural,
            "responseKind": kind,
            "scope": "Namespaced" if entry.get("namespaced") else "Cluster",
            "singularResource": entry.get("singularName") or "",
            "verbs": verbs,
        }
        for name in ("shortNames", "categories"):
            if entry.get(name):
                resource[name] = list(entry[name])
        resources[plural] = {**resource, **{k: v for k, v in resources.get(plural, {}).items() if k == "subresources"}}
    return list(resources.values())


def _groups(resources: Iterable[Resource]) -> list[tuple[str, list[tuple[str, list[Resource]]]]]:
    """Groups, their versions and their resources, in the order of the documents."""
    by_group: dict[str, dict[str, list[Resource]]] = {}
    custom: set[str] = set()
    for resource in resources:
        if resource.group not in by_group and resource.custom is not None:
            custom.add(resource.group)
        by_group.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    builtin = [group for group in by_group if group not in custom and group not in _LAST_GROUPS]
    last = [group for group in _LAST_GROUPS if group in by_group and group not in custom]
    ordered = []
    for group in (*builtin, *sorted(custom), *last):
        versions = sorted(by_group[group].items(), key=lambda item: stability(item[0]), reverse=True)
        ordered.append((group, [(version, sorted(served, key=_by_name)) for version, served in versions]))
    return ordered


def _by_name(resource: Resource) -> str:
    return resource.plural


_kube_version = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?").fullmatch


def stability(version: str) -> tuple[int, int, int, list[int]]:
    """The sort key of versions, greatest first: v10, v2, v1, v1beta2, v1beta1, v1alpha1, then others by name."""
    parts = _kube_version(version)
    if parts is None:
        return (-1, 0, 0, [-ord(letter) for letter in version])
    major, stage, minor = parts.groups()
    return ({None: 2, "beta": 1, "alpha": 0}[stage], int(major), int(minor or 0), [])


def _group(group: str, versions: list[str]) -> Document:
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": named, "preferredVersion": named[0]}


def _aggregated(resource: Resource) -> Document:
    entry: Document = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource, resource.gvk),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": sub.name, "responseKind": _response_kind(resource, sub.gvk), "verbs": list(sub.verbs)}
            for sub in resource.subresources.values()
        ]
    return entry


def _response_kind(resource: Resource, gvk: GroupVersionKind) -> Document:
    # as upstream: empty for a built-in kind in the resource's own version
    if resource.custom is None and (gvk.group, gvk.version) == (resource.group, resource.version):
        return {"group": "", "version": "", "kind": gvk.kind}
    return {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}


def _resource_entries(resource: Resource) -> Iterator[Document]:
    entry: Document = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if "watch" in resource.verbs:
        entry["storageVersionHash"] = _storage_hash(resource)
    yield entry
    for sub in resource.subresources.values():
        yield _subresource_entry(resource, sub)


def _subresource_entry(resource: Resource, sub: Subresource) -> Document:
    entry: Document = {"name": f"{resource.plural}/{sub.name}", "singularName": "", "namespaced": resource.namespaced}
    if (sub.gvk.group, sub.gvk.version) != (resource.group, resource.version):
        entry |= {"group": sub.gvk.group, "version": sub.gvk.version}
    return {**entry, "kind": sub.gvk.kind, "verbs": list(sub.verbs)}


def _storage_hash(resource: Resource) -> str:
    """Changes with the storage version; migration tools compare it."""
    group = resource.group if resource.storage_group is None else resource.storage_group
    storage = f"{group}/{resource.storage_version or resource.version}/{resource.kind}"
    return b64encode(hashlib.sha256(storage.encode()).digest()[:8]).decode()
