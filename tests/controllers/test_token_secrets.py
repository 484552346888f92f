"""Service account token secrets, on a plane and on a real cluster."""

from __future__ import annotations

import base64

from tests.controllers.conftest import Cluster

from torchyard.api.gvr import SECRETS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.core.account.secrets import ACCOUNT_NAME, ACCOUNT_UID, TYPE


def secret(account: str) -> Object:
    return {"metadata": {"name": "token", "annotations": {ACCOUNT_NAME: account}}, "type": TYPE}


async def test_a_token_secret_gets_a_token_that_the_server_accepts(cluster: Cluster) -> None:
    account = await cluster.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}})
    await cluster.create(SECRETS, secret("robot"))
    token_secret = await cluster.becomes(SECRETS, "token", lambda item: "token" in (item.get("data") or {}))
    data = {name: base64.b64decode(value).decode() for name, value in token_secret["data"].items()}
    assert data["namespace"] == cluster.namespace
    assert "BEGIN CERTIFICATE" in data["ca.crt"]
    assert token_secret["metadata"]["annotations"][ACCOUNT_UID] == account["metadata"]["uid"]
    review = await cluster.client.raw(
        "POST",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": data["token"]}},
    )
    assert review["status"]["authenticated"] is True
    assert review["status"]["user"]["username"] == f"system:serviceaccount:{cluster.namespace}:robot"


async def test_deleting_an_account_deletes_its_token_secret(cluster: Cluster) -> None:
    await cluster.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}})
    await cluster.create(SECRETS, secret("robot"))
    await cluster.becomes(SECRETS, "token", lambda item: "token" in (item.get("data") or {}))
    await cluster.delete(SERVICE_ACCOUNTS, "robot")
    await cluster.gone(SECRETS, "token")


async def test_a_token_secret_of_an_unknown_account_is_deleted(cluster: Cluster) -> None:
    await cluster.create(SECRETS, secret("unknown"))
    await cluster.gone(SECRETS, "token")
