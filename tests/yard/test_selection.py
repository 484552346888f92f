"""Selecting controllers, in kube-controller-manager's syntax."""

from __future__ import annotations

import pytest

from torchyard.api.errors import YardError
from torchyard.yard import selection
from torchyard.yard.controllers import BUILDERS
from torchyard.yard.selection import select_controllers

KNOWN = ("garbage-collector", "namespace", "pytorchjob")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("*", {"garbage-collector", "namespace", "pytorchjob"}),
        ("*,-pytorchjob", {"garbage-collector", "namespace"}),
        ("-pytorchjob,*", {"garbage-collector", "namespace"}),
        ("-*", set()),
        ("-*,namespace", {"namespace"}),
        ("namespace, pytorchjob", {"namespace", "pytorchjob"}),
        ("", set()),
    ],
)
def test_a_list_selects_controllers(text: str, names: set[str]) -> None:
    assert select_controllers(text, KNOWN) == names


def test_an_unknown_name_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(YardError, match="unknown controllers: 'pytorchjobs'") as caught:
        select_controllers("*,-pytorchjobs", KNOWN)
    assert "garbage-collector, namespace, pytorchjob" in caught.value.hint


def test_the_known_names_are_those_of_the_controllers() -> None:
    assert tuple(BUILDERS) == selection.KNOWN
