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

from torchyard.api.go_format import format_sharp_v, format_v
from torchyard.api.patch.patch_errors import YamlConversionError

_INT64 = range(-(2**63), 2**63)
# The C library composes documents recursively, and a deep one would crash the process.
_MAX_DEPTH = 200
# As yaml.v2: aliases may make up 99 % of a document of up to 400,000 values, and less and less of a larger one, down to
# 10 % from 4,000,000 values on.
_MIN_ALIASED, _MIN_VALUES = 100, 1000
_SMALL_DOCUMENT, _LARGE_DOCUMENT = 400_000, 4_000_000
# Further duplicate keys are not reported.
_MAX_DUPLICATES = 100


def yaml_to_json(body: bytes) -> tuple[Any, list[str]]:
    """The first document as JSON values, and `line 1: key "a" already set in map` for each duplicate key."""
    try:
        loader = _Loader(body)
        try:
            data = loader.get_data()
            return _convert(data, loader.values), loader.duplicate_keys
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
        self.values = 0  # in the text, without those that aliases repeat
        self._depth = 0
        self._merged = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        """Called by the composer for every node; there are no path resolvers, for which this is meant."""
        self.values += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise YamlConversionError(f"yaml: document is nested deeper than {_MAX_DEPTH} levels")

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge the mappings below `<<`, each of which may repeat all that the one before it merged."""
        before = len(node.value)
        super().flatten_mapping(node)
        self._merged += max(len(node.value) - before, 0)
        _check_aliasing(self._merged, self.values)

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
            if name in result and len(self.duplicate_keys) < _MAX_DUPLICATES:
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


def _check_aliasing(aliased: int, values: int) -> None:
    """Reject a document that repeats so many values by aliases; `values` are in its text."""
    total = aliased + values
    if aliased <= _MIN_ALIASED or total <= _MIN_VALUES:
        return
    share = 0.99
    if total > _SMALL_DOCUMENT:
        share -= 0.89 * min((total - _SMALL_DOCUMENT) / (_LARGE_DOCUMENT - _SMALL_DOCUMENT), 1.0)
    if aliased > share * total:
        raise YamlConversionError("yaml: document contains excessive aliasing")


def _convert(data: Any, values: int) -> Any:
    try:
        return _JsonConverter(values).convert(data)
    except RecursionError:  # an alias inside its own anchor
        raise YamlConversionError("yaml: document contains excessive aliasing") from None


class _JsonConverter:
    """Converts PyYAML's values to JSON values. `values`: how many are in the text."""

    def __init__(self, values: int) -> None:
        self._values = values
        self._converted = 0

    def convert(self, value: Any) -> Any:
        self._converted += 1
        if self._converted > self._values:
            _check_aliasing(self._converted - self._values, self._values)
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
