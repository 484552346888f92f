"""Selectors: an object that cannot match is not decoded, and one that matches is selected."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from torchyard.api.builtins import builtin_resources
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.request.request import Query
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.verbs.selection import Selection, select

PODS = next(resource for resource in builtin_resources() if (resource.group, resource.plural) == ("", "pods"))


class CountingRecord(Record):
    __slots__ = ("decoded",)

    def __init__(self, pod: dict[str, Any]) -> None:
        super().__init__("/pods/default/a", 1, orjson.dumps(pod))
        self.decoded = 0

    def object(self) -> dict[str, Any]:
        self.decoded += 1
        return super().object()


def selection(selector: str, parameter: str = "fieldSelector") -> Selection:
    query = Query(values={parameter: [selector]})
    return select(RequestContext(PODS, "list", "default", "", User("a"), datetime.now(UTC), query=query))


def pod(node: str = "", **status: str) -> CountingRecord:
    return CountingRecord({"metadata": {"name": "a", "namespace": "default"}, "spec": {"nodeName": node}, **status})


@pytest.mark.parametrize(
    ("selector", "node", "is_selected", "decoded"),
    [
        pytest.param("spec.nodeName=node-1", "node-1", True, 1, id="equal"),
        pytest.param("spec.nodeName=node-1", "", False, 0, id="none"),
        pytest.param("spec.nodeName=node-1", "node-10", False, 0, id="longer"),
        pytest.param("spec.nodeName=default", "node-1", False, 1, id="the text is elsewhere"),
        pytest.param("spec.nodeName=", "", True, 1, id="empty"),
        pytest.param("spec.nodeName!=node-1", "node-2", True, 1, id="not equal"),
        pytest.param("spec.nodeName=knöten", "knöten", True, 1, id="not ASCII"),
        pytest.param("spec.nodeName=node-1,metadata.name=b", "node-1", False, 0, id="two terms"),
        pytest.param('spec.nodeName=a"b', 'a"b', True, 1, id="escaped in JSON"),
        pytest.param("spec.hostNetwork=false", "node-1", True, 1, id="not a string of the object"),
    ],
)
def test_objects_are_selected_and_those_without_the_text_are_not_decoded(
    selector: str, node: str, is_selected: bool, decoded: int
) -> None:
    record, matches = pod(node), selection(selector).matches
    assert matches is not None
    assert matches(record) is is_selected
    assert record.decoded == decoded


@pytest.mark.parametrize(
    ("selector", "is_selected", "decoded"),
    [
        pytest.param("app=web", True, 1, id="equal"),
        pytest.param("app=other", False, 1, id="another value"),
        pytest.param("tier=web", False, 0, id="no such label"),
        pytest.param("tier", False, 0, id="not present"),
        pytest.param("app", True, 1, id="present"),
        pytest.param("tier in (a,b)", False, 0, id="in"),
        pytest.param("replica>1", True, 1, id="greater"),
        pytest.param("number>1", False, 0, id="greater, no such label"),
        pytest.param("tier!=web", True, 1, id="not equal"),
        pytest.param("tier notin (a)", True, 1, id="not in"),
        pytest.param("!tier", True, 1, id="absent"),
        pytest.param("app=web,tier=a", False, 0, id="two requirements"),
        pytest.param("name=a", False, 1, id="the key is elsewhere"),
    ],
)
def test_objects_without_the_key_of_a_required_label_are_not_decoded(
    selector: str, is_selected: bool, decoded: int
) -> None:
    record = CountingRecord({"metadata": {"name": "a", "labels": {"app": "web", "replica": "2"}}})
    matches = selection(selector, "labelSelector").matches
    assert matches is not None
    assert matches(record) is is_selected
    assert record.decoded == decoded
