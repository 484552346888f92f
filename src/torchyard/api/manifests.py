"""Reading manifests (YAML or JSON, one or more objects) and explaining why one cannot be read.

A manifest that was copied from a web page or a PDF has often lost its indentation. The YAML error then points far from
the cause, or the YAML parses to something else. This module finds the line with the missing indentation.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from torchyard.api.errors import YardError
from torchyard.api.objects import Object

# Keys that require nested content.
_CONTAINER_KEYS = {"metadata", "spec", "template", "pytorchReplicaSpecs", "Master", "Worker", "jobTemplate"}
_KUSTOMIZATION = re.compile(r"^apiVersion: *kustomize\.config\.k8s\.io/", re.MULTILINE)
_KEY = re.compile(r"^(?P<indent> *)(?P<dash>- +)?(?P<key>[A-Za-z_][\w./-]*):(?P<value>.*)$")


class ManifestError(YardError):
    """The text is not a list of Kubernetes objects."""

    code = "BadManifest"


@dataclass(frozen=True, slots=True)
class MisplacedLine:
    """A line that lacks indentation, and the line that should contain it."""

    line: int
    key: str
    parent: str
    parent_line: int
    spaces: int

    def __str__(self) -> str:
        return (
            f'line {self.line}: "{self.key}" has the same indentation as "{self.parent}" in line {self.parent_line}, '
            "but belongs below it"
        )


def read(text: str, origin: str) -> list[Object]:
    """Return the objects of a manifest, with Lists expanded. `origin` names the file in messages."""
    try:
        documents = [document for document in _documents(text) if document is not None]
    except yaml.YAMLError as error:
        raise _manifest_error(text, origin, _yaml_problem(error)) from error
    objects = [item for document in documents for item in _items(document)]
    if not objects:
        raise ManifestError(f"{origin} contains no objects")
    for obj in objects:
        problem = _problem(obj)
        if problem:
            raise _manifest_error(text, origin, problem)
    return objects


def find_misplaced_lines(text: str) -> list[MisplacedLine]:
    """Return the lines that are siblings of the line that should contain them."""
    lines = [
        (number, match)
        for number, line in enumerate(text.expandtabs(2).splitlines(), 1)
        if (match := _KEY.match(line)) is not None
    ]
    shifts = []
    for (above, parent), (number, child) in itertools.pairwise(lines):
        indent, here = _column(parent), len(child["indent"])
        empty = not parent["value"].split("#")[0].strip()
        if parent["key"] in _CONTAINER_KEYS and empty and not child["dash"] and here == indent:
            shifts.append(MisplacedLine(number, child["key"], parent["key"], above, 2))
        elif parent["dash"] and not child["dash"] and here == len(parent["indent"]):
            shifts.append(MisplacedLine(number, child["key"], f"- {parent['key']}", above, len(parent["dash"])))
    return shifts


def indentation_hint(shifts: list[MisplacedLine]) -> str:
    """Return how to fix the lines."""
    first, *others = shifts
    more = f"; do the same for line {', '.join(str(other.line) for other in others)}" if others else ""
    return f"indent line {first.line} and its block by {first.spaces} spaces{more}"


def _column(match: re.Match[str]) -> int:
    return len(match["indent"]) + len(match["dash"] or "")


def _manifest_error(text: str, origin: str, problem: str) -> ManifestError:
    shifts = find_misplaced_lines(text)
    if not shifts and "\t" in text and "cannot start any token" in problem:
        return ManifestError(f"{origin}: {problem}", hint="YAML is indented with spaces: replace the tabs")
    if not shifts and _KUSTOMIZATION.search(text):
        return ManifestError(f"{origin} is a kustomization", hint="run `kubectl kustomize DIR | yard run -`")
    if not shifts:
        return ManifestError(f"{origin}: {problem}", hint="compare it with `kubectl explain KIND --recursive`")
    return ManifestError(f"{origin} has lost its indentation: {shifts[0]} ({problem})", hint=indentation_hint(shifts))


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1} is not valid YAML: {problem}" if mark else f"not valid YAML: {problem}"


class _Loader(yaml.CSafeLoader):
    """Refuses a key that is written twice, of which YAML would keep the last."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._checked: set[yaml.MappingNode] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Check the keys as they are written: this adds those of `<<`, which may be set again."""
        if node not in self._checked:
            self._checked.add(node)
            _check_keys(node)
        super().flatten_mapping(node)


def _check_keys(node: yaml.MappingNode) -> None:
    keys: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if key.value in keys:
                problem = f"the key {key.value} is set twice"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
            keys.add(key.value)


def _documents(text: str) -> Iterator[Any]:
    """The documents of a YAML file, or the values of JSON that follow each other, as kubectl reads them."""
    stripped = text.strip().removeprefix("\ufeff")
    if stripped.startswith("{"):
        decoder, start, values = json.JSONDecoder(), 0, []
        try:
            while start < len(stripped):
                if stripped[start].isspace():
                    start += 1
                    continue
                value, start = decoder.raw_decode(stripped, start)
                values.append(value)
        except ValueError:
            values.clear()  # braces are YAML too
        if len(values) > 1:
            yield from values
            return
    yield from yaml.load_all(text, Loader=_Loader)


def _items(read: Any) -> list[Any]:
    kind = str(read.get("kind", "")) if isinstance(read, dict) else ""
    if not kind.endswith("List") or not isinstance(read.get("items"), list):
        return [read]
    # the items of a typed list, such as a JobList, do not repeat its kind
    item = {"apiVersion": read.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    return [{**item, **obj} if isinstance(obj, dict) else obj for obj in read["items"]]


def _problem(obj: Any) -> str:
    if not isinstance(obj, dict):
        return f"it contains {obj!r:.40} instead of an object"
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str):
            return f"{field} is missing"
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return "metadata is empty"
    if not (metadata.get("name") or metadata.get("generateName")):
        return "metadata.name is missing"
    return ""
