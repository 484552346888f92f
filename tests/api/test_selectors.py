"""Selectors: what they match, and the messages about invalid ones, as in kube-apiserver."""

from __future__ import annotations

import pytest

from torchyard.api import selectors
from torchyard.api.errors import StatusError


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", None, True),
        ("a=b", {"a": "b"}, True),
        ("a=b", None, False),
        ("a==b", {"a": "c"}, False),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a=b,c=d", {"a": "b", "c": "d", "e": "f"}, True),
        ("a=b,c=d", {"a": "b"}, False),
        ("a!=b", {}, True),
        ("a!=b", None, True),
        ("a!=b", {"a": "b"}, False),
        (" a in ( b , c ) ", {"a": "c"}, True),
        ("a in (b,c)", {"a": "d"}, False),
        ("a in ()", {"a": ""}, True),
        ("a in (,)", {}, False),
        ("a notin (b)", {}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("a", {"a": "x"}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("! a", {"a": ""}, False),
        ("a>1", {"a": "2"}, True),
        ("a>1", {"a": "1"}, False),
        ("a>1", {}, False),
        ("a<3", {"a": "x"}, False),
        ("a<3", {"a": "-5"}, True),
        ("in in (in,notin)", {"in": "notin"}, True),
        ("example.com/app=web", {"example.com/app": "web"}, True),
    ],
)
def test_a_label_selector_matches(text: str, labels: dict[str, str] | None, expected: bool) -> None:
    assert selectors.parse_labels(text).matches(labels) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        (
            "a>x",
            'unable to parse requirement: values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a==!", "unable to parse requirement: found '!', expected: identifier"),
        ("a notin (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("a in (b)c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a => b", "unable to parse requirement: found '>', expected: identifier"),
    ],
)
def test_an_invalid_label_selector_is_a_400_with_the_expected_token(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_labels(text)
    assert (caught.value.status, caught.value.message) == (400, message)


def test_an_invalid_key_or_value_is_an_error_with_its_rule() -> None:
    with pytest.raises(StatusError, match=r'requirement: <nil>: Invalid value: "a&b": name part must consist of'):
        selectors.parse_labels("a&b")
    with pytest.raises(StatusError, match=r'requirement: values\[0\]\[a\]: Invalid value: "é": a valid label must be'):
        selectors.parse_labels("a=é")


def test_equalities_of_a_selector() -> None:
    selector = selectors.parse_labels("a=b,c in (d),e in (f,g),!h")
    assert selector.equalities == {"a": "b", "c": "d"}
    assert str(selector) == "a=b,c in (d),e in (f,g),!h"


def test_an_absent_selector_object_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selectors.from_object(None).matches({"a": "b"})
    assert selectors.from_object({}).matches(None)
    selector = selectors.from_object(
        {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}]}
    )
    assert selector.matches({"a": "b"})
    assert not selector.matches({"a": "b", "c": "d"})


def test_errors_of_a_selector_object_have_their_fields() -> None:
    errs = selectors.validate_object(
        {
            "matchLabels": {"a": "-"},
            "matchExpressions": [
                {"key": "k", "operator": "In"},
                {"key": "k", "operator": "Exists", "values": ["x"]},
                {"key": "", "operator": "Near"},
            ],
        },
        "spec.selector",
    )
    assert [(error.field, error.reason) for error in errs] == [
        ("spec.selector.matchLabels", "FieldValueInvalid"),
        ("spec.selector.matchExpressions[0].values", "FieldValueRequired"),
        ("spec.selector.matchExpressions[1].values", "FieldValueForbidden"),
        ("spec.selector.matchExpressions[2].operator", "FieldValueInvalid"),
        ("spec.selector.matchExpressions[2].key", "FieldValueInvalid"),
        ("spec.selector.matchExpressions[2].key", "FieldValueInvalid"),
    ]


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("", {}, True),
        ("spec.nodeName=a", {"spec.nodeName": "a"}, True),
        ("spec.nodeName==", {"spec.nodeName": ""}, True),
        ("spec.nodeName!=a,status.phase=Running", {"spec.nodeName": "b", "status.phase": "Running"}, True),
        ("spec.nodeName!=a,status.phase=Running", {"spec.nodeName": "a", "status.phase": "Running"}, False),
        (r"metadata.name=a\,b", {"metadata.name": "a,b"}, True),
        (r"metadata.name=a\=b\\,", {"metadata.name": "a=b\\"}, True),
        (",", {}, True),
    ],
)
def test_a_field_selector_matches(text: str, fields: dict[str, str], expected: bool) -> None:
    selector = selectors.parse_fields(text)
    assert selector.matches(fields) is expected
    assert selectors.parse_fields(str(selector)).terms == selector.terms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spec.nodeName", "invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name=a\\x", "invalid field selector: invalid escape sequence: \\x"),
    ],
)
def test_an_invalid_field_selector_is_a_400(text: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        selectors.parse_fields(text)
    assert (caught.value.status, caught.value.message) == (400, message)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Pod", "field label not supported: x"),
        ("Job", 'field label "x" not supported for Job'),
        ("ConfigMap", '"x" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ],
)
def test_an_unsupported_field_is_rejected_with_the_message_of_its_kind(kind: str, message: str) -> None:
    selector = selectors.parse_fields("metadata.name=a,x=y")
    with pytest.raises(StatusError) as caught:
        selectors.check_fields(selector, kind, ["metadata.name", "metadata.namespace"])
    assert caught.value.message == message
