"""Which fields of a pod the node honours: the types of the table in `fields`, and the search for fields it does not.

The Warning header of a create request, the event at a pod's start and the table in `docs/pods.md` come from the rows of
that table.
"""

from __future__ import annotations

import functools
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


class SearchedSpec:
    """The spec of a pod, and what rows ask about it, computed once."""

    def __init__(self, spec: Object) -> None:
        self.spec = spec

    @functools.cached_property
    def host_paths(self) -> dict[str, str]:
        """The paths of the hostPath volumes by name."""
        return {
            volume.get("name", ""): volume["hostPath"].get("path") or ""
            for volume in self.spec.get("volumes") or ()
            if volume and volume.get("hostPath")
        }


Applies = Callable[[Any, Any, SearchedSpec], bool]  # (value of the field, what holds it, the pod)


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

    def is_about(self, value: Any, holder: Any, searched: SearchedSpec) -> bool:
        if any(value is other or (type(value) is type(other) and value == other) for other in self.unset):
            return False
        if self.values and value not in self.values:
            return False
        return self.applies is None or self.applies(value, holder, searched)


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
        search = _Search(spec)
        search.visit(spec, None, self._trees[rung], None)
        return [
            UnsupportedField(_path(at, steps), row.on(rung), row.note, count)
            for row, steps, count in search.results.values()
        ]


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


# A way into a spec, the last step first: built for every field that is visited, and spelled out only for those found.
_Steps = tuple[Any, str | int, bool]  # the steps before, a field, index or key, and whether it is in brackets


def _path(at: str, steps: _Steps | None) -> str:
    words: list[str] = []
    while steps is not None:
        steps, step, in_brackets = steps
        words.append(f"[{step}]" if in_brackets else f".{step}")
    return at + "".join(reversed(words))


class _Search:
    """One search of a spec. A pod may have ten thousands of elements: each costs a comparison of its keys."""

    def __init__(self, spec: Object) -> None:
        self._searched = SearchedSpec(spec)
        self.results: dict[int, tuple[FieldSupport, _Steps | None, int]] = {}  # row → first occurrence, count

    def visit(self, value: Any, holder: Any, node: _Node, steps: _Steps | None) -> None:
        for row in node.rows:
            if row.is_about(value, holder, self._searched):
                first = self.results.get(id(row))
                self.results[id(row)] = (row, first[1], first[2] + 1) if first else (row, steps, 1)
        if isinstance(value, list):
            if node.element is not None:
                self._visit_elements(value, node.element, steps)
        elif isinstance(value, dict):
            for name, child in node.fields.items():
                if name in value:
                    self.visit(value[name], value, child, (steps, name, False))
            for name, child in node.keys.items():
                if name in value:
                    self.visit(value[name], value, child, (steps, name, True))

    def _visit_elements(self, elements: list[Any], node: _Node, steps: _Steps | None) -> None:
        names = node.fields.keys()
        is_plain = not node.rows and not node.keys
        for index, element in enumerate(elements):
            if is_plain and (not isinstance(element, dict) or names.isdisjoint(element)):
                continue
            self.visit(element, elements, node, (steps, index, True))
