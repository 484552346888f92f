"""User impersonation: the `Impersonate-*` headers, and whether the user may send them."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
_BAD_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")


def is_impersonating(headers: MultiMapping[str]) -> bool:
    return any(key[: len(PREFIX)].lower() == PREFIX for key in headers)


def impersonate(user: User, headers: MultiMapping[str], authorizer: Authorizer) -> User:
    """The user that the request acts as. Raises 403 when `user` may not impersonate it."""
    if not is_impersonating(headers):
        return user
    name = _text(headers.get("Impersonate-User", ""))
    groups = tuple(_text(group) for group in headers.getall("Impersonate-Group", ()))
    uid = _text(headers.get("Impersonate-Uid", ""))
    extra = _extra(headers)
    if not name:
        if groups or uid or extra:
            raise bad_request("the headers Impersonate-Group, -Uid and -Extra require Impersonate-User")
        return user
    service_account = split_service_account_username(name)
    for access in _impersonated(name, service_account, groups, extra=extra, uid=uid):
        authorizer.check(user, access)
    if service_account is not None and not groups:
        groups = service_account_groups(service_account[0])
    return User(name, uid, _with_standing(name, groups), extra)


def _impersonated(
    name: str,
    service_account: tuple[str, str] | None,
    groups: tuple[str, ...],
    *,
    extra: dict[str, tuple[str, ...]],
    uid: str,
) -> Iterator[AuthorizerAttributes]:
    """What the user must be allowed to impersonate, in upstream's order."""
    if service_account is not None:
        namespace, account = service_account
        yield AuthorizerAttributes("impersonate", "", "serviceaccounts", namespace=namespace, name=account)
    else:
        yield AuthorizerAttributes("impersonate", "", "users", name=name)
    for group in groups:
        yield AuthorizerAttributes("impersonate", "", "groups", name=group)
    for key, values in extra.items():
        for value in values:
            yield AuthorizerAttributes("impersonate", AUTHENTICATION_GROUP, "userextras", subresource=key, name=value)
    if uid:
        yield AuthorizerAttributes("impersonate", AUTHENTICATION_GROUP, "uids", name=uid)


def _extra(headers: MultiMapping[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in headers.items():
        lowered = key.lower()
        if lowered.startswith(EXTRA_PREFIX):
            name = _unescape(lowered.removeprefix(EXTRA_PREFIX))
            extra[name] = (*extra.get(name, ()), _text(value))
    return extra


def _unescape(key: str) -> str:
    """Percent-decoded; as upstream, a key that is not encoded correctly is taken literally."""
    return key if _BAD_ESCAPE.search(key) else unquote(key)


def _text(value: str) -> str:
    """A header's value; bytes that are not UTF-8 are replaced, because the user's name is also written as JSON."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _with_standing(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups plus `system:authenticated` or `system:unauthenticated`, unless one of them is already there."""
    if ALL_AUTHENTICATED in groups or ALL_UNAUTHENTICATED in groups:
        return groups
    return (*groups, ALL_UNAUTHENTICATED if name == ANONYMOUS_NAME else ALL_AUTHENTICATED)
