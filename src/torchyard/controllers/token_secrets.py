"""Service account token secrets: fills them, and deletes those whose account is gone."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.gvr import SECRETS, SERVICE_ACCOUNTS
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.core.account.secrets import TYPE, account_of, is_for, with_token
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory


class TokenSecretController:
    """`sign` creates the token of an account for a secret of this name."""

    def __init__(
        self, client: Client, informers: InformerFactory, *, authority: str, sign: Callable[[Object, str], str]
    ) -> None:
        self._client, self._authority, self._sign = client, authority, sign
        self._accounts = informers.for_resource(SERVICE_ACCOUNTS)
        self._secrets = informers.for_resource(SECRETS, fields=f"type={TYPE}", indexes={"account": _index})
        sources = (self._accounts, self._secrets)
        self.controller = Controller("serviceaccount-token-controller", self._reconcile, sources)
        self._secrets.on_change(lambda _change, obj, _before: self.controller.queue.add(key_of(obj)))
        self._accounts.on_change(self._account_changed)

    async def run(self) -> None:
        await self.controller.run()

    def _account_changed(self, _change: str, account: Object, _before: Object | None) -> None:
        for secret in self._secrets.by("account", "/".join(key_of(account))):
            self.controller.queue.add(key_of(secret))

    async def _reconcile(self, key: Key) -> None:
        secret = self._secrets.get(*key)
        if secret is None or not (account_key := account_of(secret)):
            return
        namespace, _, name = account_key.partition("/")
        # The cache may not have a new account yet, and a secret must not be deleted by mistake.
        account = self._accounts.get(namespace, name) or await self._client.find(SERVICE_ACCOUNTS, name, namespace)
        if account is None or not is_for(secret, account):
            metadata = secret["metadata"]
            await self._client.delete(
                SECRETS, key[1], key[0], uid=metadata["uid"], revision=metadata["resourceVersion"]
            )
            return
        changed = with_token(secret, account, authority=self._authority, sign=self._sign)
        if changed is not None:
            await self._client.update(SECRETS, changed)


def _index(secret: Object) -> tuple[str, ...]:
    account = account_of(secret)
    return (account,) if account else ()
