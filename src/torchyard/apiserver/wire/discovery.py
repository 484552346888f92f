"""Discovery: which groups, versions and resources are served, in the aggregated form and in the older ones.

Pure functions from resources to documents. Built-in resources come in the order of the server's preference and keep
it; the groups of custom resources follow by name, and their versions with the most stable first.
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
Aggregated = Literal["v2", "v2beta1"]

# Served by an extension, which a cluster lists behind everything else.
_LAST_GROUPS = ("metrics.k8s.io", "visibility.kueue.x-k8s.io")


def content_type(version: Aggregated) -> str:
    return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


@lru_cache(maxsize=64)
def accepted(accept: str) -> Aggregated | None:
    """The aggregated form a client would rather have than the old one. kubectl 1.27 to 1.29 know only v2beta1."""
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media in ("application/json", "*/*", "application/*") and "as" not in wanted:
            return None
        if media == "application/json" and wanted.get("g") == "apidiscovery.k8s.io":
            if wanted.get("v") == "v2":
                return "v2"
            if wanted.get("v") == "v2beta1":
                return "v2beta1"
    return None


def etag(body: bytes) -> str:
    return f'"{hashlib.sha512(body).hexdigest().upper()}"'


def aggregated(resources: Iterable[Resource], *, core: bool, version: Aggregated = "v2") -> Document:
    """Everything in one document: of the core group for /api, of the named groups for /apis."""
    items = []
    for group, versions in _groups(resources):
        if (group == "") is not core:
            continue
        items.append(
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {"version": name, "resources": [_aggregated(one) for one in served], "freshness": "Current"}
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
    served = [one for one in resources if one.group == group and one.version == version]
    if not served:
        return None
    listed = [entry for one in sorted(served, key=_by_name) for entry in _listed(one)]
    if not group:
        return {"kind": "APIResourceList", "groupVersion": version, "resources": listed}
    named = f"{group}/{version}"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": named, "resources": listed}


def _groups(resources: Iterable[Resource]) -> list[tuple[str, list[tuple[str, list[Resource]]]]]:
    """Groups with their versions with their resources, all in the order in which they are shown."""
    found: dict[str, dict[str, list[Resource]]] = {}
    custom: set[str] = set()
    for one in resources:
        if one.group not in found and one.custom is not None:
            custom.add(one.group)
        found.setdefault(one.group, {}).setdefault(one.version, []).append(one)
    builtin = [group for group in found if group not in custom and group not in _LAST_GROUPS]
    last = [group for group in _LAST_GROUPS if group in found and group not in custom]
    ordered = []
    for group in (*builtin, *sorted(custom), *last):
        versions = sorted(found[group].items(), key=lambda item: stability(item[0]), reverse=True)
        ordered.append((group, [(version, sorted(served, key=_by_name)) for version, served in versions]))
    return ordered


def _by_name(resource: Resource) -> str:
    return resource.plural


_kube_version = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?").fullmatch


def stability(version: str) -> tuple[int, int, int, list[int]]:
    """What versions are sorted by, greatest first: v10, v2, v1, v1beta2, v1beta1, v1alpha1, and then others by name."""
    parts = _kube_version(version)
    if parts is None:
        return (-1, 0, 0, [-ord(letter) for letter in version])
    major, stage, minor = parts.groups()
    return ({None: 2, "beta": 1, "alpha": 0}[stage], int(major), int(minor or 0), [])


def _group(group: str, versions: list[str]) -> Document:
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": named, "preferredVersion": named[0]}


def _aggregated(one: Resource) -> Document:
    entry: Document = {
        "resource": one.plural,
        "responseKind": _response_kind(one, one.gvk),
        "scope": "Namespaced" if one.namespaced else "Cluster",
        "singularResource": one.singular,
        "verbs": list(one.verbs),
    }
    if one.short_names:
        entry["shortNames"] = list(one.short_names)
    if one.categories:
        entry["categories"] = list(one.categories)
    if one.subresources:
        entry["subresources"] = [
            {"subresource": sub.name, "responseKind": _response_kind(one, sub.gvk), "verbs": list(sub.verbs)}
            for sub in one.subresources.values()
        ]
    return entry


def _response_kind(one: Resource, gvk: GroupVersionKind) -> Document:
    # a built-in kind of the resource's own version goes without saying
    if one.custom is None and (gvk.group, gvk.version) == (one.group, one.version):
        return {"group": "", "version": "", "kind": gvk.kind}
    return {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}


def _listed(one: Resource) -> Iterator[Document]:
    entry: Document = {
        "name": one.plural,
        "singularName": one.singular,
        "namespaced": one.namespaced,
        "kind": one.kind,
        "verbs": list(one.verbs),
    }
    if one.short_names:
        entry["shortNames"] = list(one.short_names)
    if one.categories:
        entry["categories"] = list(one.categories)
    if "watch" in one.verbs:
        entry["storageVersionHash"] = _storage_hash(one)
    yield entry
    for sub in one.subresources.values():
        yield _listed_below(one, sub)


def _listed_below(one: Resource, sub: Subresource) -> Document:
    entry: Document = {"name": f"{one.plural}/{sub.name}", "singularName": "", "namespaced": one.namespaced}
    if (sub.gvk.group, sub.gvk.version) != (one.group, one.version):
        entry |= {"group": sub.gvk.group, "version": sub.gvk.version}
    return {**entry, "kind": sub.gvk.kind, "verbs": list(sub.verbs)}


def _storage_hash(one: Resource) -> str:
    """Changes when objects are kept in another version: how migration tools notice."""
    group = one.group if one.storage_group is None else one.storage_group
    kept = f"{group}/{one.storage_version or one.version}/{one.kind}"
    return b64encode(hashlib.sha256(kept.encode()).digest()[:8]).decode()
