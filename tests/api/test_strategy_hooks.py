"""Strategy hooks accept every object that matches the types of its kind: they return errors and never raise."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest
from tests.api.differential.ours import NAMESPACE
from tests.api.differential.recorded import CASES
from tests.api.differential.verdict import resource_of

from torchyard.api.builtins import builtin_resources
from torchyard.api.field_errors import FieldError
from torchyard.api.names import validate_metadata, validate_metadata_update
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.schema.decode import decode
from torchyard.api.schema.types import Type

TEXTS = (
    *(
        "",
        "a",
        "b",
        "A b",
        "a/b",
        "x.y/z",
        "None",
        "1.2.3.4",
        "10.0.0.0/8",
        "fd00::1",
        "*",
        "..",
        "/a/../b",
        "50%",
        "é\n",
    ),
    *("Always", "Never", "OnFailure", "Indexed", "NonIndexed", "RollingUpdate", "OnDelete", "Recreate", "TCP", "In"),
    *("Exists", "Gt", "Localhost", "ClientIP", "ExternalName", "LoadBalancer", "NodePort", "Local", "Namespace", "cpu"),
    *("Resource", "Object", "Utilization", "Pod", "Container", "PersistentVolumeClaim", "BestEffort", "Terminating"),
    *(
        "kubernetes.io/tls",
        "kubernetes.io/dockercfg",
        "limits.cpu",
        "metadata.labels['a']",
        "0,2-4",
        "9-1",
        "@every 1h",
    ),
    *("* * * * *", "Guaranteed", "Bound", "IPv4", "IPv6", "FQDN", "Exact", "Prefix", "Deny", "Limited", "Queue", "all"),
)
SCALARS: dict[tuple[str, str], tuple[Any, ...]] = {
    ("boolean", ""): (True, False),
    ("int-or-string", ""): (0, -1, 80, "http", "50%", "x"),
    ("string", "quantity"): ("0", "1", "-1", "1Gi", "1500m", "3Mi"),
    ("string", "date-time"): ("2026-01-01T00:00:00Z",),
    ("string", "micro-time"): ("2026-01-01T00:00:00.000000Z",),
    ("string", "byte"): ("", "eA==", "e30="),
}
NUMBERS = (0, 0, 1, -1, 2, 80, 3600, 70000, 2**31 - 1)
KEYS = ("a", "b", "cpu", "memory", "storage", "nvidia.com/gpu", "hugepages-2Mi", "x y", ".dockercfg", "pods", "tls.crt")
RESOURCES = [
    resource
    for resource in builtin_resources()
    if "create" in resource.verbs and resource.type is not None and resource.type.fields
]


def anything(of: Type, random: Random, depth: int = 0) -> Any:
    """Return an arbitrary value of a type."""
    match of.shape:
        case "object":
            chosen = [name for name in of.fields if random.random() < (0.75 if depth < 3 else 0.3)]
            chosen = chosen if depth < 3 else random.sample(chosen, min(len(chosen), 5))
            return {name: anything(of.fields[name], random, depth + 1) for name in chosen} if depth < 9 else {}
        case "map":
            assert of.values is not None
            keys = random.sample(KEYS, random.randrange(3))
            return {key: anything(of.values, random, depth + 1) for key in keys}
        case "list":
            assert of.items is not None
            return [anything(of.items, random, depth + 1) for _ in range(random.randrange(3))]
        case "any":
            return random.choice(({}, {"a": 1}))
        case "integer" | "number":
            return random.choice(NUMBERS)
    return random.choice(SCALARS.get((of.shape, of.format)) or SCALARS.get((of.shape, "")) or TEXTS)


def some_object(resource: Resource, random: Random) -> Object:
    assert resource.type is not None
    shape = {
        name: child for name, child in resource.type.fields.items() if name not in ("apiVersion", "kind", "metadata")
    }
    sent = {name: anything(child, random, 1) for name, child in shape.items() if random.random() < 0.9}
    meta = {
        "name": random.choice(TEXTS) or "x",
        "namespace": "default",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "1",
        "labels": {"a": "b"} if random.random() < 0.5 else {},
        "annotations": {random.choice(KEYS): random.choice(TEXTS)} if random.random() < 0.5 else {},
    }
    decoded, _ = decode(
        {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta, **sent}, resource.type
    )
    return decoded


def prepared(resource: Resource, random: Random) -> tuple[Object, list[FieldError]]:
    strategy, obj = resource.strategy, some_object(resource, random)
    strategy.default(obj)
    strategy.prepare_create(obj)
    errs = validate_metadata(obj["metadata"], namespaced=resource.namespaced, name_rule=strategy.name_rule)
    errs += strategy.validate(obj)
    strategy.selectable(obj)
    if not errs:
        strategy.warnings(obj)
    return obj, errs


@pytest.mark.parametrize("seed", range(40))
def test_strategy_hooks_return_errors_and_never_raise(seed: int) -> None:
    random = Random(seed)
    for resource in RESOURCES:
        _check_hooks(resource, random)


def _check_hooks(resource: Resource, random: Random) -> None:
    strategy = resource.strategy
    old, _ = prepared(resource, random)
    for prepare, check in (
        (strategy.prepare_update, strategy.validate_update),
        (strategy.prepare_status, strategy.validate_status),
    ):
        new, before = some_object(resource, random), copy.deepcopy(old)
        strategy.default(new)
        prepare(new, old)
        errs = validate_metadata_update(new["metadata"], old["metadata"]) + check(new, old)
        assert all(isinstance(error, FieldError) for error in errs)
        assert old == before, "a hook changed the old object"


GOOD = {name: case.obj for name, case in CASES.items() if ": good: " in name}


@pytest.mark.parametrize("name", GOOD)
def test_writing_an_object_back_unchanged_does_not_change_it(name: str) -> None:
    """Defaulting is idempotent."""
    resource = resource_of(GOOD[name])
    assert resource.type is not None
    obj, _ = decode(copy.deepcopy(GOOD[name]), resource.type)
    obj["metadata"] |= {"namespace": NAMESPACE, "uid": "u"}
    strategy = resource.strategy
    strategy.default(obj)
    strategy.prepare_create(obj)
    assert strategy.validate(obj) == []
    again = copy.deepcopy(obj)
    strategy.default(again)
    strategy.prepare_update(again, obj)
    assert again == obj
    assert strategy.validate_update(again, obj) == []
    assert not strategy.is_new_generation(again, obj)
