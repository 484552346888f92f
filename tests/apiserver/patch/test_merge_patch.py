"""JSON merge patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from torchyard.apiserver.patch.merge_patch import apply_merge_patch

# The examples of RFC 7386, appendix A, where the library of kube-apiserver agrees with it.
RFC_CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
# What upstream's library does beyond the RFC, seen on a real server.
LENIENT_CASES: list[tuple[Any, Any, Any]] = [
    ({}, {"x": [1, None, {"a": None}]}, {"x": [1, None, {}]}),
    ({"x": [1]}, {"x": [1, None, {"a": None}]}, {"x": [1, None, {}]}),
    ({"x": {"y": 1}}, {"x": [1, {"a": None}]}, {"x": [1, {"a": None}]}),
    ({"x": 1}, {"x": {"a": None, "b": [None], "c": {"d": None}}}, {"x": {"b": [None], "c": {}}}),
    ({"x": {"k": None}}, {"x": {"b": 2}}, {"x": {"k": None, "b": 2}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_CASES + LENIENT_CASES)
def test_a_merge_patch_merges_objects_replaces_values_and_deletes_nulls(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy((target, patch))
    assert apply_merge_patch(target, patch) == result
    assert (target, patch) == before
