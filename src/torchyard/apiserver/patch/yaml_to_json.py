"""Converts YAML to JSON as sigs.k8s.io/yaml does: the YAML 1.1 of Go's yaml.v2, which differs from PyYAML's.

Times and 1:30 are strings, y and n are booleans, keys become strings, unknown tags are ignored, and only the first
document counts. The last value of a duplicate key is used, and the duplicate is reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from typing import Any

import yaml

from torchyard.apiserver.patch.go_format import format_sharp_v, format_v

_INT64 = range(-(2**63), 2**63)
# The C library composes documents recursively, and a deep one would crash the process.
_MAX_DEPTH = 200
# Every node takes at least a byte of text; aliases may repeat nodes, up to this factor.
_MAX_GROWTH = 20


class YamlConversionError(Exception):
    """A text that is not valid YAML or has no JSON form; the message is the Go library's."""


def yaml_to_json(body: bytes) -> tuple[Any, list[str]]:
    """The first document as JSON values, and `line 1: key "a" already set in map` for each duplicate key."""
    try:
        _check_depth(body)
        loader = _Loader(body)
        try:
            return _JsonConverter(_MAX_GROWTH * (len(body) + 1)).convert(loader.get_data()), loader.duplicate_keys
        except (ValueError, KeyError, OverflowError):
            # A scalar that does not match its tag, or a number out of range.
            raise YamlConversionError("yaml: cannot decode a value") from None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise YamlConversionError(f"yaml: {_line_prefix(error)}{_problem(error)}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise YamlConversionError("yaml: control characters are not allowed") from None
    except RecursionError:
        raise YamlConversionError("yaml: a value contains itself") from None


def _check_depth(body: bytes) -> None:
    depth = 0
    for event in yaml.parse(body, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise YamlConversionError(f"yaml: document is nested deeper than {_MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentEndEvent):
            return


def _problem(error: yaml.MarkedYAMLError) -> str:
    if error.problem == "found undefined alias":
        return "unknown anchor referenced"
    return error.problem or "unknown problem parsing YAML content"


def _line_prefix(error: yaml.MarkedYAMLError) -> str:
    """As Go: lines count from zero, except in scanner errors, and the first line has no prefix."""
    marks = [mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None and mark.line]
    if not marks:
        return ""
    return f"line {marks[0] + isinstance(error, yaml.scanner.ScannerError)}: "


class _Loader(yaml.CSafeLoader):
    """A safe loader that resolves plain scalars as Go does."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.duplicate_keys: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        result: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, dict | list):
                raise YamlConversionError(f"yaml: invalid map key: {format_sharp_v(key)}")
            value = self.construct_object(value_node, deep=deep)
            if key is None:
                raise YamlConversionError(
                    f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {format_sharp_v(value)}"
                )
            name = key if isinstance(key, str) else format_v(key)
            if name in result:
                self.duplicate_keys.append(
                    f"line {key_node.start_mark.line + 1}: key {format_sharp_v(key)} already set in map"
                )
            result[name] = value
        return result

    def construct_int(self, node: yaml.ScalarNode) -> Any:
        text = self.construct_scalar(node).replace("_", "")
        digits = text.lstrip("+-")
        try:
            number = int(text, 8) if re.fullmatch("0[0-7]+", digits) else int(text, 0)
        except ValueError:
            return float(text)
        return number if number in _INT64 else float(number)

    def construct_real(self, node: yaml.ScalarNode) -> float:
        text = self.construct_scalar(node).replace("_", "").lower()
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))

    def construct_text(self, node: yaml.ScalarNode) -> Any:
        return self.construct_scalar(node)

    def construct_map(self, node: yaml.MappingNode) -> Any:
        return self.construct_mapping(node, deep=True)

    def construct_tagged(self, _: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_sequence(node, deep=True)
        return self.construct_scalar(node)


_BOOLEANS = "y Y yes Yes YES true True TRUE on On ON n N no No NO false False FALSE off Off OFF"
_DIGITS = "0123456789"
_FLOAT = r"(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
_IMPLICIT_RESOLVERS = (  # tag, pattern of plain scalars, their first characters (none for the empty one)
    ("bool", _BOOLEANS.replace(" ", "|"), [*"yYtToOnNfF"]),
    ("null", "~|null|Null|NULL|", [*"~nN", ""]),
    ("int", r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)", [*"-+", *_DIGITS]),
    ("float", rf"[-+]?(?:{_FLOAT}|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)", [*"-+.", *_DIGITS]),
    ("merge", "<<", ["<"]),
)
_TAGS = "tag:yaml.org,2002:"
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _IMPLICIT_RESOLVERS:
    _Loader.add_implicit_resolver(_TAGS + _tag, re.compile(f"^(?:{_pattern})$"), _first)
_Loader.bool_values = {text.lower(): place < 11 for place, text in enumerate(_BOOLEANS.split())}
_STANDARD_TAGS = [_TAGS + name for name in ("null", "bool", "binary", "str", "seq")]
_Loader.yaml_constructors = {tag: yaml.CSafeLoader.yaml_constructors[tag] for tag in _STANDARD_TAGS}
_Loader.add_constructor(_TAGS + "int", _Loader.construct_int)
_Loader.add_constructor(_TAGS + "float", _Loader.construct_real)
_Loader.add_constructor(_TAGS + "merge", _Loader.construct_text)
_Loader.add_constructor(_TAGS + "map", _Loader.construct_map)
_Loader.add_multi_constructor("", _Loader.construct_tagged)


class _JsonConverter:
    """Converts PyYAML's values to JSON values, up to a maximum number of values."""

    def __init__(self, budget: int) -> None:
        self._remaining = budget

    def convert(self, value: Any) -> Any:
        self._remaining -= 1
        if self._remaining < 0:
            raise YamlConversionError("yaml: document contains excessive aliasing")
        if isinstance(value, dict):
            return {key: self.convert(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.convert(inner) for inner in value]
        if isinstance(value, float):
            if not math.isfinite(value):
                raise YamlConversionError(
                    f"json: unsupported value: {'NaN' if math.isnan(value) else f'{value:+}'.title()}"
                )
            return int(value) if value == int(value) and int(value) in _INT64 else value
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
