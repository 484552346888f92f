"""Requests with good and bad objects of every queue kind: each field of Kueue's schema, changed in all ways that could
matter to a rule about it.

A request is a JSON patch of a valid object: created with it, or updated by it (its spec, or its status).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.kueue.object_samples import SAMPLES, Sample
from tests.kueue.peers import schemas

Object = dict[str, Any]
Path = tuple[str | int, ...]

_LONG = 700
_SCALARS: dict[str, Any] = {"string": "x", "integer": 3, "object": {"x": "y"}}
_QUANTITIES = ("-1", "0", "1n", "2n", "1.5", "1e3", "1Ki", "x", "", " 1", "9" * 20, 2, 1.5)
_STRINGS = ("", "@a", "Upper", "a.b", "a/b", "a" * 64)
_KEYS = ("", "@a", "a/b", "a" * 64)
_OF_EACH_TEMPLATE = ("/image", "/requests/cpu", "/labels/a")
_POD_SPEC_DEPTH = 3  # below a pod's spec, fields that the sample does not have are changed up to here


class ObjectCase(NamedTuple):
    sample: str
    verb: str  # create, update or status
    patch: list[Object]

    @property
    def key(self) -> str:
        what = ", ".join(f"{entry['op']} {entry['path']} {_short(entry.get('value'))}" for entry in self.patch)
        return f"{self.sample}: {self.verb} {what}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)})"


def all_cases() -> Iterator[ObjectCase]:
    for name, sample in SAMPLES.items():
        yield from _cases_of(name, sample)


def _cases_of(name: str, sample: Sample) -> Iterator[ObjectCase]:
    schema = schemas()[sample.kind, sample.version]
    known: set[str] = set()
    for verb in sample.verbs:
        for field, part in schema["properties"].items():
            if field in ("apiVersion", "kind", "metadata") or (verb == "status") != (field == "status"):
                continue
            for patch in _changes(part, sample.obj.get(field), (field,)):
                case = ObjectCase(name, verb, patch)
                if case.key not in known and not _is_left_out(case):
                    known.add(case.key)
                    yield case


def _is_left_out(case: ObjectCase) -> bool:
    """Templates are validated in the same way by all requests and versions."""
    is_first = case.sample == "pending" and case.verb == "create"
    path = case.patch[0]["path"]
    return not is_first and "/template/" in path and not path.endswith(_OF_EACH_TEMPLATE)


def _changes(schema: Object, value: Any, path: Path) -> Iterator[list[Object]]:
    """Patches of the value at `path`, and of all parts of it."""
    if value is not None:
        yield [{"op": "remove", "path": pointer(path)}]
    elif is_pod_detail(path):
        for wrong in ("x", ["x"]):
            yield _add(path, wrong)
        return
    for new in _values(schema, value):
        if new != value or type(new) is not type(value):
            yield _add(path, new)
    yield from _parts(schema, value, path)


def is_pod_detail(path: Path) -> bool:
    """Whether this is a field of a pod's spec far from what queues look at."""
    return "template" in path and len(path) - path.index("template") > _POD_SPEC_DEPTH


def _parts(schema: Object, value: Any, path: Path) -> Iterator[list[Object]]:
    if "properties" in schema:
        if value is None:
            return
        yield _add((*path, "unknown"), "x")
        for name, part in schema["properties"].items():
            yield from _changes(part, value.get(name), (*path, name))
    elif schema.get("type") == "array" and value:
        yield from _changes(schema["items"], value[0], (*path, 0))
    elif isinstance(schema.get("additionalProperties"), dict) and value:
        key = next(iter(value))
        yield from _changes(schema["additionalProperties"], value[key], (*path, key))
        for name in _KEYS:
            yield _add((*path, name), value[key])


def _values(schema: Object, value: Any) -> Iterator[Any]:
    if schema.get("x-kubernetes-int-or-string"):
        yield from (None, {}, [], *_QUANTITIES)
        return
    kind = schema["type"]
    yield None
    yield from (_SCALARS[other] for other in _SCALARS if other != kind)
    if kind == "string":
        yield from _strings(schema)
    elif kind == "integer":
        yield from (-1, 0, 1, 1.0, 1.5, 2**31, -(2**31) - 1, 2**63)
    elif kind == "array":
        yield from _arrays(schema, value)
    elif kind == "object":
        yield {}


def _strings(schema: Object) -> Iterator[str]:
    yield from schema.get("enum", ())
    if "enum" in schema:
        yield from ("", "Other", schema["enum"][0].lower())
    elif schema.get("format") == "date-time":
        yield from ("", "2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+01:00", "2026-13-01T00:00:00Z")
    else:
        yield from _STRINGS
        limit = schema.get("maxLength", _LONG)
        yield from ("a" * limit, "a" * (limit + 1))


def _arrays(schema: Object, value: list[Any] | None) -> Iterator[list[Any]]:
    yield []
    if not value:
        return
    yield [None]
    yield [value[0], value[0]]
    limit = schema.get("maxItems", 20)
    if limit <= 64:
        for count in (limit, limit + 1):
            yield list(_copies(schema, value[0], count))


def _copies(schema: Object, item: Any, count: int) -> Iterator[Any]:
    keys = schema.get("x-kubernetes-list-map-keys") or ["name", "key"]
    for number in range(count):
        if isinstance(item, dict):
            own = {key: f"{item[key]}{number}" for key in keys if isinstance(item.get(key), str)}
            yield {**copy.deepcopy(item), **own}
        else:
            yield f"{item}{number}"


def _add(path: Path, value: Any) -> list[Object]:
    return [{"op": "add", "path": pointer(path), "value": value}]  # of a list: instead of the item


def value_at(obj: Any, path: str) -> Any:
    """None if there is none."""
    for part in parts_of(path):
        if isinstance(obj, list):
            obj = obj[int(part)] if int(part) < len(obj) else None
        else:
            obj = (obj or {}).get(part)
    return obj


def parts_of(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def pointer(path: Iterable[str | int]) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def patched(obj: Object, patch: list[Object]) -> Object:
    """The object with a patch whose parents exist. An item of a list is replaced, as its tests mean it."""
    result = copy.deepcopy(obj)
    for entry in patch:
        *parents, last = parts_of(entry["path"])
        holder: Any = result
        for part in parents:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        position: Any = int(last) if isinstance(holder, list) else last
        if entry["op"] == "remove":
            del holder[position]
        else:
            holder[position] = entry["value"]
    return result
