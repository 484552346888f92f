"""User impersonation."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict
from tests.apiserver.access.rbac_objects import ADMIN, BOB

from torchyard.api.errors import StatusError
from torchyard.apiserver.access.impersonation import impersonate
from torchyard.apiserver.access.rbac import Authorizer


@pytest.mark.parametrize(
    ("headers", "name", "groups"),
    [
        ([], "admin", ADMIN.groups),
        ([("Impersonate-User", "bob")], "bob", ("system:authenticated",)),
        (
            [("Impersonate-User", "bob"), ("Impersonate-Group", "g1"), ("Impersonate-Group", "g2")],
            "bob",
            ("g1", "g2", "system:authenticated"),
        ),
        ([("Impersonate-User", "system:anonymous")], "system:anonymous", ("system:unauthenticated",)),
        (
            [("Impersonate-User", "system:serviceaccount:default:x")],
            "system:serviceaccount:default:x",
            ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"),
        ),
    ],
)
def test_an_admin_can_impersonate_any_user(
    authorizer: Authorizer, headers: list[tuple[str, str]], name: str, groups: tuple[str, ...]
) -> None:
    user = impersonate(ADMIN, CIMultiDict(headers), authorizer)
    assert (user.name, user.groups) == (name, groups)


def test_impersonation_sets_uid_and_extra(authorizer: Authorizer) -> None:
    headers = CIMultiDict(
        [("Impersonate-User", "b"), ("Impersonate-Uid", "7"), ("Impersonate-Extra-Acme.com%2fRole", "x")]
    )
    user = impersonate(ADMIN, headers, authorizer)
    assert (user.uid, user.extra) == ("7", {"acme.com/role": ("x",)})


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Impersonate-User": "dave"}, 'users "dave" is forbidden: User "bob" cannot impersonate resource "users"'),
        ({"Impersonate-User": "carol", "Impersonate-Group": "x"}, 'groups "x" is forbidden'),
        ({"Impersonate-User": "carol", "Impersonate-Uid": "7"}, 'uids.authentication.k8s.io "7" is forbidden'),
        ({"Impersonate-User": "carol", "Impersonate-Extra-A": "v"}, '"userextras/a" in API group'),
        ({"Impersonate-User": "system:serviceaccount:ns:x"}, 'serviceaccounts "x" is forbidden'),
        ({"Impersonate-Group": "x"}, "require Impersonate-User"),
    ],
)
def test_impersonation_without_permission_is_forbidden(
    authorizer: Authorizer, headers: dict[str, str], message: str
) -> None:
    with pytest.raises(StatusError, match=message):
        impersonate(BOB, CIMultiDict(headers), authorizer)


def test_impersonation_with_permission_is_allowed(authorizer: Authorizer) -> None:
    assert impersonate(BOB, CIMultiDict({"Impersonate-User": "carol"}), authorizer).name == "carol"
