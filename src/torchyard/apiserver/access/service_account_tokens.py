"""Service account tokens: issues them (TokenRequest) and authenticates them.

A token is a JWT signed with ES256, with kube-apiserver's claims. It is valid until it expires or until the service
account, pod, secret or node it is bound to is deleted. A signature is verified once and cached; existence is checked
on every use.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import orjson

from torchyard.api import field_errors
from torchyard.api.errors import bad_request, conflict, invalid, not_found
from torchyard.api.objects import Object
from torchyard.api.times import parse_rfc3339, to_rfc3339
from torchyard.apiserver.access.authentication import (
    CREDENTIAL_ID,
    AuthenticationResponse,
    TokenRejected,
    User,
    service_account_groups,
    service_account_username,
    with_authenticated_group,
)
from torchyard.apiserver.access.lister import Lister

if TYPE_CHECKING:
    from torchyard.apiserver.access.signing_key import SigningKey

ISSUER = "https://kubernetes.default.svc"
# What kube-controller-manager writes into Secrets of type kubernetes.io/service-account-token.
LEGACY_ISSUER = "kubernetes/serviceaccount"
LEGACY_PREFIX = "kubernetes.io/serviceaccount/"
DEFAULT_LIFETIME = 3600
MIN_LIFETIME = 600
MAX_LIFETIME = 1 << 32
# Seconds after the deletion of a bound object for which its tokens are still valid, if a finalizer or a grace period
# keeps the object.
DELETED_LEEWAY = 60
# Objects a token can be bound to, by kind: (plural, namespaced).
BINDABLE = {"Pod": ("pods", True), "Secret": ("secrets", True), "Node": ("nodes", False)}

_is_base64url = re.compile("[A-Za-z0-9_-]*").fullmatch


@dataclass(frozen=True, slots=True)
class _Claims:
    """The claims of a token with a valid signature."""

    namespace: str
    account: str
    account_uid: str
    audiences: tuple[str, ...]
    expires: float | None
    not_before: float
    # (plural, namespace, name, uid) of the objects that must still exist
    bound_to: tuple[tuple[str, str, str, str], ...]
    # The secret that must still hold a legacy token.
    secret: str
    extra: dict[str, tuple[str, ...]]


class ServiceAccountTokens:
    """Issues and authenticates tokens with the plane's signing key."""

    _LIMIT = 4096

    def __init__(
        self, key: bytes, lister: Lister, *, issuer: str = ISSUER, clock: Callable[[], float] = time.time
    ) -> None:
        self._pem = key
        self._lister = lister
        self._clock = clock
        self._verified_claims: dict[str, _Claims] = {}
        self.issuer = issuer

    @cached_property
    def _key(self) -> SigningKey:
        """Loaded with the first token: the library takes longer to load than a server to answer."""
        from torchyard.apiserver.access.signing_key import SigningKey

        return SigningKey(self._pem)

    def request(self, namespace: str, name: str, review: Object) -> Object:
        """The response to a TokenRequest: the request with its metadata, spec and status filled in."""
        account = self._lister.get("", "serviceaccounts", namespace, name)
        if account is None:
            raise not_found("serviceaccounts", "", name)
        spec = dict(review.get("spec") or {})
        metadata = review.get("metadata") or {}
        _check_request(metadata, spec, namespace, name)
        lifetime = spec.get("expirationSeconds")
        lifetime = DEFAULT_LIFETIME if lifetime is None else lifetime
        audiences = list(spec.get("audiences") or [self.issuer])
        reference = spec.get("boundObjectRef")
        bound = self._bound(namespace, name, reference) if reference else {}
        token, expires = self.issue(account, audiences=audiences, lifetime=lifetime, bound=bound)
        response_metadata = {
            "name": name,
            "namespace": namespace,
            "uid": account["metadata"].get("uid", ""),
            "creationTimestamp": _timestamp(self._clock()),
        }
        return {
            **review,
            "metadata": response_metadata,
            "spec": {"audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": reference or None},
            "status": {"token": token, "expirationTimestamp": _timestamp(expires)},
        }

    def issue(
        self,
        account: Object,
        *,
        audiences: Sequence[str] = (),
        lifetime: int = DEFAULT_LIFETIME,
        bound: Object | None = None,
    ) -> tuple[str, float]:
        """A signed token of an account and when it expires. `bound` holds claims such as {"pod": {"name", "uid"}}."""
        metadata = account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        now = int(self._clock())
        claims = {
            "aud": list(audiences) or [self.issuer],
            "exp": now + lifetime,
            "iat": now,
            "iss": self.issuer,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": namespace,
                **(bound or {}),
                "serviceaccount": {"name": name, "uid": metadata.get("uid", "")},
            },
            "nbf": now,
            "sub": service_account_username(namespace, name),
        }
        return self._sign(claims), now + lifetime

    def issue_for_secret(self, account: Object, secret: str) -> str:
        """A legacy token, which is valid as long as the secret that holds it exists."""
        metadata = account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        claims = {
            "iss": LEGACY_ISSUER,
            f"{LEGACY_PREFIX}namespace": namespace,
            f"{LEGACY_PREFIX}secret.name": secret,
            f"{LEGACY_PREFIX}service-account.name": name,
            f"{LEGACY_PREFIX}service-account.uid": metadata["uid"],
            "sub": service_account_username(namespace, name),
        }
        return self._sign(claims)

    def authenticate(self, token: str) -> AuthenticationResponse | None:
        """The service account of a token; None when this server did not issue the token."""
        claims = self._verified_claims.get(token)
        if claims is None:
            claims = self._verify(token)
            if claims is None:
                return None
            if len(self._verified_claims) >= self._LIMIT:
                self._verified_claims.clear()
            self._verified_claims[token] = claims
        self._check_valid(claims, token)
        user = User(
            service_account_username(claims.namespace, claims.account),
            claims.account_uid,
            service_account_groups(claims.namespace),
            claims.extra,
        )
        return AuthenticationResponse(with_authenticated_group(user), claims.audiences)

    def key_set(self) -> Object:
        """The JSON Web Key Set that verifies the tokens: /openid/v1/jwks."""
        x, y = self._key.point
        key = {
            "use": "sig",
            "kty": "EC",
            "kid": _encode(self._key.digest),
            "crv": "P-256",
            "alg": "ES256",
            "x": _encode(x),
            "y": _encode(y),
        }
        return {"keys": [key]}

    def discovery(self, server: str) -> Object:
        """/.well-known/openid-configuration of a server at this URL."""
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{server}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def _bound(self, namespace: str, account: str, reference: Object) -> Object:
        kind, name = reference.get("kind", ""), reference.get("name", "")
        if reference.get("apiVersion") not in (None, "", "v1") or kind not in BINDABLE:
            group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
            raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        if not name:
            raise bad_request("Name parameter required.")
        plural, namespaced = BINDABLE[kind]
        obj = self._lister.get("", plural, namespace if namespaced else "", name)
        if obj is None:
            raise not_found(plural, "", name)
        if kind == "Pod" and obj["spec"].get("serviceAccountName") != account:
            raise bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
        uid, expected_uid = obj["metadata"].get("uid", ""), reference.get("uid")
        if expected_uid and expected_uid != uid:
            raise conflict(
                kind,
                "",
                name,
                f"the UID in the bound object reference ({expected_uid}) does not match the UID in record."
                " The object might have been deleted and then recreated",
            )
        bound: Object = {kind.lower(): {"name": name, "uid": uid}}
        node_name = obj["spec"].get("nodeName") if kind == "Pod" else None
        if node_name:
            node = self._lister.get("", "nodes", "", node_name)
            bound["node"] = {"name": node_name, **({"uid": node["metadata"].get("uid", "")} if node else {})}
        return bound

    def _sign(self, claims: Object) -> str:
        header = {"alg": "ES256", "kid": _encode(self._key.digest)}
        text = f"{_encode(orjson.dumps(header))}.{_encode(orjson.dumps(claims))}"
        return f"{text}.{_encode(self._key.sign(text.encode()))}"

    def _verify(self, token: str) -> _Claims | None:
        """The claims of a token that this server signed; None for any other text."""
        signed, _, signature = token.rpartition(".")
        header, _, payload = signed.partition(".")
        try:
            if orjson.loads(_decode(header)).get("alg") != "ES256":
                return None
            raw = _decode(signature)
            claims = orjson.loads(_decode(payload))
            if not isinstance(claims, dict) or not self._key.is_signature(raw, signed.encode()):
                return None
            return self._claims(claims)
        except (ValueError, AttributeError, KeyError, TypeError, binascii.Error):
            return None

    def _claims(self, claims: Object) -> _Claims | None:
        if claims.get("iss") == LEGACY_ISSUER:
            return self._legacy_claims(claims)
        if claims.get("iss") != self.issuer:
            return None
        private = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        extra: dict[str, tuple[str, ...]] = {CREDENTIAL_ID: (f"JTI={claims['jti']}",)}
        bound_to = []
        for kind, (plural, namespaced) in BINDABLE.items():
            claim = private.get(kind.lower())
            if claim is None:
                continue
            if kind != "Secret":
                extra[f"authentication.kubernetes.io/{kind.lower()}-name"] = (claim["name"],)
                extra[f"authentication.kubernetes.io/{kind.lower()}-uid"] = (claim.get("uid", ""),)
            if kind == "Node" and "pod" in private:
                continue  # the node of a bound pod is information only; it need not exist
            bound_to.append((plural, namespace if namespaced else "", claim["name"], claim.get("uid", "")))
        return _Claims(
            namespace=namespace,
            account=account["name"],
            account_uid=account["uid"],
            audiences=tuple(claims["aud"]),
            expires=claims["exp"],
            not_before=claims.get("nbf", 0),
            bound_to=tuple(bound_to),
            secret="",
            extra=extra,
        )

    def _legacy_claims(self, claims: Object) -> _Claims:
        namespace = claims[f"{LEGACY_PREFIX}namespace"]
        secret = claims[f"{LEGACY_PREFIX}secret.name"]
        return _Claims(
            namespace=namespace,
            account=claims[f"{LEGACY_PREFIX}service-account.name"],
            account_uid=claims[f"{LEGACY_PREFIX}service-account.uid"],
            audiences=(self.issuer,),
            expires=None,
            not_before=0,
            bound_to=(),
            secret=secret,
            extra={},
        )

    def _check_valid(self, claims: _Claims, token: str) -> None:
        now = self._clock()
        if claims.expires is not None and now > claims.expires:
            raise TokenRejected("service account token has expired")
        if now + 1 < claims.not_before:
            raise TokenRejected("service account token is not valid yet")
        if claims.secret:
            self._check_secret(claims, token)
        self._check_exists("serviceaccounts", claims.namespace, claims.account, claims.account_uid)
        for plural, namespace, name, uid in claims.bound_to:
            self._check_exists(plural, namespace, name, uid)

    def _check_exists(self, plural: str, namespace: str, name: str, uid: str) -> None:
        obj = self._lister.get("", plural, namespace, name)
        if obj is None:
            raise TokenRejected(f'{plural} "{name}" not found')
        if uid and obj["metadata"].get("uid") != uid:
            raise TokenRejected(f"{plural} UID ({obj['metadata'].get('uid')}) does not match claim ({uid})")
        deleted = obj["metadata"].get("deletionTimestamp")
        # As upstream: a pod that is being deleted can use its token a while longer, in order to end properly.
        if deleted and self._clock() > parse_rfc3339(deleted).timestamp() + DELETED_LEEWAY:
            raise TokenRejected("service account token has been invalidated")

    def _check_secret(self, claims: _Claims, token: str) -> None:
        """A legacy token is valid as long as the secret holds this very token."""
        secret = self._lister.get("", "secrets", claims.namespace, claims.secret)
        if secret is None or secret["metadata"].get("deletionTimestamp"):
            raise TokenRejected("Token has been invalidated")
        if (secret.get("data") or {}).get("token") != base64.b64encode(token.encode()).decode():
            raise TokenRejected("Token does not match server's copy")


def _check_request(metadata: Object, spec: Object, namespace: str, name: str) -> None:
    mismatches = [
        field_errors.invalid(
            f"metadata.{field}", metadata[field], f"must match the service account {field} if specified"
        )
        for field, expected in (("name", name), ("namespace", namespace))
        if metadata.get(field) and metadata[field] != expected
    ]
    if mismatches:
        raise invalid("TokenRequest", "authentication.k8s.io", name, mismatches)
    lifetime = spec.get("expirationSeconds")
    if lifetime is None:
        return
    reason = ""
    if lifetime < MIN_LIFETIME:
        reason = "may not specify a duration less than 10 minutes"
    elif lifetime > MAX_LIFETIME:
        reason = "may not specify a duration larger than 2^32 seconds"
    if reason:
        error = field_errors.invalid("spec.expirationSeconds", lifetime, reason)
        raise invalid("TokenRequest", "authentication.k8s.io", "", [error])


def _timestamp(seconds: float) -> str:
    return to_rfc3339(datetime.fromtimestamp(seconds, UTC))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Unpadded base64url, as RFC 7515 requires it; ValueError for anything else, unused bits that are set included."""
    if not _is_base64url(text):
        raise ValueError("not unpadded base64url")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encode(data) != text:
        raise ValueError("not canonical base64url")
    return data
