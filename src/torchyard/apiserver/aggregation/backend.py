"""The address of an APIService's server, and how it is verified."""

from __future__ import annotations

import base64
import binascii
import ssl
from dataclasses import dataclass
from pathlib import Path

from torchyard.api.objects import Object
from torchyard.apiserver.access.certificate_dir import CertificateDir
from torchyard.apiserver.service_network.resolver import ServiceLister

DEFAULT_PORT = 443
_MAX_CONTEXTS = 64


@dataclass(frozen=True, slots=True)
class Backend:
    """A Service as `spec.service` names it. Requests show the address of the Service; connections go to its pods."""

    namespace: str
    name: str
    port: int
    host: str  # the cluster IP, or the name that an ExternalName stands for

    @property
    def netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def server_name(self) -> str:
        """The name in the server's certificate."""
        return f"{self.name}.{self.namespace}.svc"


def backend_of(api_service: Object, lister: ServiceLister) -> Backend | None:
    """The backend of an APIService; None if its Service is missing or has no address."""
    reference = api_service["spec"]["service"]
    namespace, name = reference.get("namespace") or "", reference.get("name") or ""
    service = lister.get("", "services", namespace, name)
    spec = (service or {}).get("spec") or {}
    host = spec.get("externalName") if spec.get("type") == "ExternalName" else spec.get("clusterIP")
    if not host or host == "None":
        return None
    return Backend(namespace, name, reference.get("port") or DEFAULT_PORT, host)


class FrontProxyContexts:
    """TLS contexts with the certificate by which extension API servers know this server."""

    def __init__(self, credentials: CertificateDir) -> None:
        self._certificate, self._key = credentials.front_proxy_client
        self._contexts: dict[str | None, ssl.SSLContext] = {}
        self._modified = 0  # when the certificate was written, in nanoseconds

    def unverified(self) -> ssl.SSLContext:
        return self._cached(None)

    def verified(self, api_service: Object) -> ssl.SSLContext:
        """Trusts the caBundle of the APIService, or the authorities of the machine without one.

        Raises ValueError for a bundle without a certificate.
        """
        spec = api_service["spec"]
        if spec.get("insecureSkipTLSVerify"):
            return self.unverified()
        return self._cached(spec.get("caBundle") or "")

    def _cached(self, bundle: str | None) -> ssl.SSLContext:
        modified = self._certificate.stat().st_mtime_ns
        if modified != self._modified:  # it is renewed every few months
            self._modified = modified
            self._contexts.clear()
        context = self._contexts.get(bundle)
        if context is None:
            if len(self._contexts) >= _MAX_CONTEXTS:
                self._contexts.clear()
            context = self._contexts[bundle] = _context(bundle, self._certificate, self._key)
        return context


def _context(bundle: str | None, certificate: Path, key: Path) -> ssl.SSLContext:
    """A client context: without verification if `bundle` is None, with the machine's authorities if it is empty."""
    if bundle is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif not bundle:
        context = ssl.create_default_context()
    else:
        try:
            context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
        except (binascii.Error, UnicodeDecodeError, ssl.SSLError):
            raise ValueError("unable to load root certificates: unable to parse bytes as PEM block") from None
    context.load_cert_chain(certificate, key)
    return context
