"""JSON patch: the operations, upstream's leniencies, and the limits."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from torchyard.api.errors import StatusError
from torchyard.apiserver.patch import json_patch

DOCUMENT = {"a": {"b": 1, "n": None}, "l": [1, 2], "~/": "odd", "deep": [{"x": [1]}]}
REJECTED = "the server rejected our request due to an error in our request"


def patched(*operations: dict[str, Any]) -> Any:
    document, sent = copy.deepcopy((DOCUMENT, list(operations)))
    result = json_patch.apply_json_patch(document, json_patch.check_operations(sent))
    assert document == DOCUMENT
    assert sent == list(operations)
    return result


def op(op: str, path: str, *value: Any, **more: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **({"value": value[0]} if value else {}), **more}


FITTING: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([op("add", "/a/c", 2)], {"a": {"b": 1, "n": None, "c": 2}}),
    ([op("add", "/a/b", 2)], {"a": {"b": 2, "n": None}}),
    ([op("add", "/l/1", 9)], {"l": [1, 9, 2]}),
    ([op("add", "/l/2", 9)], {"l": [1, 2, 9]}),
    ([op("add", "/l/-", 9)], {"l": [1, 2, 9]}),
    ([op("add", "/l/-1", 9)], {"l": [1, 2, 9]}),
    ([op("add", "/l/-3", 9)], {"l": [9, 1, 2]}),
    ([op("add", "/l/+1", 9)], {"l": [1, 9, 2]}),
    ([op("add", "/a/c")], {"a": {"b": 1, "n": None, "c": None}}),
    ([op("add", "ignored/a/b", 3)], {"a": {"b": 3, "n": None}}),
    ([op("remove", "/a/b")], {"a": {"n": None}}),
    ([op("remove", "/l/-1")], {"l": [1]}),
    ([op("replace", "/a/b", 2)], {"a": {"b": 2, "n": None}}),
    ([op("replace", "/a/missing", 2)], {"a": {"b": 1, "n": None, "missing": 2}}),
    ([op("replace", "/l/-2", 9)], {"l": [9, 2]}),
    ([op("replace", "/~0~1", "even")], {"~/": "even"}),
    ([op("move", "/a/c", **{"from": "/a/b"})], {"a": {"n": None, "c": 1}}),
    ([op("move", "/l/0", **{"from": "/l/1"})], {"l": [2, 1]}),
    ([op("copy", "/a/c", **{"from": "/l"})], {"a": {"b": 1, "n": None, "c": [1, 2]}}),
    ([op("copy", "/a/c", **{"from": "/a/missing"})], {"a": {"b": 1, "n": None, "c": None}}),
    ([op("test", "/a/b", 1)], {}),
    ([op("test", "/a/n", None)], {}),
    ([op("test", "/a/missing", None)], {}),
    ([op("test", "/deep", [{"x": [1]}])], {}),
    (
        [op("add", "/deep/0/x/-", 2), op("add", "/deep/0/y", {}), op("add", "/deep/0/y/z", 3)],
        {"deep": [{"x": [1, 2], "y": {"z": 3}}]},
    ),
    (
        [op("copy", "/a/c", **{"from": "/deep/0"}), op("add", "/a/c/x/0", 9)],
        {"a": {"b": 1, "n": None, "c": {"x": [9, 1]}}},
    ),
    (
        [op("add", "/deep/0/x/-", 2), op("copy", "/a/c", **{"from": "/deep"}), op("remove", "/deep/0/x")],
        {"a": {"b": 1, "n": None, "c": [{"x": [1, 2]}]}, "deep": [{}]},
    ),
]


@pytest.mark.parametrize(("operations", "change"), FITTING, ids=lambda value: str(value)[:70])
def test_operations_change_only_their_target(operations: list[dict[str, Any]], change: dict[str, Any]) -> None:
    assert patched(*operations) == {**DOCUMENT, **change}


UNFIT = [
    op("remove", "/a/missing"),
    op("remove", "/l/2"),
    op("remove", "/l/-3"),
    op("remove", "/l/x"),
    op("add", "/l/4", 1),
    op("add", "/l/-4", 1),
    op("add", "/x/y", 1),
    op("add", "/a/b/c", 1),
    op("add", "/a/n/c", 1),
    op("add", "", 1),
    op("add", "a", 1),
    op("replace", "/l/2", 1),
    op("replace", "/l/-", 1),
    op("replace", "/x/y/z", 1),
    op("test", "/a/b", 2),
    op("test", "/a/b", True),
    op("test", "/a/b", 1.0),
    op("test", "/a", {"b": 1}),
    op("test", "/l", [1]),
    op("test", "/l/7", None),
    op("copy", "/x", **{"from": "/x/y"}),
    op("copy", "/x/y", **{"from": "/a"}),
    op("move", "/x", **{"from": "/missing"}),
    op("move", "/x/y", **{"from": "/a/b"}),
    {"op": "copy", "path": "/x"},
    {"op": "move", "path": "/x"},
    {"op": "add", "value": 1},
    {"op": "zap", "path": "/a"},
    {"path": "/a"},
    {},
]


@pytest.mark.parametrize("operation", UNFIT, ids=str)
def test_an_inapplicable_operation_is_unprocessable(operation: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as excinfo:
        patched(operation)
    assert (excinfo.value.status, excinfo.value.reason, excinfo.value.message) == (422, "Invalid", REJECTED)


MALFORMED: list[tuple[Any, bool, str]] = [
    ({}, False, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
    ({}, True, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
    ([1], False, "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
    ([[]], True, "json: cannot unmarshal array into Go value of type jsonpatch.Operation"),
    (
        [{"op": 3}],
        False,
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
    ),
    (
        [{"path": {}}],
        False,
        "error decoding patch: json: cannot unmarshal object into Go struct field jsonPatchOp.path of type string",
    ),
]


@pytest.mark.parametrize(("document", "lenient", "message"), MALFORMED)
def test_an_invalid_patch_document_is_a_bad_request(document: Any, lenient: bool, message: str) -> None:
    with pytest.raises(StatusError) as excinfo:
        json_patch.check_operations(document, lenient=lenient)
    assert (excinfo.value.status, excinfo.value.message) == (400, message)


def test_a_null_patch_does_nothing() -> None:
    assert json_patch.apply_json_patch(DOCUMENT, json_patch.check_operations(None)) == DOCUMENT


def test_more_than_ten_thousand_operations_are_too_many() -> None:
    operations = [op("test", "/a/b", 1)]
    assert len(json_patch.check_operations(operations * 10_000)) == 10_000
    with pytest.raises(StatusError) as excinfo:
        json_patch.check_operations(operations * 10_001)
    assert excinfo.value.status == 413
    assert excinfo.value.message.endswith("The allowed maximum operations in a JSON patch is 10000, got 10001")


def test_copied_bytes_are_limited() -> None:
    document = {"a": "x" * 1_000_000}
    copies = [op("copy", f"/{number}", **{"from": "/a"}) for number in range(4)]
    assert len(json_patch.apply_json_patch(document, copies[:3])) == 4
    with pytest.raises(StatusError):
        json_patch.apply_json_patch(document, copies)


def test_unknown_members_are_reported() -> None:
    operations = [op("test", "/a"), op("add", "/a", 1, bogus=1, **{"from": "/x"})]
    assert json_patch.unknown_members(operations) == ['unknown field "[1].bogus"']
