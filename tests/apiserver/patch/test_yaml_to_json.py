"""YAML as Go's library reads it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard.api.patch.patch_errors import YamlConversionError
from torchyard.apiserver.patch.yaml_to_json import yaml_to_json

SCALARS: dict[str, Any] = {
    **dict.fromkeys(["y", "Y", "yes", "on", "true", "TRUE"], True),
    **dict.fromkeys(["n", "No", "off", "False"], False),
    **dict.fromkeys(["", "~", "null", "Null"]),
    **{
        text: text
        for text in ("1:30", "1:2:3.5", "2001-01-01", "2001-01-01T00:00:00Z", "=", "<<", "_1", "0b12", "tRUE")
    },
    "0777": 511,
    "0o17": 15,
    "0b11": 3,
    "0x1F": 31,
    "08": 8,
    "1_000": 1000,
    "+1": 1,
    "-0": 0,
    "1e3": 1000,
    "1.0": 1,
    "5.": 5,
    ".5": 0.5,
    "9223372036854775808": 9.223372036854776e18,
    '"x"': "x",
    "!!str 3": "3",
    "!!binary aGVsbG8=": "hello",
    "!foo bar": "bar",
    "!foo [1]": [1],
    "!foo {a: 1}": {"a": 1},
    "{<<: {a: b}, c: d}": {"a": "b", "c": "d"},
    "{1: a, true: b, 1.5: c}": {"1": "a", "true": "b", "1.5": "c"},
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items(), ids=SCALARS)
def test_values_are_those_of_gos_yaml_library(text: str, value: Any) -> None:
    assert yaml_to_json(f"k: {text}\n".encode()) == ({"k": value}, [])


_BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{this}: &{this} [{','.join([f'*{last}'] * 8)}]\n" for last, this in ("ab", "bc", "cd")
)
INVALID = {
    "a: [": "yaml: line 1: did not find expected node content",
    "a: b: c": "yaml: mapping values are not allowed in this context",
    "\tx: 1": "yaml: found character that cannot start any token",
    "- a\nb: c": "yaml: line 1: did not find expected '-' indicator",
    'a: "x': "yaml: found unexpected end of stream",
    "a: *x": "yaml: unknown anchor referenced",
    "? [a]\n: b": 'yaml: invalid map key: []interface {}{"a"}',
    "{null: x}": 'unsupported map key of type: %!s(<nil>), key: <nil>, value: "x"',
    "a: .inf": "json: unsupported value: +Inf",
    "a: -.inf": "json: unsupported value: -Inf",
    "a: .nan": "json: unsupported value: NaN",
    "a: !!int x": "yaml: cannot decode a value",
    "a: !!bool maybe": "yaml: cannot decode a value",
    "a: \x00": "yaml: control characters are not allowed",
    "&a [*a]": "yaml: document contains excessive aliasing",
    "[" * 100_000: "yaml: document is nested deeper than 200 levels",
    "{a: " * 100_000: "yaml: document is nested deeper than 200 levels",
    _BOMB: "yaml: document contains excessive aliasing",
}


@pytest.mark.parametrize(("text", "message"), INVALID.items(), ids=lambda text: text[:30])
def test_invalid_yaml_fails_with_gos_message(text: str, message: str) -> None:
    with pytest.raises(YamlConversionError) as excinfo:
        yaml_to_json(text.encode())
    assert str(excinfo.value) == message


def test_duplicate_keys_are_reported_and_the_last_one_is_used() -> None:
    document, repeated = yaml_to_json(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert document == {"a": 3, "b": {"c": 2}}
    assert repeated == ['line 4: key "c" already set in map', 'line 5: key "a" already set in map']


def test_only_the_first_document_is_used() -> None:
    assert yaml_to_json(b"a: b\n---\nc: [") == ({"a": "b"}, [])
    assert yaml_to_json(b"") == (None, [])


_PIECES = [
    "a",
    "b: ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "&x ",
    "*x",
    "!!int ",
    "!!set ",
    "!!timestamp ",
    "!f ",
    '"',
    "\n",
    "  ",
    "? ",
    "|",
    "%",
    "1e9",
    "<<: ",
    "é",
    "\0",
]


@given(st.one_of(st.lists(st.sampled_from(_PIECES)).map("".join).map(str.encode), st.binary(max_size=30)))
def test_any_text_gives_a_value_or_a_conversion_error(body: bytes) -> None:
    try:
        yaml_to_json(body)
    except YamlConversionError as error:
        assert str(error)
