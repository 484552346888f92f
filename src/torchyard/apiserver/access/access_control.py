"""Authentication and authorization of a request, in one place for the server."""

from __future__ import annotations

from dataclasses import dataclass

from multidict import MultiMapping

from torchyard.apiserver.access.authentication import RequestAuthenticator, User
from torchyard.apiserver.access.impersonation import impersonate, is_impersonating
from torchyard.apiserver.access.rbac import Authorizer
from torchyard.apiserver.access.service_account_tokens import ServiceAccountTokens


@dataclass(frozen=True, slots=True)
class AccessControl:
    authenticator: RequestAuthenticator
    authorizer: Authorizer
    service_account_tokens: ServiceAccountTokens

    def authenticate(self, headers: MultiMapping[str], certificate: bytes | None) -> User:
        """The user of a request, impersonation included. Raises 401 for unknown credentials."""
        user = self.authenticator.authenticate(headers, certificate)
        return impersonate(user, headers, self.authorizer)

    def static_user(self, headers: MultiMapping[str], certificate: bytes | None) -> User | None:
        """The user of every request with these headers for as long as the server runs; None if that may change."""
        if certificate is not None or is_impersonating(headers):
            return None
        return self.authenticator.static_user(headers)
