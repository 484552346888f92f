"""Decoding as a Go server does: pruning, canonical forms, zero values."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl

from torchyard.api.group_version import GroupVersionKind
from torchyard.api.schema.builtin import kinds, type_of
from torchyard.api.schema.decode import DecodeError, decode
from torchyard.api.schema.scalars import micro_time
from torchyard.api.schema.types import Type


def decoded(kind: str, obj: dict[str, Any], group: str = "") -> dict[str, Any]:
    type = type_of(GroupVersionKind(group, "v1", kind))
    assert type is not None
    return decode(obj, type)[0]


def in_container(**fields: Any) -> dict[str, Any]:
    pod = decoded("Pod", {"spec": {"containers": [{"name": "c", **fields}]}})
    container: dict[str, Any] = pod["spec"]["containers"][0]
    return container


@pytest.mark.parametrize(
    ("sent", "decoded_value"),
    [
        ({"tty": False}, {}),
        ({"args": []}, {}),
        ({"image": ""}, {}),
        ({"args": None}, {}),
        ({"args": ["a", None]}, {"args": ["a", ""]}),
        ({"securityContext": {}}, {"securityContext": {}}),
        ({"securityContext": {"privileged": False}}, {"securityContext": {"privileged": False}}),
        ({"securityContext": None}, {}),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
        ({"env": [{}]}, {"env": [{"name": ""}]}),
        ({"ports": [{"hostPort": 0}]}, {"ports": [{"containerPort": 0}]}),
        ({"livenessProbe": {"periodSeconds": 0, "httpGet": {}}}, {"livenessProbe": {"httpGet": {"port": 0}}}),
        ({"surprise": 1}, {}),
    ],
)
def test_zero_values_are_omitted_unless_the_field_is_a_pointer_or_always_written(
    sent: dict[str, Any], decoded_value: dict[str, Any]
) -> None:
    assert in_container(**sent) == {"name": "c", "resources": {}, **decoded_value}


def test_fields_that_go_always_writes_are_added() -> None:
    assert decoded("Pod", {}) == {"metadata": {}, "spec": {}, "status": {}}
    assert decoded("Deployment", {}, "apps") == {
        "metadata": {},
        "spec": {"template": {"metadata": {}, "spec": {}}, "strategy": {}},
        "status": {},
    }
    event = decoded("Event", {"metadata": {"name": "e"}})
    assert event["eventTime"] is None
    assert event["reportingComponent"] == ""


def test_added_zero_values_are_not_shared_between_objects() -> None:
    first, second = decoded("Deployment", {}, "apps"), decoded("Deployment", {}, "apps")
    first["spec"]["template"]["metadata"]["labels"] = {"a": "b"}
    assert second["spec"]["template"]["metadata"] == {}


def test_an_empty_list_that_go_always_writes_is_null() -> None:
    # (Strategy.empty_is_null handles whole kinds, because field ownership needs the empty list until it is stored)
    volume = decoded("Pod", {"spec": {"volumes": [{"name": "v", "projected": {"sources": []}}]}})["spec"]["volumes"][0]
    assert volume["projected"] == {"sources": None}
    assert decoded("Role", {"rules": []}, "rbac.authorization.k8s.io")["rules"] == []
    assert decoded("Role", {}, "rbac.authorization.k8s.io")["rules"] is None


def test_a_missing_required_list_is_not_added() -> None:
    assert "containers" not in decoded("Pod", {"spec": {}})["spec"]


@pytest.mark.parametrize(
    ("sent", "decoded_value"),
    [("1000m", "1"), ("0.5", "500m"), ("1024Mi", "1Gi"), (1.5, "1500m"), (1024, "1024"), (None, "0"), ("1e3", "1e3")],
)
def test_quantities_are_decoded_to_their_canonical_form(sent: Any, decoded_value: str) -> None:
    assert in_container(resources={"limits": {"cpu": sent}})["resources"]["limits"]["cpu"] == decoded_value


@pytest.mark.parametrize(
    ("sent", "decoded_value"),
    [
        ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
        ("2020-01-02T03:04:05.6789Z", "2020-01-02T03:04:05Z"),
        ("2020-01-02T03:04:05+02:00", "2020-01-02T01:04:05Z"),
        ("0001-02-03T04:05:06.5Z", "0001-02-03T04:05:06Z"),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00.5Z", None),
        ("0001-01-01T01:00:00+01:00", None),
    ],
)
def test_times_are_decoded_to_their_canonical_form(sent: str, decoded_value: str | None) -> None:
    assert decoded("Event", {"firstTimestamp": sent})["firstTimestamp"] == decoded_value


@pytest.mark.parametrize(
    ("sent", "decoded_value"),
    [
        ("2020-01-02T03:04:05.678900Z", "2020-01-02T03:04:05.678900Z"),
        ("2020-01-02T03:04:05,000000+02:00", "2020-01-02T01:04:05.000000Z"),
        ("0001-01-02T03:04:05.123456Z", "0001-01-02T03:04:05.123456Z"),
        ("0001-01-01T00:00:00.000000Z", None),
    ],
)
def test_micro_times_are_decoded_to_their_canonical_form(sent: str, decoded_value: str | None) -> None:
    assert decoded("Lease", {"spec": {"renewTime": sent}}, "coordination.k8s.io")["spec"]["renewTime"] == decoded_value


@pytest.mark.parametrize(
    ("sent", "rest", "element"),
    [
        ("2024-01-01T00:00:00Z", "Z", ".000000"),
        ("2024-01-01T00:00:00.00000Z", ".00000Z", ".000000"),
        ("2024-01-01T00:00:00.1234567Z", "7Z", "Z07:00"),
    ],
)
def test_micro_times_have_six_digits_after_the_seconds(sent: str, rest: str, element: str) -> None:
    with pytest.raises(ValueError, match="parsing time") as refused:
        micro_time(sent)
    layout = "2006-01-02T15:04:05.000000Z07:00"
    assert str(refused.value) == f'parsing time "{sent}" as "{layout}": cannot parse "{rest}" as "{element}"'


def test_bytes_are_decoded_to_their_canonical_form() -> None:
    assert decoded("Secret", {"data": {"a": "Y\nQ==", "b": None}})["data"] == {"a": "YQ==", "b": ""}


def test_free_form_json_is_unchanged() -> None:
    managed: list[Any] = [{"fieldsV1": {"f:spec": {}, "x": None}}]
    assert decoded("Pod", {"metadata": {"managedFields": managed}})["metadata"]["managedFields"] == managed


TEXTS: dict[str, list[Any]] = {
    "": ["", "x", "Always"],
    "quantity": ["0", "1000m", "1.5", "1024Mi", "100m", "1e3", "0.0001", 5, 0.5, "1Ki", "12e6", "-1", ".5", "1536Mi"],
    "date-time": ["2020-01-02T03:04:05Z", "2020-01-02T03:04:05.678Z", "2020-01-02T03:04:05+02:00"],
    "micro-time": ["2020-01-02T03:04:05.000000Z", "2020-01-02T03:04:05.123456+02:00"],
    "byte": ["", "YQ=="],
    "duration": ["10s"],
}
SCALARS: dict[str, list[Any]] = {
    "boolean": [True, False],
    "integer": [0, 1, -1, 2**31 - 1],
    "number": [0, 1.5, 3.0],
    "int-or-string": [0, 5, "a", "50%"],
    "any": [{}, {"a": 1}, {"x": {"y": [1, None]}}],
}
# without these fields a workload is empty, and kubectl patches by name
WANTED = frozenset(("spec", "template", "containers", "jobTemplate", "name"))


def generate(type: Type, chance: random.Random, depth: int = 0) -> Any:
    if depth > 5 and chance.random() < 0.03:
        return None
    if type.shape == "object":
        share = 0.3 if depth < 9 else 0.05
        chosen = {key: child for key, child in type.fields.items() if key in WANTED or chance.random() < share}
        obj = {key: generate(child, chance, depth + 1) for key, child in chosen.items()}
        return obj | {"name": f"n{chance.random()}"} if "name" in obj else obj
    if type.shape == "list" and type.items:
        made_items = (generate(type.items, chance, depth + 1) for _ in range(chance.choice((0, 1, 1, 2))))
        # kubectl computes a patch, which a null in a list of objects would break
        return [{} if item is None and type.items.shape == "object" else item for item in made_items]
    if type.shape == "map" and type.values:
        return {key: generate(type.values, chance, depth + 1) for key in chance.sample(("a", "b", "cpu"), 2)}
    return chance.choice(TEXTS[type.format] if type.shape == "string" else SCALARS[type.shape])


def without(obj: Any, *keys: str) -> Any:
    """Return the object without fields that kubectl sets, and without empty and null lists, which we leave to
    validation.
    """
    if isinstance(obj, dict):
        remaining = {key: value for key, value in obj.items() if key not in keys and value not in (None, [])}
        return {key: without(value, *keys) for key, value in remaining.items()}
    return [without(each, *keys) for each in obj] if isinstance(obj, list) else obj


@pytest.mark.clients
@pytest.mark.parametrize("seed", range(3))
def test_go_decodes_and_encodes_workloads_to_the_same_objects(seed: int, tmp_path: Any) -> None:
    binary = kubectls.versions().get("1.34")
    if binary is None:
        pytest.skip("needs a kubectl 1.34: its Go types are those of the table")
    chance = random.Random(seed)
    objects = []
    for index in range(60):
        group, kind = chance.choice(
            (
                ("apps", "Deployment"),
                ("apps", "StatefulSet"),
                ("batch", "Job"),
                ("batch", "CronJob"),
                ("apps", "DaemonSet"),
            )
        )
        type = type_of(GroupVersionKind(group, "v1", kind))
        assert type is not None
        obj = generate(type, chance) | {"apiVersion": f"{group}/v1", "kind": kind}
        obj["metadata"] = {"name": f"n{index}", "labels": {"a": "b"}}
        objects.append(obj)
    (tmp_path / "list.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    output = Kubectl("1.34", binary)("set", "sa", "--local", "-f", str(tmp_path / "list.json"), "-o", "json", "someone")
    theirs = {each["metadata"]["name"]: each for each in _documents(output)}
    ignored = ("serviceAccount", "serviceAccountName", "managedFields")
    assert len(theirs) == len(objects)
    for obj in objects:
        group = obj["apiVersion"].partition("/")[0]
        ours = decoded(obj["kind"], obj, group)
        assert without(ours, *ignored) == without(theirs[ours["metadata"]["name"]], *ignored)


def _documents(text: str) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        documents += document["items"] if document["kind"] == "List" else [document]
        text = text[end:]
    return documents


@pytest.mark.parametrize("kind", kinds(), ids="/".join)
def test_decoding_is_idempotent(kind: GroupVersionKind) -> None:
    type = type_of(kind)
    assert type is not None
    chance = random.Random(kind.kind)
    for _ in range(3):
        decoded, _ = decode(generate(type, chance), type)
        assert decode(json.loads(json.dumps(decoded)), type) == (decoded, [])


JUNK: list[Any] = [None, True, -1, 2**63, 1.5, 1e400, "", "x", "\ud800", [], [None], {}, {"x": 1}, [[{}]]]


def spoil(value: Any, chance: random.Random) -> Any:
    """Return a copy with junk in some places."""
    if chance.random() < 0.05:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        return {key: spoil(each, chance) for key, each in value.items()}
    return [spoil(each, chance) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", kinds(), ids="/".join)
def test_arbitrary_json_is_decoded_or_rejected(kind: GroupVersionKind) -> None:
    type = type_of(kind)
    assert type is not None
    chance = random.Random(kind.kind)
    for _ in range(20):
        spoiled = spoil(generate(type, chance), chance)
        if isinstance(spoiled, dict):
            with contextlib.suppress(DecodeError):
                decode(spoiled, type)
