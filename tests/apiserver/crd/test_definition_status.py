"""A definition's status: accepted names, conflicts, stored versions, and the way out."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from tests.apiserver.crd import cases, torchyard_server

from torchyard.api.objects import Object
from torchyard.apiserver.crd.definition.status import (
    CLEANUP_FINALIZER,
    accept_names,
    condition,
    finish_termination,
    is_established,
    is_terminating,
)
from torchyard.apiserver.crd.definition.strategy import DefinitionStrategy
from torchyard.apiserver.crd.resource import resources_of

LATER = datetime(2026, 1, 2, tzinfo=UTC)


def widgets(**names: Any) -> Object:
    return cases.definition("widget", {"definition": {"spec": {"names": names}}})


def test_a_name_in_use_in_the_group_is_not_accepted() -> None:
    first = torchyard_server.establish(widgets(plural="widgets", kind="Widget", shortNames=["w", "wi"]))
    second = torchyard_server.establish(
        widgets(plural="gadgets", kind="Widget", singular="gadget", shortNames=["w", "g", "wi"])
    )
    second["status"] = {"storedVersions": ["v1"]}
    assert accept_names(second, [first], LATER)
    # as in the naming controller: the last conflict is reported, and free names are accepted
    names_accepted = condition(second, "NamesAccepted")
    assert names_accepted is not None
    assert (names_accepted["status"], names_accepted["reason"], names_accepted["message"]) == (
        "False",
        "ListKindConflict",
        '"WidgetList" is already in use',
    )
    assert second["status"]["acceptedNames"] == {"plural": "gadgets", "singular": "gadget"}
    assert not is_established(second)
    assert resources_of(second) == []


def test_a_short_name_conflict_lists_every_name_in_use() -> None:
    first = torchyard_server.establish(widgets(plural="widgets", kind="Widget", shortNames=["w", "wi"]))
    second = torchyard_server.establish(widgets(plural="gadgets", kind="Gadget", singular="gadget"))
    second["status"] = {"storedVersions": ["v1"]}
    second["spec"]["names"]["shortNames"] = ["w", "g", "wi"]
    accept_names(second, [first], LATER)
    names_accepted = condition(second, "NamesAccepted")
    assert names_accepted is not None
    assert (names_accepted["reason"], names_accepted["message"]) == (
        "ShortNamesConflict",
        '["w" is already in use, "wi" is already in use]',
    )


def test_a_name_is_accepted_after_its_crd_is_deleted() -> None:
    first = torchyard_server.establish(widgets(plural="widgets", kind="Widget"))
    second = torchyard_server.establish(widgets(plural="gadgets", kind="Widget", singular="gadget"))
    second["status"] = {"storedVersions": ["v1"]}
    accept_names(second, [first], LATER)
    assert accept_names(second, [], LATER)
    assert is_established(second)
    assert [resource.kind for resource in resources_of(second)] == ["Widget"]


def test_equal_names_in_another_group_do_not_conflict() -> None:
    first = torchyard_server.establish(widgets(plural="widgets", kind="Widget"))
    other = cases.definition("widget", {"definition": {"spec": {"group": "other.example.com"}}})
    other = torchyard_server.establish(other)
    accept_names(other, [first], LATER)
    assert is_established(other)


def test_accepting_names_again_does_not_change_the_status() -> None:
    crd = torchyard_server.establish(widgets(plural="widgets", kind="Widget"))
    before = copy.deepcopy(crd)
    assert not accept_names(crd, [], LATER)
    assert crd == before


def test_renaming_accepts_the_new_names_and_frees_the_old_ones() -> None:
    old = torchyard_server.establish(widgets(plural="widgets", kind="Widget", shortNames=["w"], categories=["all"]))
    new = copy.deepcopy(old)
    new["spec"]["names"] = {**old["spec"]["names"], "shortNames": ["x"], "categories": []}
    strategy = DefinitionStrategy()
    strategy.prepare_update(new, old)
    assert strategy.validate_update(new, old) == []
    assert accept_names(new, [], LATER)
    assert new["status"]["acceptedNames"]["shortNames"] == ["x"]
    assert "categories" not in new["status"]["acceptedNames"]


def test_stored_versions_cannot_be_removed() -> None:
    strategy = DefinitionStrategy()
    old = torchyard_server.establish(widgets(plural="widgets", kind="Widget"))
    new = copy.deepcopy(old)
    new["spec"]["versions"].append({**new["spec"]["versions"][0], "name": "v2"})
    new["spec"]["versions"][0]["storage"] = False
    strategy.prepare_update(new, old)
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    assert strategy.validate_update(new, old) == []
    newest = copy.deepcopy(new)
    del newest["spec"]["versions"][0]
    strategy.prepare_update(newest, new)
    (error,) = strategy.validate_update(newest, new)
    assert error.field == "status.storedVersions[0]"
    assert error.message.startswith(
        'Invalid value: "v1": missing from spec.versions; v1 was previously a storage version'
    )


def test_group_plural_scope_and_kind_cannot_change() -> None:
    strategy = DefinitionStrategy()
    old = torchyard_server.establish(widgets(plural="widgets", kind="Widget"))
    new = copy.deepcopy(old)
    new["spec"].update(group="other.example.com", scope="Cluster")
    new["spec"]["names"].update(plural="gadgets", kind="Gadget")
    strategy.prepare_update(new, old)
    errs = strategy.validate_update(new, old)
    assert sorted(error.field for error in errs) == [
        "spec.group",
        "spec.names.kind",
        "spec.names.plural",
        "spec.scope",
    ]
    assert all(error.message.endswith(": field is immutable") for error in errs)


def test_a_deleted_crd_stays_until_its_objects_are_deleted() -> None:
    crd = torchyard_server.establish(widgets(plural="widgets", kind="Widget"))
    crd["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    DefinitionStrategy().on_delete(crd, datetime(2026, 1, 2, tzinfo=UTC))
    assert crd["metadata"]["finalizers"] == [CLEANUP_FINALIZER]
    assert is_terminating(crd)
    terminating = condition(crd, "Terminating")
    assert terminating == {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": "2026-01-02T00:00:00Z",
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    finish_termination(crd, LATER)
    assert crd["metadata"]["finalizers"] == []
    assert not is_terminating(crd)


def test_a_status_update_does_not_change_the_spec() -> None:
    old = torchyard_server.establish(widgets(plural="widgets", kind="Widget"))
    new = copy.deepcopy(old)
    new["spec"] = {}
    new["status"]["storedVersions"] = []
    DefinitionStrategy().prepare_status(new, old)
    assert new["spec"] == old["spec"]
    assert new["status"]["storedVersions"] == []
