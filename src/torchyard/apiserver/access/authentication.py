"""Authentication: the bearer token or client certificate of a request becomes a `User`.

As in kube-apiserver, the client certificate is tried first, then each token authenticator. Unknown credentials result
in 401. A request without credentials is `system:anonymous`, which RBAC's bootstrap policy allows very little. This
module does not decide what a user may do.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from multidict import MultiMapping

from torchyard.api.errors import YardError, bad_request, unauthorized
from torchyard.api.names import label_problems, subdomain_problems

if TYPE_CHECKING:
    from torchyard.apiserver.access.client_certificates import ClientCertificate

ALL_AUTHENTICATED = "system:authenticated"
ALL_UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
ANONYMOUS_NAME = "system:anonymous"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"

WEBSOCKET_TOKEN_PREFIX = "base64url.bearer.authorization.k8s.io."  # noqa: S105 - a sub-protocol's name


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def info(self) -> dict[str, Any]:
        """The user as an `authentication.k8s.io/v1` UserInfo."""
        info: dict[str, Any] = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(values) for key, values in sorted(self.extra.items())}
        return info


ANONYMOUS = User(ANONYMOUS_NAME, groups=(ALL_UNAUTHENTICATED,))


def service_account_username(namespace: str, name: str) -> str:
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    return (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}")


def split_service_account_username(username: str) -> tuple[str, str] | None:
    """Namespace and name of a service account's user name; None for other users."""
    if not username.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, _, name = username.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    if label_problems(namespace) or subdomain_problems(name):
        return None  # as upstream: the name of an ordinary user
    return namespace, name


def with_authenticated_group(user: User) -> User:
    """The user with the group `system:authenticated`, unless it has it already or is anonymous."""
    if user.name == ANONYMOUS_NAME or ALL_AUTHENTICATED in user.groups or ALL_UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, ALL_AUTHENTICATED))


class AuthenticationResponse(NamedTuple):
    """The user of a token, and the audiences the token is valid for."""

    user: User
    audiences: tuple[str, ...]


class TokenAuthenticator(Protocol):
    """Authenticates one kind of bearer token."""

    def authenticate(self, token: str) -> AuthenticationResponse | None:
        """None when the token is of another kind. Raises `TokenRejected` when it is of this kind but invalid."""
        ...


class TokenRejected(Exception):
    """A token of a known kind that is not valid; the message appears in TokenReviews."""


class StaticTokenAuthenticator:
    """Static tokens: the administrator's and those of a token file. They are valid for this server only."""

    def __init__(self, users: Mapping[str, User], audiences: Sequence[str]) -> None:
        # A dict compares only keys with equal hashes, and Python keys string hashes with a secret of the process.
        # The time to reject a token therefore reveals nothing about the valid ones.
        self._responses = {
            token: AuthenticationResponse(with_authenticated_group(user), tuple(audiences))
            for token, user in users.items()
        }

    def authenticate(self, token: str) -> AuthenticationResponse | None:
        return self._responses.get(token)


def read_token_file(path: Path) -> dict[str, User]:
    """Users by token from kube-apiserver's CSV format: `token,user,uid[,"group1,group2"]`."""
    try:
        rows = list(csv.reader(io.StringIO(path.read_text())))
    except OSError as error:
        raise YardError(f"cannot read the token file {path}: {error.strerror}", code="BadOption") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise YardError(f"cannot read the token file {path}: {error}", code="BadOption") from error
    users: dict[str, User] = {}
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        location = f"{path}, line {number}"
        if len(row) < 3:
            raise YardError(
                f"{location}: expected at least 3 columns (token, user name, user uid), got {len(row)}",
                hint='write each line as: token,user,uid,"group1,group2"',
                code="BadOption",
            )
        token, name, uid = (cell.strip() for cell in row[:3])
        if not token or not name:
            raise YardError(f"{location}: the {'user name' if token else 'token'} is empty", code="BadOption")
        if token in users:
            raise YardError(
                f"{location}: user {name!r} has the same token as user {users[token].name!r}", code="BadOption"
            )
        groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
        users[token] = User(name, uid, groups)
    return users


class CertificateAuthenticator:
    """Authenticates client certificates of the plane's authority: CN is the user name, every O a group.

    The library that reads certificates is loaded with the first one: most clients have a token.
    """

    _LIMIT = 1024

    def __init__(self, authority: bytes) -> None:
        self._authority = authority
        self._cache: dict[bytes, tuple[User, ClientCertificate]] = {}

    def authenticate(self, der: bytes, now: datetime | None = None) -> User | None:
        """The certificate's user, anonymous without a name; None when it is of another authority or not valid."""
        entry = self._cache.get(der)
        if entry is None:
            entry = self._read(der)
            if entry is None:
                return None
            if len(self._cache) >= self._LIMIT:
                self._cache.clear()
            self._cache[der] = entry
        user, certificate = entry
        return user if certificate.not_before <= (now or datetime.now(UTC)) <= certificate.not_after else None

    def _read(self, der: bytes) -> tuple[User, ClientCertificate] | None:
        from torchyard.apiserver.access.client_certificates import read_client_certificate

        certificate = read_client_certificate(der, self._authority)
        if certificate is None:
            return None
        if not certificate.name:
            return ANONYMOUS, certificate  # as upstream: a valid certificate that names nobody
        fingerprint = f"X509SHA256={hashlib.sha256(der).hexdigest()}"
        user = User(certificate.name, certificate.uid, certificate.groups, {CREDENTIAL_ID: (fingerprint,)})
        return with_authenticated_group(user), certificate


class RequestAuthenticator:
    """Authenticates requests: certificate first, then tokens. `audiences` are this server's names in tokens."""

    def __init__(
        self,
        certificates: CertificateAuthenticator,
        tokens: Iterable[TokenAuthenticator],
        *,
        audiences: Sequence[str],
        anonymous: bool = True,
    ) -> None:
        self._certificates = certificates
        self._tokens = tuple(tokens)
        self._audiences = tuple(audiences)
        self._anonymous = anonymous

    def authenticate(self, headers: MultiMapping[str], certificate: bytes | None = None) -> User:
        """The user of a request with these headers on a connection with this client certificate (DER)."""
        user = None if certificate is None else self._certificates.authenticate(certificate)
        if user is not None and user is not ANONYMOUS:
            return user
        token = bearer_token(headers)
        if token is not None:
            response, _ = self._authenticate_token(token, self._audiences)
            if response is not None:
                return response.user
        if token is None and self._anonymous and (certificate is None or user is ANONYMOUS):
            return ANONYMOUS
        raise unauthorized()

    def user_of_audience(self, headers: MultiMapping[str], audience: str) -> User | None:
        """The user of a bearer token that is valid for this audience; None without one."""
        token = bearer_token(headers)
        response = self._authenticate_token(token, (audience,))[0] if token is not None else None
        return response.user if response is not None else None

    def static_user(self, headers: MultiMapping[str]) -> User | None:
        """The user of a static token, which is valid as long as the server runs; None for all other credentials."""
        token = bearer_token(headers)
        for source in self._tokens if token is not None else ():
            try:
                response = source.authenticate(token or "")
            except TokenRejected:
                continue
            if response is not None:
                is_valid = not set(self._audiences).isdisjoint(response.audiences)
                return response.user if is_valid and isinstance(source, StaticTokenAuthenticator) else None
        return None

    def review_token(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The status of a TokenReview with this spec."""
        token = spec.get("token")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        audiences = tuple(spec.get("audiences") or self._audiences)
        response, errors = self._authenticate_token(token, audiences)
        if response is None:
            reasons = ["invalid bearer token", *errors]
            return {"user": {}, "error": reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]"}
        common = [audience for audience in audiences if audience in response.audiences]
        return {"authenticated": True, "user": response.user.info(), "audiences": common}

    def _authenticate_token(
        self, token: str, audiences: tuple[str, ...]
    ) -> tuple[AuthenticationResponse | None, list[str]]:
        errors = []
        for source in self._tokens:
            try:
                response = source.authenticate(token)
            except TokenRejected as rejected:
                errors.append(str(rejected))
                continue
            if response is None:
                continue
            if not set(audiences).isdisjoint(response.audiences):
                return response, errors
            errors.append(
                f"token audiences {_quote_all(response.audiences)} is invalid"
                f" for the target audiences {_quote_all(audiences)}"
            )
        return None, errors


def _quote_all(names: Iterable[str]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"


def bearer_token(headers: MultiMapping[str]) -> str | None:
    """The token of the Authorization header, or of a WebSocket's sub-protocol list; None when there is none."""
    scheme, token, *_ = (*headers.get("Authorization", "").strip().split(" "), "")
    if scheme.lower() == "bearer" and token:
        return token
    for protocol in headers.get("Sec-WebSocket-Protocol", "").split(","):
        encoded = protocol.strip()
        if encoded.startswith(WEBSOCKET_TOKEN_PREFIX):
            encoded = encoded.removeprefix(WEBSOCKET_TOKEN_PREFIX)
            try:
                return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            except (binascii.Error, UnicodeDecodeError):
                return ""  # matches no token and results in 401
    return None
