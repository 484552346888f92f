"""Generates requests: valid objects, mutated ones, random values of each schema, and bytes that are none of these."""

from __future__ import annotations

import random
import string
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
import yaml
from tests.support.large_bodies import large_fields

from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.schema.builtin import definition_of
from torchyard.api.schema.protobuf import Field, message_fields
from torchyard.api.schema.types import Type

NAMESPACE = "fuzz"
NAMES = [f"x{number}" for number in range(8)]
PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
# These need a connection, or another program that answers.
STREAMS = frozenset(("exec", "attach", "portforward", "log", "proxy"))
# What is stored here changes the answers of the whole plane, as it would on any cluster.
DRY_RUN_ONLY = frozenset(
    (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "apiservices",
        "customresourcedefinitions",
        "namespaces",
        "nodes",
        "clusterroles",
        "clusterrolebindings",
    )
)
OTHER_PATHS = ("/api", "/apis", "/openapi/v2", "/openapi/v3", "/version", "/healthz", "/readyz", "/metrics", "/x", "//")


class FuzzedRequest(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        body = self.body if len(self.body) < 2000 else self.body[:2000] + b"..."
        return f"{self.method} {self.path}?{self.query} {self.headers} {body!r}"


class RequestFuzzer:
    """An endless, repeatable stream of requests for some resources. `samples`: valid objects by `plural.group`."""

    def __init__(self, seed: int, resources: list[Resource], samples: dict[str, Object], *, large: float) -> None:
        self.draw = random.Random(seed)
        self._resources = [resource for resource in resources if resource.type is not None]
        self._samples = samples
        self._large = large  # the share of bodies with a long list
        self._large_fields = {
            id(resource): list(large_fields(resource.type)) for resource in self._resources if resource.type is not None
        }

    def __iter__(self) -> Iterator[FuzzedRequest]:
        while True:
            yield self._other() if self.draw.random() < 0.02 else self._request()

    def _other(self) -> FuzzedRequest:
        path = self.draw.choice(OTHER_PATHS) + self.draw.choice(("", "", "/", "/v1", "/batch/v1", "/%2e%2e", "?x=%ff"))
        return FuzzedRequest(
            self.draw.choice(("GET", "GET", "POST", "PUT", "DELETE")), path, "", self._headers(""), b""
        )

    def _request(self) -> FuzzedRequest:
        draw, resource = self.draw, self.draw.choice(self._resources)
        method = draw.choices(("POST", "PUT", "PATCH", "GET", "DELETE"), (5, 3, 5, 4, 1))[0]
        path = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        if resource.namespaced and draw.random() < 0.95:
            path += f"/namespaces/{NAMESPACE if draw.random() < 0.95 else quote(self._text(), safe='')}"
        path += f"/{resource.plural}"
        name = draw.choice(NAMES) if draw.random() < 0.97 else quote(self._text(), safe="")
        if method in ("PUT", "PATCH") or (method in ("GET", "DELETE") and draw.random() < 0.6):
            path += f"/{name}"
            subresources = sorted(set(resource.subresources) - STREAMS)
            if subresources and draw.random() < 0.25:
                path += f"/{draw.choice(subresources)}"
        content_type, body = self._body(resource, method, name)
        is_dry = resource.plural in DRY_RUN_ONLY or draw.random() < 0.3
        if method == "GET":
            content_type, body = "", b""
        elif method == "DELETE" and draw.random() < 0.5:
            body = b""
        return FuzzedRequest(method, path, self._query(method, is_dry=is_dry), self._headers(content_type), body)

    def _headers(self, content_type: str) -> dict[str, str]:
        draw = self.draw
        headers = {"Content-Type": content_type} if content_type else {}
        accept = draw.choice((JSON, JSON, TABLE, METADATA, YAML, PROTOBUF, "*/*", "", "text/html", ";;;,"))
        return {**headers, "Accept": accept, "User-Agent": draw.choice(("fuzz/1", "", "\x7f/é", "kubectl/v1.34"))}

    def _query(self, method: str, *, is_dry: bool) -> str:
        draw = self.draw
        pairs = [("dryRun", "All")] if is_dry and method != "GET" else []
        for _ in range(draw.choices((0, 1, 2, 3), (5, 3, 1, 1))[0]):
            name = draw.choice(
                (
                    "labelSelector",
                    "fieldSelector",
                    "limit",
                    "continue",
                    "resourceVersion",
                    "resourceVersionMatch",
                    "fieldManager",
                    "fieldValidation",
                    "force",
                    "gracePeriodSeconds",
                    "propagationPolicy",
                    "pretty",
                    "includeObject",
                    "timeoutSeconds",
                )
            )
            values = {
                "labelSelector": ("a=b", "a in (b,c)", "!a", "a,,b", "a notin (", "x" * 2000, ",".join(["a=b"] * 500)),
                "fieldSelector": ("metadata.name=x1", "spec.x=1", "a\\", "=,=", "status.phase!=Running", "," * 500),
                "limit": ("1", "0", "-1", "500", "9" * 30, "x"),
                "continue": (
                    "x",
                    "eyJydiI6MX0",
                    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4XHUwMDAwIn0",
                    "%00",
                ),
                "resourceVersion": ("0", "1", "x", "-1"),
                "fieldValidation": ("Strict", "Warn", "Ignore", "x"),
                "gracePeriodSeconds": ("0", "1", "-1", "9223372036854775807", "x"),
                "propagationPolicy": ("Foreground", "Orphan", "Background", "x"),
                "fieldManager": ("a", "é" * 200, "\x00"),
            }.get(name, ("true", "false", "1", ""))
            pairs.append((name, draw.choice(values) if draw.random() < 0.9 else self._text()))
        if method == "PATCH" and draw.random() < 0.8:
            pairs.append(("fieldManager", "fuzz"))
        return "&".join(f"{name}={quote(value)}" for name, value in pairs)

    # Bodies

    def _body(self, resource: Resource, method: str, name: str) -> tuple[str, bytes]:
        draw = self.draw
        obj = self._object(resource, name)
        if method == "PATCH":
            content_type = draw.choice(PATCHES)
            if content_type == PATCHES[0]:
                obj = self._json_patch(obj)
            elif content_type == PATCHES[2] and draw.random() < 0.5:
                obj = self._with_directives(obj)
            body = yaml.safe_dump(obj).encode() if content_type == PATCHES[3] and draw.random() < 0.2 else _dump(obj)
        elif (form := draw.random()) < 0.15 and definition_of(resource.gvk):
            content_type, body = PROTOBUF, encode_protobuf(resource, obj)
        elif form < 0.25:
            content_type, body = YAML, yaml.safe_dump(obj).encode()
        else:
            content_type, body = JSON, _dump(obj)
        if draw.random() < 0.15:
            body = self._damaged(body)
        if draw.random() < 0.02:
            content_type = draw.choice((*PATCHES, JSON, YAML, PROTOBUF, "text/plain", "", "x;y=z"))
        return content_type, body

    def _object(self, resource: Resource, name: str) -> Any:
        draw = self.draw
        sample = self._samples.get(f"{resource.plural}.{resource.group}".rstrip("."))
        if sample is not None and draw.random() < 0.7:
            obj = orjson.loads(orjson.dumps(sample))
        else:
            assert resource.type is not None
            obj = self._value(resource.type, 0)
        if isinstance(obj, dict):
            obj |= {"apiVersion": resource.gvk.api_version, "kind": resource.gvk.kind}
            metadata = obj.get("metadata")
            if isinstance(metadata, dict | None) or draw.random() < 0.9:
                obj["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), "name": name}
                obj["metadata"].pop("namespace", None)
            for _ in range(draw.choices((0, 1, 2, 4), (4, 4, 2, 1))[0]):
                self._mutate(obj, resource.type)
            fields = self._large_fields[id(resource)]
            if fields and resource.type is not None and draw.random() < self._large:
                field = draw.choice(fields)
                obj = field.fill(obj, resource.type, draw.choice((50, 200, 1000, 3000)))
        return obj

    def _mutate(self, obj: Any, type: Type | None) -> None:
        """Change one place of an object: a field of its schema, or any value in it."""
        draw = self.draw
        while isinstance(obj, dict | list) and obj:
            key: Any = draw.choice(list(obj)) if isinstance(obj, dict) else draw.randrange(len(obj))
            inner = None
            if type is not None:
                inner = type.fields.get(key) or type.values if isinstance(obj, dict) else type.items
            if draw.random() < 0.3 or not isinstance(obj[key], dict | list) or not obj[key]:
                break
            obj, type = obj[key], inner
        if not isinstance(obj, dict | list):
            return
        if isinstance(obj, list):
            if obj and draw.random() < 0.5:
                obj[draw.randrange(len(obj))] = self._junk(2)
            else:
                obj.extend([obj[0] if obj else self._junk(2)] * draw.choice((1, 1, 20)))
            return
        if type is not None and type.fields and draw.random() < 0.7:
            name = draw.choice(list(type.fields))
            obj[name] = self._value(type.fields[name], 2) if draw.random() < 0.8 else self._junk(2)
        elif obj and draw.random() < 0.5:
            del obj[draw.choice(list(obj))]
        else:
            obj[self._text()] = self._junk(2)

    def _value(self, type: Type, depth: int) -> Any:  # noqa: PLR0911 - one return per shape
        draw = self.draw
        if draw.random() < 0.03:
            return self._junk(2)
        match type.shape:
            case "object":
                names = [name for name in type.fields if draw.random() < (0.5 if depth < 3 else 0.1)][:6]
                return {
                    name: self._value(type.fields[name], depth + 1)
                    for name in {*names, *(name for name in type.required if name in type.fields and depth < 8)}
                }
            case "map" if type.values is not None:
                return {self._text(): self._value(type.values, depth + 1) for _ in range(draw.randrange(3))}
            case "list" if type.items is not None:
                return [self._value(type.items, depth + 1) for _ in range(draw.randrange(3))]
            case "integer" | "number":
                return draw.choice((0, 1, -1, 80, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 1.5, 1e300))
            case "boolean":
                return draw.random() < 0.5
            case "int-or-string":
                return draw.choice((1, "http", "50%", "9" * 5000 + "%", -1))
        if type.enum:
            return draw.choice(type.enum)
        formats = {
            "quantity": ("1", "100m", "1Gi", "1e9", "-1", "9" * 5000, "1e999999", "x", ".5", "1E"),
            "date-time": ("2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "x", "0000-00-00T00:00:00Z"),
            "micro-time": ("2026-01-01T00:00:00.000001Z", "x"),
            "byte": ("YQ==", "!", "a"),
        }
        return draw.choice(formats.get(type.format, ())) if type.format in formats else self._text()

    def _junk(self, depth: int) -> Any:
        draw = self.draw
        kind = draw.randrange(9)
        if kind == 0 and depth:
            return {self._text(): self._junk(depth - 1) for _ in range(draw.randrange(4))}
        if kind == 1 and depth:
            return [self._junk(depth - 1) for _ in range(draw.randrange(4))]
        return draw.choice((None, True, False, 0, -1, 2**63 - 1, 1e308, 0.1, "", self._text(), [], {}))

    def _text(self) -> str:
        draw = self.draw
        known = (
            "a",
            "default",
            "x1",
            "app",
            "TCP",
            "Always",
            "1",
            "-",
            ".",
            "/",
            "a/b",
            "A_B",
            "*",
            "$(A)",
            "a=b",
            "@every 1s",
        )
        match draw.randrange(12):
            case 0:
                return "".join(draw.choices(string.printable, k=draw.randrange(1, 20)))
            case 1:
                return "".join(chr(draw.randrange(1, 0xD7FF)) for _ in range(draw.randrange(1, 8)))
            case 2:
                return draw.choice(("a" * 63, "a" * 64, "a" * 254, "a." * 120, "-" * 1000, "9" * 5000, "²", "٣"))
        return draw.choice(known)

    def _json_patch(self, obj: Any) -> Any:
        draw = self.draw
        paths = [
            "",
            "/",
            "/spec",
            "/metadata/labels",
            "/metadata/labels/a",
            "/metadata/name",
            "/data/a",
            "/spec/-",
            "/spec/0",
        ]
        paths += [
            "/metadata/finalizers/-",
            "/spec/containers/0/image",
            "/spec/containers/" + "9" * 5000,
            "x",
            "/~2",
            "/a~1b",
        ]
        operations = []
        for _ in range(draw.choice((0, 1, 1, 2, 5, 100))):
            operation: Object = {"op": draw.choice(("add", "remove", "replace", "move", "copy", "test", "x"))}
            operation["path"] = draw.choice(paths)
            if draw.random() < 0.5:
                operation["from"] = draw.choice(paths)
            if draw.random() < 0.8:
                operation["value"] = self._junk(2)
            operations.append(operation if draw.random() < 0.98 else self._junk(1))
        return operations

    def _with_directives(self, obj: Any) -> Any:
        draw = self.draw
        if isinstance(obj, dict):
            changed = {key: self._with_directives(value) for key, value in obj.items()}
            if draw.random() < 0.1:
                changed["$patch"] = draw.choice(("delete", "replace", "merge", "x", 1))
            if changed and draw.random() < 0.1:
                key = draw.choice(list(changed))
                changed[draw.choice((f"$setElementOrder/{key}", f"$deleteFromPrimitiveList/{key}", "$retainKeys"))] = (
                    draw.choice(([], [{"name": "a"}], ["a"], "x", [1, {}], list(changed)))
                )
            return changed
        return [self._with_directives(item) for item in obj] if isinstance(obj, list) else obj

    def _damaged(self, body: bytes) -> bytes:
        draw = self.draw
        match draw.randrange(8):
            case 0:
                return body[: draw.randrange(len(body) + 1)]
            case 1:
                return body + draw.randbytes(draw.randrange(40))
            case 2:
                at = draw.randrange(len(body) + 1)
                return body[:at] + draw.randbytes(draw.randrange(1, 4)) + body[at + 1 :]
            case 3:
                return draw.randbytes(draw.randrange(200))
            case 4:
                return b"k8s\0" + draw.randbytes(draw.randrange(200))
            case 5:
                return draw.choice(
                    (b"[" * 20_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"- " * 3_000, b"[" * 300 + b"]" * 300)
                )
            case 6:
                return body.replace(b":", b":1" + b"0" * draw.choice((20, 400, 10_000)) + b',"a":', 1)
        at = body.find(b"{") + 1
        return body[:at] + b'"metadata":{"name":"x1","name":"x2"},"\\u0022":1,' + body[at:]


def _dump(obj: Any) -> bytes:
    return orjson.dumps(obj)


# Protobuf


def encode_protobuf(resource: Resource, obj: Any) -> bytes:
    """The object as a client sends it; fields that do not fit their message are left out."""
    name = definition_of(resource.gvk) or ""
    type_meta = _bytes_field(1, resource.gvk.api_version.encode()) + _bytes_field(2, resource.gvk.kind.encode())
    raw = _message(name, obj) if isinstance(obj, dict) and message_fields(name) is not None else b""
    return b"k8s\0" + _bytes_field(1, type_meta) + _bytes_field(2, raw)


def _message(name: str, obj: Object) -> bytes:
    parts: list[bytes] = []
    for number, field in (message_fields(name) or {}).items():
        value = obj.get(field.name)
        if value is None or not field.name:
            continue
        if field.keyed and isinstance(value, dict):
            for key, item in value.items():
                parts.append(_bytes_field(number, _bytes_field(1, key.encode()) + _encoded(2, field, item)))
        elif field.repeated and isinstance(value, list):
            parts += [_encoded(number, field, item) for item in value]
        else:
            parts.append(_encoded(number, field, value))
    return b"".join(parts)


def _encoded(number: int, field: Field, value: Any) -> bytes:
    match field.type, value:
        case ("string", str()):
            return _bytes_field(number, value.encode("utf-8", "replace"))
        case (("int32" | "int64" | "bool"), int()):
            return _varint(number << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)
        case ("double", float() | int()):
            return _varint(number << 3 | 1) + struct.pack("<d", float(value))
        case ("bytes", str()):
            return _bytes_field(number, value.encode("utf-8", "replace"))
        case (_, dict()):
            return _bytes_field(number, _message(field.type, value))
        case (_, str()):
            return _bytes_field(number, _bytes_field(1, value.encode("utf-8", "replace")))
    return b""


def _bytes_field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while True:
        byte, value = value & 127, value >> 7
        encoded.append(byte | (128 if value else 0))
        if not value:
            return bytes(encoded)
