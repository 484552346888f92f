"""Secrets of type service-account-token: a token without expiry for the account that the secret names."""

from __future__ import annotations

import base64
from collections.abc import Callable

from torchyard.api.objects import Object

TYPE = "kubernetes.io/service-account-token"
ACCOUNT_NAME, ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"


def account_of(secret: Object) -> str:
    """`namespace/name` of the account a secret is for; empty for other secrets."""
    metadata = secret["metadata"]
    name = (metadata.get("annotations") or {}).get(ACCOUNT_NAME)
    return f"{metadata['namespace']}/{name}" if secret.get("type") == TYPE and name else ""


def is_for(secret: Object, account: Object | None) -> bool:
    """Whether the account exists and is the one the secret was bound to, not a later one of the same name."""
    if account is None:
        return False
    account_uid = (secret["metadata"].get("annotations") or {}).get(ACCOUNT_UID)
    return account_uid in (None, "", account["metadata"]["uid"])


def with_token(secret: Object, account: Object, *, authority: str, sign: Callable[[Object, str], str]) -> Object | None:
    """The secret with its token, CA and namespace; None if nothing is missing. An existing token is kept."""
    metadata, data = secret["metadata"], secret.get("data") or {}
    token_data = {
        "ca.crt": _encoded(authority),
        "namespace": _encoded(metadata["namespace"]),
        "token": data.get("token") or _encoded(sign(account, metadata["name"])),
    }
    annotations = metadata.get("annotations") or {}
    if {**data, **token_data} == data and annotations.get(ACCOUNT_UID) == account["metadata"]["uid"]:
        return None
    updated_metadata = {**metadata, "annotations": {**annotations, ACCOUNT_UID: account["metadata"]["uid"]}}
    return {**secret, "metadata": updated_metadata, "data": {**data, **token_data}}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
