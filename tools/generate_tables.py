"""Generate the schema tables of the package: generate_tables.py SOURCE_DIR KUBE_APISERVER [TARGET_DIR].

SOURCE_DIR holds the self-description of a real Kubernetes API server: discovery-*.json (groups, resources, verbs),
openapi-*.json.xz (every schema, without prose) and protobuf-fields.json (message -> number -> name, type).
KUBE_APISERVER is the server's binary: which fields Go omits when they are zero is read from its type metadata.

The output is text files in src/torchyard/api/schema/data/, or in the given target. In most of them each line is one
definition, so that a reader finds it without parsing the others. They are not compressed, because a wheel is.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

from read_go_types import structs_of

DATA = Path(__file__).parent.parent / "src/torchyard/api/schema/data"
REF = "#/components/schemas/"

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
METRICS = "io.k8s.metrics.pkg.apis.metrics.v1beta1."
# What has its own JSON form in Go, so that its struct says nothing: definition -> our spelling.
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "string:quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    META + "Time": "string:date-time",
    META + "MicroTime": "string:micro-time",
    META + "FieldsV1": "any",
    META + "Duration": "string:duration",
    META + "Patch": "any",
    EXTENSIONS + "JSON": "any",
    EXTENSIONS + "JSONSchemaPropsOrArray": "any",
    EXTENSIONS + "JSONSchemaPropsOrBool": "any",
    EXTENSIONS + "JSONSchemaPropsOrStringArray": "any",
}
# Their zero is written as null.
NULL_ZERO = {META + "Time", META + "MicroTime", "io.k8s.apimachinery.pkg.runtime.RawExtension", META + "FieldsV1"}
# The aggregated metrics API is no part of the API server, so neither is its schema: field -> its OpenAPI form.
METRICS_SCHEMAS: dict[str, Any] = {
    "ContainerMetrics": {"name": {"type": "string", "default": ""}, "usage": "usage"},
    "NodeMetrics": {"timestamp": META + "Time", "window": META + "Duration", "usage": "usage"},
    "PodMetrics": {
        "timestamp": META + "Time",
        "window": META + "Duration",
        "containers": {"type": "array", "items": {"$ref": REF + METRICS + "ContainerMetrics"}},
    },
}
METRICS_RESOURCES = [
    {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": ["get", "list"]},
    {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
]


def go_name(definition: str) -> str:
    """io.k8s.api.core.v1.Pod -> k8s.io/api/core/v1.Pod"""
    package, _, name = definition.rpartition(".")
    return "k8s.io/" + package.removeprefix("io.k8s.").replace(".", "/") + "." + name


def definition_name(go: str) -> str:
    package, _, name = go.rpartition(".")
    return "io.k8s." + package.removeprefix("k8s.io/").replace("/", ".") + "." + name


def metrics_schemas() -> dict[str, Any]:
    """The schemas of metrics.k8s.io in the form of the others."""
    usage = {"type": "object", "additionalProperties": {"$ref": REF + "io.k8s.apimachinery.pkg.api.resource.Quantity"}}
    collected: dict[str, Any] = {}
    for kind, fields in METRICS_SCHEMAS.items():
        properties: dict[str, Any] = {}
        for name, form in fields.items():
            properties[name] = usage if form == "usage" else {"$ref": REF + form} if isinstance(form, str) else form
        collected[METRICS + kind] = schema = {"type": "object", "properties": properties, "required": list(properties)}
        if kind == "ContainerMetrics":
            continue
        type_meta = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        gvk = {"group": "metrics.k8s.io", "version": "v1beta1"}
        schema["properties"] = {**type_meta, "metadata": {"$ref": REF + META + "ObjectMeta"}, **properties}
        schema["x-kubernetes-group-version-kind"] = [{**gvk, "kind": kind}]
        items = {"type": "array", "items": {"$ref": REF + METRICS + kind}}
        collected[METRICS + kind + "List"] = {
            "type": "object",
            "properties": {**type_meta, "metadata": {"$ref": REF + META + "ListMeta"}, "items": items},
            "required": ["items"],
            "x-kubernetes-group-version-kind": [{**gvk, "kind": kind + "List"}],
        }
    collected[META + "Duration"] = {}
    return collected


def reference(schema: dict[str, Any]) -> str:
    target = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf", ())), "")
    return str(target).removeprefix(REF)


def spell(schema: dict[str, Any]) -> Any:
    """The compact form of a schema: a scalar's name, a definition's name, or an object with what else is known."""
    row: dict[str, Any] = {}
    kind = schema.get("type")
    if target := reference(schema):
        row["type"] = target
    elif kind == "array":
        row["items"] = spell(schema["items"])
    elif kind == "object" and "additionalProperties" in schema:
        row["values"] = spell(schema["additionalProperties"])
    elif kind == "object" or not kind:
        row["type"] = "any"
    else:
        row["type"] = f"{kind}:{schema['format']}" if "format" in schema else kind
    for key, name in (
        ("enum", "enum"),
        ("x-kubernetes-list-type", "list"),
        ("x-kubernetes-list-map-keys", "keys"),
        ("x-kubernetes-patch-strategy", "strategy"),
        ("x-kubernetes-patch-merge-key", "merge"),
    ):
        if key in schema:
            row[name] = schema[key]
    if "x-kubernetes-map-type" in schema:
        row["atomic"] = schema["x-kubernetes-map-type"] == "atomic"
    if row.get("list") == "atomic":
        del row["list"]
    return row["type"] if set(row) == {"type"} else row


def zero(go: dict[str, Any]) -> dict[str, Any]:
    """What encoding/json does with a zero field: omit it (the default), keep it if sent, or always write it."""
    kind, omit = go["type"], go["omit"]
    if isinstance(kind, list):
        if "omitempty" not in omit:
            return {"zero": "always", "null": True}
        return {"zero": "keep"} if kind[0] == "*" else {}
    if kind in ("bytes", "interface"):
        return {} if omit else {"zero": "always", "null": True}
    if "/" in kind:  # a struct: omitempty has no effect
        if "omitzero" in omit:
            return {}
        return {"zero": "always", "null": True} if definition_name(kind) in NULL_ZERO else {"zero": "always"}
    return {} if omit else {"zero": "always"}


PLAIN_GO = {"string": "string", "boolean": "bool", "integer:int32": "int32", "integer:int64": "int64"}
PLAIN_GO |= {"number:double": "float64", "string:byte": "[]uint8"}


def field_row(schema: dict[str, Any], go: dict[str, Any]) -> Any:
    row = spell(schema)
    more = zero(go)
    # a zero value as default only repeats that Go always writes one
    if "default" in schema and not (more == {"zero": "always"} and schema["default"] in ({}, "", 0)):
        more["default"] = schema["default"]
    spelled = go["go"].lstrip("*")
    # Go's type matters in messages only; it is kept where the name cannot be derived
    if isinstance(row, str):
        derived = PLAIN_GO.get(row) or ".".join(row.split(".")[-2:])
    else:
        derived = PLAIN_GO.get(row.get("type", "")) or ".".join(row.get("type", "").split(".")[-2:])
        items, values = row.get("items"), row.get("values")
        if isinstance(items, str):
            derived = "[]" + (PLAIN_GO.get(items) or ".".join(items.split(".")[-2:]))
        elif isinstance(values, str):
            derived = "map[string]" + (PLAIN_GO.get(values) or ".".join(values.split(".")[-2:]))
    if spelled != derived:
        more["go"] = spelled
    if not more:
        return row
    return {**({"type": row} if isinstance(row, str) else row), **more}


def definition_row(name: str, schema: dict[str, Any], structs: dict[str, Any]) -> dict[str, Any]:
    if name in SPECIAL:
        return {"type": SPECIAL[name]}
    go = structs[go_name(name)]
    properties = schema.get("properties", {})
    if properties.keys() != go.keys():
        raise SystemExit(f"{name}: OpenAPI and Go differ in {sorted(properties.keys() ^ go.keys())}")
    row: dict[str, Any] = {"fields": {key: field_row(properties[key], go[key]) for key in sorted(properties)}}
    if "managedFields" in row["fields"]:
        # an empty list is how a client wipes the record: it must not be lost on the way
        row["fields"]["managedFields"]["zero"] = "keep"
    if "required" in schema:
        row["required"] = schema["required"]
    if schema.get("x-kubernetes-map-type") == "atomic":
        row["atomic"] = True
    return row


def kind_of(schema: dict[str, Any]) -> str:
    """group/version/Kind of a definition; */*/Kind for those that every group has."""
    kinds = schema.get("x-kubernetes-group-version-kind", [])
    if not kinds:
        return ""
    if len(kinds) > 1:
        return f"*/*/{kinds[0]['kind']}"
    return f"{kinds[0]['group']}/{kinds[0]['version']}/{kinds[0]['kind']}"


def types_text(schemas: dict[str, Any], structs: dict[str, Any]) -> str:
    lines = []
    for name, schema in sorted(schemas.items()):
        row = json.dumps(definition_row(name, schema, structs), separators=(",", ":"))
        lines.append(f"{name}\t{kind_of(schema)}\t{row}\n")
    return "".join(lines)


def resources_text(discovery: dict[str, Any]) -> str:
    """Groups in the server's order of preference, each version's resources with their subresources beneath."""
    core = {"name": "", "versions": [{"version": "v1"}]}
    metrics = {"name": "metrics.k8s.io", "versions": [{"version": "v1beta1"}]}
    listed = {**discovery["resources"], "/apis/metrics.k8s.io/v1beta1": METRICS_RESOURCES}
    collected = []
    for group in (core, *discovery["groups"], metrics):
        for version in group["versions"]:
            prefix = f"/apis/{group['name']}" if group["name"] else "/api"
            resources = [resource_row(each) for each in listed[f"{prefix}/{version['version']}"]]
            collected.append({"group": group["name"], "version": version["version"], "resources": resources})
    text = json.dumps(collected, separators=(",", ":"))
    return text.replace('{"group"', '\n{"group"').replace('{"name"', '\n{"name"') + "\n"


def resource_row(listed: dict[str, Any]) -> dict[str, Any]:
    """A resource as legacy discovery lists it, less what can be derived."""
    row = {"name": listed["name"], "singular": listed["singularName"], "kind": listed["kind"]}
    row |= {key: listed[key] for key in ("group", "version", "namespaced", "shortNames", "categories") if key in listed}
    return {key: value for key, value in row.items() if value} | {"verbs": listed["verbs"]}


SCALAR_MESSAGES = ("string", "bool", "bytes", "int32", "int64", "double")


def message_name(spelled: str) -> str:
    """.k8s.io.api.core.v1.Pod -> io.k8s.api.core.v1.Pod, which is what OpenAPI calls it."""
    name = spelled.removeprefix(".")
    return name.replace("_", "-").replace("k8s.io.", "io.k8s.", 1) if name.startswith("k8s.io.") else name


def message_field(name: str, spelled: str) -> list[str]:
    """[JSON name, type] with `[]` before a repeated type and `{}` before a map's value type."""
    if spelled.startswith("repeated "):
        return [name, "[]" + message_name(spelled.removeprefix("repeated "))]
    if spelled.startswith("map<string,"):
        return [name, "{}" + message_name(spelled.removeprefix("map<string,").removesuffix(">"))]
    return [name, message_name(spelled)]


def messages_text(listed: dict[str, Any], definitions: set[str]) -> str:
    """The protobuf messages of the served definitions, and those embedded in them without a name."""
    messages = {
        message_name(message): {number: message_field(*field) for number, field in fields.items()}
        for message, fields in listed.items()
    }
    collected: dict[str, Any] = {}
    pending = [name for name in definitions if name in messages]
    while pending:
        name = pending.pop()
        if name in collected:
            continue
        collected[name] = dict(sorted(messages[name].items(), key=lambda item: int(item[0])))
        targets = (field[1].removeprefix("[]").removeprefix("{}") for field in collected[name].values())
        pending += [target for target in targets if target not in SCALAR_MESSAGES]
    lines = [f"{name}\t{json.dumps(row, separators=(',', ':'))}\n" for name, row in sorted(collected.items())]
    return "".join(lines)


def main() -> None:
    source, binary = Path(sys.argv[1]), Path(sys.argv[2])
    target = Path(sys.argv[3]) if len(sys.argv) > 3 else DATA
    openapi = json.loads(lzma.decompress(next(source.glob("openapi-*.json.xz")).read_bytes()))
    schemas = openapi["schemas"] | metrics_schemas()
    messages = json.loads((source / "protobuf-fields.json").read_text())
    discovery = json.loads(next(source.glob("discovery-*.json")).read_text())
    target.mkdir(exist_ok=True)
    (target / "types.txt").write_text(types_text(schemas, structs_of(binary)))
    (target / "protobuf.txt").write_text(messages_text(messages, set(schemas)))
    (target / "resources.json").write_text(resources_text(discovery))


if __name__ == "__main__":
    main()
