"""Points 43 to 50: custom resources."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.conformance.objects import Definitions, Object, Space, crd, custom, path
from tests.support.http import Client
from tests.support.waiting import eventually

GROUP = "test.torchyard.dev"
AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def version(properties: Object, **more: Any) -> Object:
    """A version whose spec has these properties."""
    spec = {"type": "object", "properties": properties}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return {"schema": {"openAPIV3Schema": schema}} | more


class Gadgets:
    """The objects of a definition `gadgets` in one namespace."""

    def __init__(self, space: Space) -> None:
        self.api = space.api
        self.at = space.path("gadgets", group=f"{GROUP}/v1")

    def make(self, name: str, **spec: Any) -> Any:
        return self.api.post(self.at, custom("Gadget", name, spec=spec))


@pytest.mark.point(43)
def test_a_definition_is_served_and_shown_in_discovery_and_openapi(api: Client, crds: Definitions) -> None:
    names: Object = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    names |= {"shortNames": ["gd"], "categories": ["all"]}
    created = crds.create(crd("gadgets", version={"subresources": {"status": {}}}, names=names))
    name = created["metadata"]["name"]
    assert crds.condition(name, "NamesAccepted") == "True"
    assert created["status"]["acceptedNames"] == names
    assert created["status"]["storedVersions"] == ["v1"]
    eventually(lambda: api.get(f"/apis/{GROUP}/v1").status == 200, "discovery")
    legacy = api.get(f"/apis/{GROUP}/v1").json
    assert (legacy["kind"], legacy["groupVersion"]) == ("APIResourceList", f"{GROUP}/v1")
    main = next(r for r in legacy["resources"] if r["name"] == "gadgets")
    assert main["shortNames"] == ["gd"]
    assert main["categories"] == ["all"]
    assert (main["kind"], main["namespaced"], main["singularName"]) == ("Gadget", True, "gadget")
    assert set(main["verbs"]) == {
        *("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"),
    }
    assert any(r["name"] == "gadgets/status" for r in legacy["resources"])

    def aggregated() -> bool:
        groups = api.get("/apis", headers=AGGREGATED).json["items"]
        return any(group["metadata"].get("name") == GROUP for group in groups)

    eventually(aggregated, "aggregated discovery")
    eventually(lambda: f"apis/{GROUP}/v1" in api.get("/openapi/v3").json["paths"], "an OpenAPI document")
    document = api.get(api.get("/openapi/v3").json["paths"][f"apis/{GROUP}/v1"]["serverRelativeURL"]).json
    patch = document["paths"][f"/apis/{GROUP}/v1/namespaces/{{namespace}}/gadgets/{{name}}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": GROUP, "version": "v1", "kind": "Gadget"}
    assert "fieldValidation" in {p["name"] for p in patch["parameters"] if "name" in p}


@pytest.mark.point(43)
def test_names_that_are_taken_are_not_accepted(crds: Definitions, api: Client) -> None:
    crds.create(crd("gadgets"))
    rival = crd("gadgetz")
    rival["spec"]["names"] = {"plural": "gadgetz", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    assert api.post(path("customresourcedefinitions"), rival).status == 201
    name = rival["metadata"]["name"]
    eventually(lambda: crds.condition(name, "NamesAccepted") == "False", "the conflict noticed")
    assert crds.condition(name, "Established") == "False"
    assert api.get(f"/apis/{GROUP}/v1/gadgetz").status == 404
    api.delete(path("customresourcedefinitions", name))


BAD_DEFINITIONS: list[tuple[str, Object, str]] = [
    ("the name", {"metadata": {"name": "wrong"}}, "metadata.name"),
    ("no schema", {"version": {"schema": None}}, "spec.versions[0].schema"),
    ("no type", {"schema": {"properties": {"x": {}}}}, "spec.validation.openAPIV3Schema.properties[x].type"),
    ("a bad pattern", {"schema": {"properties": {"x": {"type": "string", "pattern": "("}}}}, "spec.v"),
    ("an untyped array", {"schema": {"properties": {"x": {"type": "array"}}}}, "spec.v"),
    ("a metadata schema", {"schema": {"properties": {"metadata": {"type": "object", "maxProperties": 1}}}}, "spec.v"),
    ("no storage version", {"version": {"storage": False}}, "spec.versions"),
    ("a default of a wrong type", {"schema": {"properties": {"x": {"type": "integer", "default": "y"}}}}, "spec.v"),
    ("a rule that does not compile", {"schema": {"x-kubernetes-validations": [{"rule": "self.nothing > 1"}]}}, "spec."),
    ("a bad scope", {"spec": {"scope": "Everywhere"}}, "spec.scope"),
]


@pytest.mark.point(44)
@pytest.mark.parametrize(
    ("change", "field"), [case[1:] for case in BAD_DEFINITIONS], ids=[case[0] for case in BAD_DEFINITIONS]
)
def test_a_schema_that_is_not_structural_is_rejected(api: Client, change: Object, field: str) -> None:
    definition = copy.deepcopy(crd("gadgets"))
    definition["metadata"] |= change.get("metadata", {})
    definition["spec"] |= change.get("spec", {})
    first = definition["spec"]["versions"][0]
    first |= change.get("version", {})
    if "schema" in change:
        first["schema"] = {"openAPIV3Schema": {"type": "object"} | change["schema"]}
    refused = api.post(path("customresourcedefinitions"), definition, query={"dryRun": "All"})
    assert (refused.status, refused.reason) == (422, "Invalid"), refused
    assert any(cause["field"].startswith(field) for cause in refused.causes), refused


@pytest.mark.point(45)
@pytest.mark.parametrize(
    ("second", "errors"),
    [
        ({}, []),
        ({"selectableFields": [{"jsonPath": ".spec.b"}]}, ["spec.versions[0]", "spec.versions[1]"]),
        ({"selectableFields": []}, ["spec.versions[0]"]),
        ({"schema": True}, ["spec"]),
        ({"schema": True, "selectableFields": [{"jsonPath": ".spec.b"}]}, []),
        ({"schema": True, "selectableFields": []}, []),
    ],
)
def test_selectable_fields_are_shared_by_the_versions_as_the_schema_is(
    api: Client, second: Object, errors: list[str]
) -> None:
    """What all versions have in common is validated apart from them, and neither finds the other there."""
    text = {"type": "string"}
    first = version({"a": text, "b": text}, name="v1", served=True, storage=True)
    first["selectableFields"] = [{"jsonPath": ".spec.a"}]
    other = copy.deepcopy(first) | {"name": "v2", "storage": False}
    if second.get("schema"):
        other["schema"]["openAPIV3Schema"]["description"] = "Another schema."
    other |= {key: value for key, value in second.items() if key != "schema"}
    body = crd("pairs", names={"plural": "pairs", "kind": "Pair"})
    body["spec"]["versions"] = [first, other]
    answer = api.post(path("customresourcedefinitions"), body, query={"dryRun": "All"})
    causes = (answer.json.get("details") or {}).get("causes") or []
    assert [cause["field"] for cause in causes] == [f"{at}.selectableFields" for at in errors], answer
    details = {
        "spec": "may only be set when validations.schema is included",
        "spec.versions": "may only be set when `version.schema.openAPIV3Schema` is not included",
    }
    messages = [f'Invalid value: "": {details[at.partition("[")[0]]}' for at in errors]
    assert [cause["message"] for cause in causes] == messages


def test_unknown_fields_are_pruned_unless_the_schema_keeps_them(space: Space, crds: Definitions) -> None:
    open_ended = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    crds.create(crd("gadgets", version=version({"known": {"type": "string"}, "open": open_ended, "emb": embedded})))
    gadgets = Gadgets(space)
    inside = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "bogus": 1}, "data": {"a": "1"}}
    created = gadgets.make("a", known="1", unknown="2", open={"x": {"y": 1}}, emb=inside)
    assert created.status == 201, created
    inside["metadata"] = {"name": "x"}
    assert created.json["spec"] == {"known": "1", "open": {"x": {"y": 1}}, "emb": inside}
    strict = space.api.post(gadgets.at, custom("Gadget", "b", spec={"unknown": 1}), query={"fieldValidation": "Strict"})
    assert (strict.status, strict.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.unknown"' in strict.message
    warned = space.api.post(gadgets.at, custom("Gadget", "c", spec={"unknown": 1}), query={"fieldValidation": "Warn"})
    assert (warned.status, warned.warnings) == (201, ['299 - "unknown field \\"spec.unknown\\""'])
    bad = gadgets.make("d", emb={"data": {}})
    assert (bad.status, {c["field"] for c in bad.causes}) == (422, {"spec.emb.apiVersion", "spec.emb.kind"})


@pytest.mark.point(45)
@pytest.mark.parametrize("change", [{"spec": {"unknown": 1}}, {"status": {"unknown": 1}}, {"spec": {"known": 1}}])
def test_a_status_update_is_decoded_whole_and_changes_only_the_status(
    space: Space, crds: Definitions, change: Object
) -> None:
    known = {"known": {"type": "string"}}
    schema = version(known, subresources={"status": {}})
    properties = schema["schema"]["openAPIV3Schema"]["properties"]
    properties["status"] = {"type": "object", "properties": {"phase": {"type": "string"}}}
    crds.create(crd("gadgets", version=schema))
    gadgets = Gadgets(space)
    assert gadgets.make("a", known="1").status == 201
    at = f"{gadgets.at}/a/status"
    is_unknown = "unknown" in next(iter(change.values()))
    refused = space.api.patch(at, change, query={"fieldValidation": "Strict"})
    assert (refused.status == 422) == is_unknown, refused
    warned = space.api.patch(at, {**change, "status": {"phase": "x", **change.get("status", {})}})
    assert warned.status == 200, warned
    assert len(warned.warnings) == is_unknown
    assert (warned.json["spec"], warned.json["status"]) == ({"known": "1"}, {"phase": "x"})


@pytest.mark.point(46)
def test_defaults_are_filled_on_write_and_on_read(space: Space, crds: Definitions, api: Client) -> None:
    properties = {
        "size": {"type": "integer", "default": 3},
        "deep": {
            "type": "object",
            "default": {},
            "properties": {"on": {"type": "boolean", "default": True}},
        },
        "none": {"type": "string", "nullable": True},
        "port": {"x-kubernetes-int-or-string": True},
        "list": {
            "type": "array",
            "items": {"type": "object", "properties": {"k": {"type": "string", "default": "d"}}},
        },
    }
    name = crds.create(crd("gadgets", version=version(properties)))["metadata"]["name"]
    gadgets = Gadgets(space)
    created = gadgets.make("a", none=None, port="http", list=[{}, {"k": "x"}])
    assert created.status == 201, created
    expected = {"size": 3, "deep": {"on": True}, "none": None, "port": "http", "list": [{"k": "d"}, {"k": "x"}]}
    assert created.json["spec"] == expected
    assert gadgets.make("b", port=80, size=None).json["spec"] == {"size": 3, "deep": {"on": True}, "port": 80}
    refused = gadgets.make("c", port=1.5)
    assert (refused.status, refused.causes[0]["field"]) == (422, "spec.port")
    add = {
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/later",
        "value": {"type": "string", "default": "new"},
    }
    changed = api.request(
        "PATCH",
        path("customresourcedefinitions", name),
        [add],
        headers={"Content-Type": "application/json-patch+json"},
    )
    assert changed.status == 200, changed
    eventually(lambda: api.get(f"{gadgets.at}/a").json["spec"].get("later") == "new", "the new default on read")
    listed = api.get(gadgets.at).json
    assert [item["spec"]["later"] for item in listed["items"]] == ["new", "new"]


LIMITS: Object = {
    "word": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
    "color": {"type": "string", "enum": ["red", "blue"]},
    "count": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2},
    "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
    "when": {"type": "string", "format": "date-time"},
    "few": {"type": "array", "maxItems": 2, "minItems": 1, "items": {"type": "string"}},
    "keyed": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["id"],
        "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
    },
    "unique": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "must": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
    "either": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1},
}
BROKEN: list[tuple[str, Any, str, str]] = [
    ("word", "ABC", "spec.word", "FieldValueInvalid"),
    ("word", "a", "spec.word", "FieldValueInvalid"),
    ("word", "abcde", "spec.word", "FieldValueTooLong"),
    ("word", 7, "spec.word", "FieldValueTypeInvalid"),
    ("color", "green", "spec.color", "FieldValueNotSupported"),
    ("count", 0, "spec.count", "FieldValueInvalid"),
    ("count", 10, "spec.count", "FieldValueInvalid"),
    ("count", 3, "spec.count", "FieldValueInvalid"),
    ("count", 1.5, "spec.count", "FieldValueTypeInvalid"),
    ("ratio", 0, "spec.ratio", "FieldValueInvalid"),
    ("when", "yesterday", "spec.when", "FieldValueTypeInvalid"),
    ("few", [], "spec.few", "FieldValueInvalid"),
    ("few", ["a", "b", "c"], "spec.few", "FieldValueTooMany"),
    ("few", "a", "spec.few", "FieldValueTypeInvalid"),
    ("keyed", [{"id": "a"}, {"id": "a"}], "spec.keyed[1]", "FieldValueDuplicate"),
    ("keyed", [{}], "spec.keyed[0].id", "FieldValueRequired"),
    ("unique", ["a", "a"], "spec.unique[1]", "FieldValueDuplicate"),
    ("must", {}, "spec.must.x", "FieldValueRequired"),
    ("either", {}, "<nil>", "FieldValueInvalid"),
    ("either", {"a": "1", "b": "1"}, "<nil>", "FieldValueInvalid"),
    ("map", {"a": "x"}, "spec.map.a", "FieldValueTypeInvalid"),
    ("map", {"a": 1, "b": 2}, "spec.map", "FieldValueTooMany"),
]


@pytest.mark.point(47)
def test_values_outside_the_schema_are_invalid_with_causes(space: Space, crds: Definitions) -> None:
    crds.create(crd("gadgets", version=version(LIMITS)))
    gadgets = Gadgets(space)
    good = {"word": "abc", "color": "red", "count": 4, "ratio": 0.5, "when": "2026-01-01T00:00:00Z"}
    good |= {"few": ["a"], "keyed": [{"id": "a"}, {"id": "b"}], "unique": ["a", "b"], "must": {"x": "1"}}
    assert gadgets.make("good", **good, either={"a": "1"}, map={"a": 1}).status == 201
    for field, value, where, reason in BROKEN:
        refused = gadgets.make("bad", **{field: value})
        assert (refused.status, refused.reason) == (422, "Invalid"), (field, value, refused)
        assert (where, reason) in {(c["field"], c["reason"]) for c in refused.causes}, (field, value, refused.causes)
    assert gadgets.make("bad", color="green").message == (
        f'Gadget.{GROUP} "bad" is invalid: spec.color: Unsupported value: "green": supported values: "red", "blue"'
    )


def rules(*entry: Object) -> Object:
    properties = {
        "min": {"type": "integer", "minimum": 0, "maximum": 99},
        "max": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {
            "type": "string",
            "maxLength": 9,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is fixed"}],
        },
        "names": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9}},
    }
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": list(entry)}
    return {"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}


@pytest.mark.point(48)
def test_rules_validate_the_new_state_and_transitions(space: Space, crds: Definitions) -> None:
    order = {
        "rule": "!has(self.max) || self.min <= self.max",
        "messageExpression": "'min %d is more than max %d'.format([self.min, self.max])",
    }
    field = {
        "rule": "!has(self.names) || self.names.all(n, n.matches('^[a-z]+$'))",
        "message": "names are lower case",
        "reason": "FieldValueForbidden",
        "fieldPath": ".names",
    }
    growing = {"rule": "self.min >= oldSelf.min", "message": "min only grows"}
    crds.create(crd("gadgets", version=rules(order, field, growing)))
    gadgets = Gadgets(space)
    created = gadgets.make("a", min=2, max=5, kind="x", names=["ab"])
    assert created.status == 201, created
    refused = gadgets.make("b", min=7, max=5, kind="x")
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert refused.causes == [
        {
            "reason": "FieldValueInvalid",
            "message": 'Invalid value: "object": min 7 is more than max 5',
            "field": "spec",
        }
    ], refused
    refused = gadgets.make("b", min=1, names=["AB"])
    assert (refused.causes[0]["field"], refused.causes[0]["reason"]) == ("spec.names", "FieldValueForbidden")
    assert refused.causes[0]["message"] == "Forbidden: names are lower case"
    at = f"{gadgets.at}/a"
    for patch, message, where in (
        ({"spec": {"kind": "y"}}, "is fixed", "spec.kind"),
        ({"spec": {"min": 1}}, "min only grows", "spec"),
    ):
        refused = space.api.patch(at, patch)
        assert (refused.status, refused.causes[0]["field"]) == (422, where), refused
        assert refused.causes[0]["message"].endswith(message)
    assert space.api.patch(at, {"spec": {"min": 3}}).status == 200


@pytest.mark.point(48)
@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("size(self.names) < 2", ["a"], ["a", "b"]),
        ("self.names.exists(n, n == 'a')", ["a"], ["b"]),
        ("self.names.filter(n, n.startsWith('a')).size() == 1", ["a", "b"], ["a", "ab"]),
        ("self.names.exists_one(n, n == 'a')", ["a", "b"], ["a", "a"]),
        ("self.names.map(n, n + 'x')[0] == 'ax'", ["a"], ["b"]),
        ("'a' in self.names ? true : false", ["a"], []),
        ("self.names.isSorted()", ["a", "b"], ["b", "a"]),
        ("self.names.all(n, n.lowerAscii() == n)", ["a"], ["A"]),
    ],
)
def test_rule_errors_read_as_on_a_real_server(
    space: Space, crds: Definitions, rule: str, good: list[str], bad: list[str]
) -> None:
    crds.create(crd("gadgets", version=rules({"rule": rule})))
    gadgets = Gadgets(space)
    assert gadgets.make("good", names=good).status == 201
    refused = gadgets.make("bad", names=bad)
    assert refused.status == 422, refused
    assert refused.causes[0]["message"].endswith(f"failed rule: {rule}")


@pytest.mark.point(49)
def test_versions_without_conversion_differ_only_in_their_api_version(space: Space, crds: Definitions) -> None:
    schema = crd("gadgets")["spec"]["versions"][0]["schema"]
    versions = [
        {"name": name, "served": name != "v1alpha1", "storage": name == "v1", "schema": schema}
        for name in ("v1", "v1beta1", "v1alpha1")
    ]
    crds.create(crd("gadgets", versions=versions))
    new, old, off = (space.path("gadgets", group=f"{GROUP}/{name}") for name in ("v1", "v1beta1", "v1alpha1"))
    created = space.api.post(old, custom("Gadget", "a", spec={"x": 1}) | {"apiVersion": f"{GROUP}/v1beta1"})
    assert (created.status, created.json["apiVersion"]) == (201, f"{GROUP}/v1beta1")
    read = space.api.get(f"{new}/a").json
    assert read["apiVersion"] == f"{GROUP}/v1"
    assert (read["spec"], read["metadata"]["uid"]) == ({"x": 1}, created.json["metadata"]["uid"])
    listed = space.api.get(old).json
    assert (listed["apiVersion"], listed["items"][0]["apiVersion"]) == (f"{GROUP}/v1beta1", f"{GROUP}/v1beta1")
    with space.api.watch(old) as watch:
        assert watch.next()["object"]["apiVersion"] == f"{GROUP}/v1beta1"
    assert space.api.get(off).status == 404
    wrong = space.api.post(new, custom("Gadget", "b") | {"apiVersion": f"{GROUP}/v1beta1"})
    assert (wrong.status, wrong.reason) == (400, "BadRequest")


@pytest.mark.point(49)
def test_objects_of_an_earlier_storage_version_are_read_and_changed_in_every_version(
    space: Space, crds: Definitions
) -> None:
    entry = version({"old": {"type": "integer"}, "both": {"type": "integer"}}, served=True)
    new_spec = {"both": {"type": "integer"}, "new": {"type": "integer", "default": 7}}
    newer = version(new_spec, name="v2", served=True, storage=False)
    body = crd("gadgets", versions=[entry | {"name": "v1", "storage": True}, newer])
    name = crds.create(body)["metadata"]["name"]
    first, second = (space.path("gadgets", group=f"{GROUP}/{each}") for each in ("v1", "v2"))
    for each in ("patched", "put", "applied", "deleted", "kept"):
        made = custom("Gadget", each, spec={"old": 1, "both": 2}, metadata={"finalizers": ["test.torchyard.dev/f"]})
        assert space.api.post(first, made).status == 201
    current = crds.get(name)
    entry["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["later"] = {"type": "integer", "default": 5}
    current["spec"]["versions"] = [entry | {"name": "v1", "storage": False}, newer | {"storage": True}]
    assert space.api.put(path("customresourcedefinitions", name), current).status == 200

    def is_changed() -> bool:
        return "later" in space.api.get(f"{first}/kept").json["spec"]

    eventually(is_changed, "the changed definition")
    assert space.api.get(f"{second}/kept").json["spec"] == {"both": 2}
    assert space.api.get(f"{first}/kept").json["spec"] == {"both": 2, "old": 1, "later": 5}
    assert space.api.get(f"{second}/kept").json["apiVersion"] == f"{GROUP}/v2"
    assert {item["apiVersion"] for item in space.api.get(second).json["items"]} == {f"{GROUP}/v2"}
    with space.api.watch(second) as watch:
        assert {watch.next()["object"]["apiVersion"] for _ in range(5)} == {f"{GROUP}/v2"}
    assert space.api.get(f"{first}/kept").json["apiVersion"] == f"{GROUP}/v1"

    patched = space.api.patch(f"{second}/patched", {"spec": {"both": 3}})
    assert (patched.status, patched.json["apiVersion"]) == (200, f"{GROUP}/v2"), patched
    assert (patched.json["spec"], patched.json["metadata"]["generation"]) == ({"both": 3, "new": 7}, 2)
    applied = space.api.apply(f"{second}/applied", custom("Gadget", "applied") | {"apiVersion": f"{GROUP}/v2"})
    assert (applied.status, applied.json["apiVersion"]) == (200, f"{GROUP}/v2"), applied
    before = space.api.get(f"{second}/put").json
    after = space.api.put(f"{second}/put", before).json
    assert (after["spec"], after["metadata"]["generation"]) == ({"both": 2, "new": 7}, 2)
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"], "it is stored in the new one"
    deleted = space.api.delete(f"{second}/deleted")
    assert (deleted.status, deleted.json["apiVersion"]) == (200, f"{GROUP}/v2")
    left = space.api.get(f"{second}/deleted").json
    assert (left["apiVersion"], left["spec"]) == (f"{GROUP}/v2", {"both": 2, "new": 7})
    for each in ("patched", "put", "applied", "deleted", "kept"):
        freed = space.api.patch(f"{second}/{each}", {"metadata": {"finalizers": None}})
        assert freed.status == 200, freed


@pytest.mark.point(50)
def test_printer_columns_shape_the_table(space: Space, crds: Definitions) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Extra", "type": "string", "jsonPath": ".spec.extra", "priority": 1},
    ]
    properties = {"size": {"type": "integer"}, "extra": {"type": "string"}}
    subresources: Object = {"status": {}}
    crds.create(
        crd("gadgets", version=version(properties, additionalPrinterColumns=columns, subresources=subresources))
    )
    gadgets = Gadgets(space)
    assert gadgets.make("a", size=3).status == 201
    space.api.patch(f"{gadgets.at}/a/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    table = space.api.get(gadgets.at, headers=TABLE).json
    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Ready", "string", 0),
        ("Since", "date", 0),
        ("Extra", "string", 1),
    ]
    name, size, ready, since, extra = table["rows"][0]["cells"]
    assert (name, size, ready, extra) == ("a", 3, "True", None)
    assert since[-1] == "s" or since == "<invalid>"


@pytest.mark.point(50)
def test_without_columns_a_table_shows_name_and_age(space: Space, crds: Definitions) -> None:
    crds.create(crd("gadgets"))
    table = space.api.get(space.path("gadgets", group=f"{GROUP}/v1"), headers=TABLE).json
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Age"]


@pytest.mark.point(50)
def test_cluster_scoped_definitions_serve_without_a_namespace(api: Client, crds: Definitions, space: Space) -> None:
    crds.create(crd("gadgets", scope="Cluster"))
    at = f"/apis/{GROUP}/v1/gadgets"
    created = api.post(at, custom("Gadget", "a"))
    assert (created.status, "namespace" in created.json["metadata"]) == (201, False)
    assert api.post(space.path("gadgets", group=f"{GROUP}/v1"), custom("Gadget", "b")).status in (404, 405)
