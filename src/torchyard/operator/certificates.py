"""The webhook's certificates: created by the operator, stored in a Secret that all replicas share, renewed in time.

The operator also puts its CA into the webhook configurations, so that the API server trusts them.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import SECRETS
from torchyard.api.objects import Object
from torchyard.apiserver.access.certificate_dir import CertificateDir
from torchyard.apiserver.access.certificates import ensure_server
from torchyard.kube.client import Client
from torchyard.operator.settings import (
    DEFAULTS_WEBHOOK,
    JOBSET_DEFAULTS_WEBHOOK,
    NAME,
    TRAINJOB_DEFAULTS_WEBHOOK,
    WEBHOOK,
    WEBHOOK_SECRET,
)

log = logging.getLogger(__name__)

VALIDATING = GroupVersionResource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
MUTATING = GroupVersionResource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False)
# The keys of the TLS Secret and their files. The CA's key is needed for renewal.
_FILES = {"ca.crt": "ca.crt", "ca.key": "ca.key", "tls.crt": "server.crt", "tls.key": "server.key"}
RENEW_CHECK_SECONDS, RETRY_SECONDS = 3600.0, 5.0
_MAX_CONFLICTS = 5


class ServingCertificate(NamedTuple):
    """`authority` is the PEM text of the CA; `reload` makes new connections use a renewed certificate."""

    context: ssl.SSLContext
    authority: str
    reload: Callable[[], None]


class WebhookCertificates:
    """`ensure` brings Secret, files and configurations up to date; `directory` is this process's copy."""

    def __init__(
        self,
        client: Client,
        directory: Path,
        *,
        namespace: str,
        webhook: bool = True,
        jobsets: bool = False,
        trainjobs: bool = False,
    ) -> None:
        """`jobsets` and `trainjobs`: which configurations there are besides PyTorchJobs'. Without `webhook`, none."""
        self._client, self._directory, self._namespace = client, directory, namespace
        self._webhook, self._jobsets, self._trainjobs = webhook, jobsets, trainjobs
        service = f"{NAME}.{namespace}"
        # localhost is for an operator that was started by hand next to the API server.
        self._names = [f"{service}.svc", f"{service}.svc.cluster.local", service, NAME, "localhost"]

    async def obtain(self) -> CertificateDir:
        """Like `ensure`, but retry until the API server answers."""
        while True:
            try:
                return await self.ensure()
            except YardError as error:
                log.warning("webhook certificates not available yet: error=%s retry_seconds=%g", error, RETRY_SECONDS)
            await asyncio.sleep(RETRY_SECONDS)

    async def ensure(self) -> CertificateDir:
        for _ in range(_MAX_CONFLICTS):
            secret = await self._client.find(SECRETS, WEBHOOK_SECRET, self._namespace)
            self._write_files(secret)
            credentials = ensure_server(self._directory, names=self._names)
            data = self._encoded_files()
            try:
                if secret is None:
                    await self._client.create(SECRETS, _secret(data), self._namespace)
                elif (secret.get("data") or {}) != data:
                    await self._client.update(SECRETS, {**secret, "data": data})
            except StatusError as error:
                if error.status != 409:
                    raise
                continue  # another replica was faster: use its certificates
            if self._webhook:
                await self._publish_ca(data["ca.crt"])
            return credentials
        raise YardError(
            f"cannot write the secret {self._namespace}/{WEBHOOK_SECRET}: {_MAX_CONFLICTS} conflicts with others",
            code="Conflict",
        )

    async def serving(self) -> ServingCertificate:
        """The certificate for this process's servers, when the API server answers."""
        credentials = await self.obtain()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.num_tickets = 0  # neither API servers nor the clients of reports resume sessions

        def load() -> None:
            context.load_cert_chain(credentials.server_certificate, credentials.server_key)

        load()
        return ServingCertificate(context, credentials.authority.read_text(), load)

    async def renew_periodically(self, renewed: Callable[[], None]) -> None:
        """Run until cancelled; call `renewed` when the certificate has changed."""
        served = self._encoded_files()
        while True:
            await asyncio.sleep(RENEW_CHECK_SECONDS)
            try:
                await self.ensure()
            except YardError as error:
                log.warning("webhook certificates not renewed: error=%s", error)
                continue
            if self._encoded_files() != served:
                served = self._encoded_files()
                renewed()

    async def _publish_ca(self, authority: str) -> None:
        """Put the CA into our webhook configurations."""
        if not await self._set_ca_bundle(VALIDATING, WEBHOOK, authority):
            log.warning(
                "jobs are not validated, because the ValidatingWebhookConfiguration is missing: name=%s", WEBHOOK
            )
        await self._set_ca_bundle(MUTATING, DEFAULTS_WEBHOOK, authority)  # exists only with queues
        if self._jobsets:
            await self._set_ca_bundle(MUTATING, JOBSET_DEFAULTS_WEBHOOK, authority)
        if self._trainjobs:
            await self._set_ca_bundle(MUTATING, TRAINJOB_DEFAULTS_WEBHOOK, authority)

    async def _set_ca_bundle(self, ref: GroupVersionResource, name: str, authority: str) -> bool:
        """Returns whether the configuration exists."""
        webhook = await self._client.find(ref, name)
        if webhook is None:
            return False
        hooks = webhook.get("webhooks") or []
        if any(webhook_entry["clientConfig"].get("caBundle") != authority for webhook_entry in hooks):
            patch = [
                {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": authority}
                for place in range(len(hooks))
            ]
            await self._client.patch(ref, name, patch, kind="json")
        return True

    def _write_files(self, secret: Object | None) -> None:
        data = (secret or {}).get("data") or {}
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for key, name in _FILES.items():
            path = self._directory / name
            if key in data:
                path.touch(mode=0o600)
                path.write_bytes(base64.b64decode(data[key]))

    def _encoded_files(self) -> dict[str, str]:
        return {key: base64.b64encode((self._directory / name).read_bytes()).decode() for key, name in _FILES.items()}


def _secret(data: dict[str, str]) -> Object:
    return {"metadata": {"name": WEBHOOK_SECRET}, "type": "kubernetes.io/tls", "data": data}
