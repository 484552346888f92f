"""Who is asking: a request's bearer token or client certificate becomes a `User`.

Authenticators are asked in turn, as in kube-apiserver: certificate, then tokens. Credentials that nobody knows end in
401; a request without any is `system:anonymous`, who may see no more than RBAC's bootstrap policy lets it. What a user
may do is not decided here.
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
from typing import Any, NamedTuple, Protocol

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from multidict import MultiMapping

from torchyard.api.errors import YardError, bad_request, unauthorized
from torchyard.apiserver.access.certificates import is_signed_by, is_valid_at

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
        """As `authentication.k8s.io/v1` UserInfo."""
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
    namespace, separator, name = username.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    if not separator or not namespace or not name or ":" in name:
        return None
    return namespace, name


def with_authenticated_group(user: User) -> User:
    """The user as a member of `system:authenticated`, unless it is already or is anonymous."""
    if user.name == ANONYMOUS_NAME or ALL_AUTHENTICATED in user.groups or ALL_UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, ALL_AUTHENTICATED))


class AuthenticationResponse(NamedTuple):
    """A token's user, and whom the token is meant for."""

    user: User
    audiences: tuple[str, ...]


class TokenAuthenticator(Protocol):
    """One source of users that come with a bearer token."""

    def authenticate(self, token: str) -> AuthenticationResponse | None:
        """None when the token is not of this source. Raises `TokenRejected` when it is, but is good no more."""
        ...


class TokenRejected(Exception):
    """A known kind of token that must not be accepted; the message is for TokenReview."""


class StaticTokenAuthenticator:
    """Tokens known beforehand: the admin's own, and those of a token file. Good for this server only."""

    def __init__(self, users: Mapping[str, User], audiences: Sequence[str]) -> None:
        # A dict compares keys of equal hash only, and a text's hash is keyed with a secret of the process: the time a
        # wrong token takes says nothing about the right ones.
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
        raise YardError(f"the token file {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise YardError(f"the token file {path} cannot be read: {error}") from error
    users: dict[str, User] = {}
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        where = f"{path}, line {number}"
        if len(row) < 3:
            raise YardError(
                f"{where}: at least 3 columns are needed (token, user name, user uid), found {len(row)}",
                hint='a line reads: token,user,uid,"group1,group2"',
            )
        token, name, uid = (cell.strip() for cell in row[:3])
        if not token or not name:
            raise YardError(f"{where}: the {'user name' if token else 'token'} is empty")
        if token in users:
            raise YardError(f"{where}: the token of user {name!r} is already that of {users[token].name!r}")
        groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
        users[token] = User(name, uid, groups)
    return users


class CertificateAuthenticator:
    """Users of client certificates: CN is the name, every O a group. Only those our authority signed."""

    _LIMIT = 1024

    def __init__(self, authority: bytes) -> None:
        self._authority = x509.load_pem_x509_certificate(authority)
        self._known: dict[bytes, tuple[User, x509.Certificate]] = {}

    def authenticate(self, der: bytes, now: datetime | None = None) -> User | None:
        """The certificate's user; None when it is not ours, not for clients, or not valid now."""
        found = self._known.get(der)
        if found is None:
            found = self._read(der)
            if found is None:
                return None
            if len(self._known) >= self._LIMIT:
                self._known.clear()
            self._known[der] = found
        user, certificate = found
        return user if is_valid_at(certificate, now or datetime.now(UTC)) else None

    def _read(self, der: bytes) -> tuple[User, x509.Certificate] | None:
        try:
            certificate = x509.load_der_x509_certificate(der)
            if not is_signed_by(certificate, self._authority) or not _is_for_clients(certificate):
                return None
            names = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
            groups = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        except ValueError:
            return None
        if not names or not names[-1]:
            return None
        fingerprint = f"X509SHA256={hashlib.sha256(der).hexdigest()}"
        user = User(names[-1], groups=tuple(groups), extra={CREDENTIAL_ID: (fingerprint,)})
        return with_authenticated_group(user), certificate


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages


class RequestAuthenticator:
    """All the ways into this server, in order. `audiences` are the names this server goes by in tokens."""

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
        if certificate is not None and (user := self._certificates.authenticate(certificate)) is not None:
            return user
        token = bearer_token(headers)
        if token is not None:
            found, _ = self._authenticate_token(token, self._audiences)
            if found is not None:
                return found.user
        if certificate is None and token is None and self._anonymous:
            return ANONYMOUS
        raise unauthorized()

    def review_token(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The status of a TokenReview with this spec."""
        token = spec.get("token")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        wanted = tuple(spec.get("audiences") or self._audiences)
        found, errors = self._authenticate_token(token, wanted)
        if found is None:
            reasons = ["invalid bearer token", *errors]
            return {"user": {}, "error": reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]"}
        common = [one for one in wanted if one in found.audiences]
        return {"authenticated": True, "user": found.user.info(), "audiences": common}

    def _authenticate_token(
        self, token: str, wanted: tuple[str, ...]
    ) -> tuple[AuthenticationResponse | None, list[str]]:
        errors = []
        for source in self._tokens:
            try:
                found = source.authenticate(token)
            except TokenRejected as rejected:
                errors.append(str(rejected))
                continue
            if found is None:
                continue
            if not set(wanted).isdisjoint(found.audiences):
                return found, errors
            errors.append(
                f"token audiences {_quoted(found.audiences)} is invalid for the target audiences {_quoted(wanted)}"
            )
        return None, errors


def _quoted(names: Iterable[str]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"


def bearer_token(headers: MultiMapping[str]) -> str | None:
    """The token of the Authorization header, or of a WebSocket's sub-protocol list; None when there is none."""
    scheme, _, rest = headers.get("Authorization", "").strip().partition(" ")
    token = rest.strip()
    if scheme.lower() == "bearer" and token:
        return token
    for protocol in headers.get("Sec-WebSocket-Protocol", "").split(","):
        encoded = protocol.strip()
        if encoded.startswith(WEBSOCKET_TOKEN_PREFIX):
            encoded = encoded.removeprefix(WEBSOCKET_TOKEN_PREFIX)
            try:
                return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            except (binascii.Error, UnicodeDecodeError):
                return ""  # nobody's token: ends in 401
    return None
