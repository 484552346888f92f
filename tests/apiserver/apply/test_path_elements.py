"""The steps of field paths."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.schema.types import Type
from torchyard.apiserver.apply import path_elements
from torchyard.apiserver.apply.fieldset import FieldSet
from torchyard.apiserver.apply.path_elements import UnkeyedItemError

PORT = Type(
    "object",
    fields={
        "port": Type("integer"),
        "protocol": Type("string", default="TCP", has_default=True),
        "name": Type("string", zero="always"),
        "on": Type("boolean", zero="always"),
    },
)


def keyed(*keys: str) -> Type:
    return Type("list", items=PORT, list_type="map", list_keys=keys)


STEPS: list[tuple[Type, Any, str]] = [
    (keyed("port"), {"port": 80}, 'k:{"port":80}'),
    (keyed("protocol", "port"), {"port": 80, "protocol": "UDP"}, 'k:{"port":80,"protocol":"UDP"}'),
    (keyed("protocol", "port"), {"port": 80}, 'k:{"port":80,"protocol":"TCP"}'),
    (keyed("name"), {}, 'k:{"name":""}'),
    (keyed("on"), {}, 'k:{"on":false}'),
    (keyed("port"), {"port": True}, 'k:{"port":true}'),
    (keyed("port"), {"port": 1}, 'k:{"port":1}'),
    (keyed("name"), {"name": "<a&b>"}, 'k:{"name":"\\u003ca\\u0026b\\u003e"}'),
    (keyed("name"), {"name": 'q"é'}, 'k:{"name":"q\\"é"}'),
    (Type("list", list_type="set"), "x", 'v:"x"'),
    (Type("list", list_type="set"), 3, "v:3"),
]


@pytest.mark.parametrize(("type", "item", "step"), STEPS)
def test_item_steps_have_the_keys_or_the_value(type: Type, item: Any, step: str) -> None:
    assert path_elements.item_step(item, type) == step


NAMELESS: list[tuple[Type, Any, str]] = [
    (keyed("port"), {}, 'element that omits key field "port" (and doesn\'t have default value)'),
    (keyed("port"), None, "associative list with keys may not have a null element"),
    (keyed("port"), 3, "associative list with keys may not have non-map elements"),
    (keyed("port"), {"port": {}}, "keys are not scalars"),
    (Type("list", list_type="set"), {}, "associative list without keys has an element that's a map type"),
    (Type("list", list_type="set"), [], "not supported: associative list with lists as elements"),
    (Type("list", list_type="set"), None, "associative list without keys has an element that's an explicit null"),
]


@pytest.mark.parametrize(("type", "item", "error"), NAMELESS)
def test_items_without_valid_keys_are_rejected(type: Type, item: Any, error: str) -> None:
    with pytest.raises(UnkeyedItemError) as excinfo:
        path_elements.item_step(item, type)
    assert error in str(excinfo.value)


def test_paths_are_formatted_for_messages() -> None:
    path = ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:tags", 'v:"x"', "i:3")
    assert path_elements.format_path(path) == '.spec.ports[port=80,protocol="TCP"].tags[="x"][3]'


def test_steps_sort_by_kind_then_name_then_value() -> None:
    ordered = ["f:a", "f:b", 'k:{"n":2}', 'k:{"n":10}', 'k:{"n":"x"}', "v:1", 'v:"a"', "v:true", "i:0", "i:2"]
    shuffled = ordered[5:] + ordered[:5]
    assert sorted(shuffled, key=path_elements.step_order) == ordered


def test_a_clients_field_set_is_brought_into_canonical_form() -> None:
    sent: FieldSet = {
        "f:a": {".": {}},
        'k:{ "b": 1, "a": "<" }': {"f:x": {}},
        'v: "y"': {},
        "i:1": {},
        "z:new": {"f:q": {}},
    }
    assert path_elements.canonical_fieldset(sent) == {
        "f:a": {},
        'k:{"a":"\\u003c","b":1}': {"f:x": {}},
        'v:"y"': {},
        "i:1": {},
    }


@pytest.mark.parametrize("sent", [{"f:a": 1}, {"nocolon": {}}, {"k:{": {}}, {"ff:a": {}}, {"": {}}])
def test_an_invalid_field_set_is_rejected(sent: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        path_elements.canonical_fieldset(sent)
