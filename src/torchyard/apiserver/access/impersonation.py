"""User impersonation: the `Impersonate-*` headers, and whether the user may send them."""

from __future__ import annotations

from urllib.parse import unquote

from multidict import MultiMapping

from torchyard.api.errors import bad_request
from torchyard.apiserver.access.authentication import (
    ALL_AUTHENTICATED,
    ALL_UNAUTHENTICATED,
    ANONYMOUS_NAME,
    User,
    service_account_groups,
    split_service_account_username,
)
from torchyard.apiserver.access.rbac import Authorizer, AuthorizerAttributes

PREFIX = "impersonate-"
EXTRA_PREFIX = "impersonate-extra-"
AUTHENTICATION_GROUP = "authentication.k8s.io"


def impersonate(user: User, headers: MultiMapping[str], authorizer: Authorizer) -> User:
    """The user that the request acts as. Raises 403 when `user` may not impersonate it."""
    if not any(key[: len(PREFIX)].lower() == PREFIX for key in headers):
        return user
    name = headers.get("Impersonate-User", "")
    groups = tuple(headers.getall("Impersonate-Group", ()))
    uid = headers.get("Impersonate-Uid", "")
    extra = _extra(headers)
    if not name:
        if groups or uid or extra:
            raise bad_request("the headers Impersonate-Group, -Uid and -Extra require Impersonate-User")
        return user
    service_account = split_service_account_username(name)
    if service_account is not None:
        authorizer.check(
            user,
            AuthorizerAttributes(
                "impersonate", "", "serviceaccounts", namespace=service_account[0], name=service_account[1]
            ),
        )
        groups = groups or service_account_groups(service_account[0])
    else:
        authorizer.check(user, AuthorizerAttributes("impersonate", "", "users", name=name))
    for group in headers.getall("Impersonate-Group", ()):
        authorizer.check(user, AuthorizerAttributes("impersonate", "", "groups", name=group))
    if uid:
        authorizer.check(user, AuthorizerAttributes("impersonate", AUTHENTICATION_GROUP, "uids", name=uid))
    for key, values in extra.items():
        for value in values:
            access = AuthorizerAttributes(
                "impersonate", AUTHENTICATION_GROUP, "userextras", subresource=key, name=value
            )
            authorizer.check(user, access)
    return User(name, uid, _with_standing(name, groups), extra)


def _extra(headers: MultiMapping[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in headers.items():
        lowered = key.lower()
        if lowered.startswith(EXTRA_PREFIX):
            name = unquote(lowered.removeprefix(EXTRA_PREFIX))
            extra[name] = (*extra.get(name, ()), value)
    return extra


def _with_standing(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups plus `system:authenticated` or `system:unauthenticated`, unless one of them is already there."""
    if ALL_AUTHENTICATED in groups or ALL_UNAUTHENTICATED in groups:
        return groups
    return (*groups, ALL_UNAUTHENTICATED if name == ANONYMOUS_NAME else ALL_AUTHENTICATED)
