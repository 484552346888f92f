"""The server's door: who a request comes from, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from multidict import MultiMapping

from torchyard.apiserver.access.impersonation import impersonated
from torchyard.apiserver.access.rbac import Authorizer
from torchyard.apiserver.access.tokens import AccountTokens
from torchyard.apiserver.access.users import Authentication, User


@dataclass(frozen=True, slots=True)
class Guard:
    authentication: Authentication
    authorizer: Authorizer
    accounts: AccountTokens

    def identify(self, headers: MultiMapping[str], certificate: bytes | None) -> User:
        """The user a request is made as; 401 for credentials that nobody knows."""
        user = self.authentication.user(headers, certificate)
        return impersonated(user, headers, self.authorizer)
