"""Which fields of a pod the node honours: the types of the table in `fields`, and the search for fields it does not.

The Warning header of a create request, the event at a pod's start and the table in `docs/pods.md` come from the rows of
that table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torchyard.api.objects import Object

Rung = Literal["engine", "sandbox", "process"]
# honoured; has no effect; the pod or container does not start; the API server removes the field
Support = Literal["yes", "ignored", "refused", "dropped"]
RUNGS: tuple[Rung, ...] = ("engine", "sandbox", "process")
CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
SUBTREE = ".**"
UNSET: tuple[Any, ...] = (None, False, "", [], {})
_TEXTS = {
    "ignored": "has no effect on this node",
    "refused": "is not supported by this node",
    "dropped": "is dropped",
}

Applies = Callable[[Any, Any, Object], bool]  # (value of the field, what holds it, spec of the pod)


@dataclass(frozen=True, slots=True)
class FieldSupport:
    """One row of the table.

    `path` is relative to the spec: `[]` is any element of a list, `{}` any key of a map, `[name]` one key, and a final
    `.**` covers every field below. The row is about the given `values` only, or about all but those that are `unset`.
    """

    path: str
    engine: Support = "yes"
    sandbox: Support = "yes"
    process: Support = "yes"
    note: str = ""
    values: tuple[str, ...] = ()
    unset: tuple[Any, ...] = UNSET
    applies: Applies | None = None

    def on(self, rung: Rung) -> Support:
        return self.engine if rung == "engine" else self.sandbox if rung == "sandbox" else self.process

    def is_about(self, value: Any, holder: Any, spec: Object) -> bool:
        if any(value is other or (type(value) is type(other) and value == other) for other in self.unset):
            return False
        if self.values and value not in self.values:
            return False
        return self.applies is None or self.applies(value, holder, spec)


@dataclass(frozen=True, slots=True)
class UnsupportedField:
    """A field of a pod that the node does not honour: where it is first set, and how often."""

    at: str
    support: Support
    note: str
    count: int = 1

    def __str__(self) -> str:
        places = f" (set in {self.count} places)" if self.count > 1 else ""
        return f"{self.at}: {_TEXTS[self.support]}: {self.note}{places}"


class SupportTable:
    """The rows, indexed so that a pod is compared only with the rows of fields that it sets."""

    def __init__(self, rows: Iterable[FieldSupport]) -> None:
        self.rows = tuple(rows)
        self._trees = {rung: _tree(row for row in self.rows if row.on(rung) != "yes") for rung in RUNGS}

    def unsupported(self, spec: Object, rung: Rung, at: str = "spec") -> list[UnsupportedField]:
        """The fields of a spec that a rung does not honour: at most one for each row."""
        fields: dict[tuple[str, tuple[str, ...]], UnsupportedField] = {}
        for where, row in _search(spec, None, self._trees[rung], at, spec):
            key = (row.path, row.values)
            first = fields.get(key)
            if first is None:
                fields[key] = UnsupportedField(where, row.on(rung), row.note)
            else:
                fields[key] = UnsupportedField(first.at, first.support, first.note, first.count + 1)
        return list(fields.values())


class _Node:
    """The rows about a field, and the fields below it that have rows."""

    __slots__ = ("element", "fields", "keys", "rows")

    def __init__(self) -> None:
        self.rows: list[FieldSupport] = []
        self.fields: dict[str, _Node] = {}
        self.keys: dict[str, _Node] = {}
        self.element: _Node | None = None


def _tree(rows: Iterable[FieldSupport]) -> _Node:
    root = _Node()
    for row in rows:
        for path in expanded_paths(row.path):
            _leaf(root, path).rows.append(row)
    return root


def _leaf(node: _Node, path: str) -> _Node:
    for part in path.removesuffix(SUBTREE).removesuffix("{}").split("."):
        name, bracket, rest = part.partition("[")
        node = node.fields.setdefault(name, _Node())
        key = rest.removesuffix("]")
        if key:
            node = node.keys.setdefault(key, _Node())
        elif bracket:
            node.element = node.element or _Node()
            node = node.element
    return node


def expanded_paths(path: str) -> Iterator[str]:
    """A row of `containers[]` is about the containers of all three lists."""
    if path.startswith("containers[]"):
        yield from (path.replace("containers", kind, 1) for kind in CONTAINER_LISTS)
    else:
        yield path


def _search(value: Any, holder: Any, node: _Node, at: str, spec: Object) -> Iterator[tuple[str, FieldSupport]]:
    for row in node.rows:
        if row.is_about(value, holder, spec):
            yield at, row
    if isinstance(value, list):
        if node.element is not None:
            for index, element in enumerate(value):
                yield from _search(element, value, node.element, f"{at}[{index}]", spec)
    elif isinstance(value, dict):
        for name, child in node.fields.items():
            if name in value:
                yield from _search(value[name], value, child, f"{at}.{name}", spec)
        for name, child in node.keys.items():
            if name in value:
                yield from _search(value[name], value, child, f"{at}[{name}]", spec)
