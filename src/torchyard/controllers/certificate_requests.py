"""CertificateSigningRequests: approves those of kubelets, signs approved ones, deletes old ones."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from torchyard.api.errors import StatusError
from torchyard.api.gvr import CERTIFICATE_SIGNING_REQUESTS, SUBJECT_ACCESS_REVIEWS
from torchyard.api.objects import Object
from torchyard.controllers.loop import Controller
from torchyard.core.certificate.approval import access_review, permissions, with_approval_of
from torchyard.core.certificate.cleaning import seconds_left
from torchyard.core.certificate.request import decode_request, is_decided, is_to_be_signed
from torchyard.core.certificate.signing import SIGNERS, refusal, validity, with_failure
from torchyard.kube.client import Client
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory

# From a PKCS #10 request, its usages and its validity to a certificate, both in PEM.
IssueCertificate = Callable[[bytes, Sequence[str], datetime, datetime], bytes]
Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


class _RequestController:
    """What the three controllers share: every changed request is reconciled."""

    name = ""

    def __init__(self, client: Client, informers: InformerFactory, *, clock: Clock = _now) -> None:
        self._client, self._clock = client, clock
        self._requests = informers.for_resource(CERTIFICATE_SIGNING_REQUESTS)
        self._controller = Controller(self.name, self._reconcile_key, [self._requests])
        self._requests.on_change(lambda _change, csr, _before: self._controller.queue.add(key_of(csr)))

    async def run(self) -> None:
        await self._controller.run()

    async def _reconcile_key(self, key: Key) -> float | None:
        csr = self._requests.get(*key)
        if csr is None or csr["metadata"].get("deletionTimestamp"):
            return None
        return await self._reconcile(csr)

    async def _reconcile(self, csr: Object) -> float | None:
        raise NotImplementedError


class CertificateApprover(_RequestController):
    """Approves client certificates of kubelets for users who may create them, as a cluster's bootstrap needs."""

    name = "certificatesigningrequest-approving-controller"

    async def _reconcile(self, csr: Object) -> float | None:
        if is_decided(csr) or (csr.get("status") or {}).get("certificate"):
            return None
        for permission in permissions(csr, decode_request(csr)):
            review = await self._client.create(SUBJECT_ACCESS_REVIEWS, access_review(csr, permission))
            if review["status"].get("allowed"):
                approved = with_approval_of(csr, permission)
                await self._client.update(CERTIFICATE_SIGNING_REQUESTS, approved, subresource="approval")
                return None
        return None


class CertificateSigner(_RequestController):
    """Signs approved requests of the signers of the API server with the plane's authority."""

    name = "certificatesigningrequest-signing-controller"

    def __init__(
        self, client: Client, informers: InformerFactory, *, issue: IssueCertificate, clock: Clock = _now
    ) -> None:
        super().__init__(client, informers, clock=clock)
        self._issue = issue

    async def _reconcile(self, csr: Object) -> float | None:
        spec, now = csr["spec"], self._clock()
        if spec["signerName"] not in SIGNERS or not is_to_be_signed(csr):
            return None
        request = decode_request(csr)
        message = refusal(spec["signerName"], request, spec["usages"])
        if message:
            changed = with_failure(csr, message, now)
        else:
            # It reads the authority's key and computes a signature.
            certificate = await asyncio.to_thread(self._issue, request.pem, spec["usages"], *validity(csr, now))
            status = {**csr["status"], "certificate": base64.b64encode(certificate).decode()}
            changed = {**csr, "status": status}
        await self._client.update(CERTIFICATE_SIGNING_REQUESTS, changed, subresource="status")
        return None


class CertificateRequestCleaner(_RequestController):
    name = "certificatesigningrequest-cleaner-controller"

    async def _reconcile(self, csr: Object) -> float | None:
        remaining = seconds_left(csr, self._clock())
        if remaining is None or remaining > 0:
            return remaining
        metadata = csr["metadata"]
        try:
            await self._client.delete(CERTIFICATE_SIGNING_REQUESTS, metadata["name"], uid=metadata["uid"])
        except StatusError as error:
            if error.status != 404:
                raise
        return None
