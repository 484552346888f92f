"""The default roles and bindings of every Kubernetes cluster, read from `policy.txt`.

The server creates the missing ones when it starts. It does not overwrite later changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from torchyard.api.access.aggregation import aggregated_rules
from torchyard.api.objects import Object
from torchyard.apiserver.access.rbac import GROUP

AGGREGATE_LABEL = "rbac.authorization.k8s.io/aggregate-to-"
LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}


@cache
def bootstrap_policy() -> tuple[Object, ...]:
    """Every default ClusterRole, Role and binding; aggregated roles have their rules filled in."""
    text = files(__package__).joinpath("policy.txt").read_text()
    objects = list(_objects(text))
    cluster_roles = [obj for obj in objects if obj["kind"] == "ClusterRole"]
    for role in cluster_roles:
        if "aggregationRule" in role:
            role["rules"] = aggregated_rules(role, cluster_roles)
    return tuple(objects)


def _objects(text: str) -> Iterator[Object]:
    role: Object = {}
    for line in text.splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if not line.startswith(" "):
            role = _role(words)
            yield role
        elif words[0] == "bound":
            yield _binding(role, words[1:])
        else:
            role["rules"].append(_rule(line))


def _role(words: list[str]) -> Object:
    kind, *position = (word for word in words if "=" not in word)
    aggregate_to = [word.removeprefix("into=") for word in words if word.startswith("into=")]
    aggregate_from = [word.removeprefix("from=") for word in words if word.startswith("from=")]
    role = _object(kind, position[-1], position[0] if kind == "Role" else "")
    role["metadata"]["labels"] |= {f"{AGGREGATE_LABEL}{name}": "true" for name in aggregate_to}
    if aggregate_from:
        selectors = [{"matchLabels": {f"{AGGREGATE_LABEL}{name}": "true"}} for name in aggregate_from]
        role["aggregationRule"] = {"clusterRoleSelectors": selectors}
    role["rules"] = []
    return role


def _rule(line: str) -> Object:
    verbs, *rest = (part.split() for part in line.split("|"))
    if len(rest) == 1:
        return {"verbs": verbs, "nonResourceURLs": rest[0]}
    groups, resources, *names = rest
    rule: Object = {
        "verbs": verbs,
        "apiGroups": ["" if group == '""' else group for group in groups],
        "resources": resources,
    }
    if names:
        rule["resourceNames"] = names[0]
    return rule


def _binding(role: Object, words: list[str]) -> Object:
    name, namespace = role["metadata"]["name"], role["metadata"].get("namespace", "")
    options = dict(word.split("=", 1) for word in words if word.startswith("as="))
    binding = _object(f"{role['kind']}Binding", options.get("as", name), namespace)
    subjects = [_subject(*word.split("=", 1)) for word in words if not word.startswith("as=")]
    if subjects:
        binding["subjects"] = subjects
    binding["roleRef"] = {"apiGroup": GROUP, "kind": role["kind"], "name": name}
    return binding


def _subject(kind: str, name: str) -> Object:
    if kind == "ServiceAccount":
        namespace, _, name = name.partition("/")
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "apiGroup": GROUP, "name": name}


def _object(kind: str, name: str, namespace: str) -> Object:
    metadata: Object = {"name": name, "labels": dict(LABELS), "annotations": dict(ANNOTATIONS)}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}
