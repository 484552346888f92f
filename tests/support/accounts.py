"""The service account that a pod needs: a controller creates it a moment after its namespace."""

from __future__ import annotations

from tests.support.http import Client
from tests.support.waiting import eventually


def wait_for_account(client: Client, namespace: str = "default") -> None:
    """Return when pods can be created in the namespace; until then the server refuses them with 403."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually(lambda: client.get(account).status == 200, f"the default service account of {namespace}")
