"""The server's TLS context: its own certificate, and the request for client certificates."""

from __future__ import annotations

import asyncio
import ctypes
import ssl
import sys
from collections.abc import Iterable
from typing import Any

from torchyard.apiserver.access.certificate_check import ensure
from torchyard.apiserver.access.certificate_dir import CertificateDir

# Certificates last a year and are renewed months before they expire: twice a day is often enough.
RENEWAL_INTERVAL = 12 * 3600.0


def server_context(credentials: CertificateDir) -> ssl.SSLContext:
    """A context that requests a client certificate and also accepts connections without one.

    A certificate of an unknown authority must result in 401, as everywhere in Kubernetes, not in a failed handshake.
    The chain is therefore verified later, by `authentication.CertificateAuthenticator`. On interpreters that do not
    allow this, the handshake fails instead.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(credentials.server_certificate, credentials.server_key)
    context.load_verify_locations(credentials.authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    _leave_chain_to_us(context)
    return context


async def renew_certificates(
    credentials: CertificateDir, context: ssl.SSLContext, *, names: Iterable[str] = (), every: float = RENEWAL_INTERVAL
) -> None:
    """Renew expiring certificates until cancelled; new connections use the new certificate."""
    while True:
        await asyncio.sleep(every)
        ensure(credentials.directory, names=names)
        context.load_cert_chain(credentials.server_certificate, credentials.server_key)


def peer_certificate(ssl_object: Any) -> bytes | None:
    """The client's certificate as DER, unverified; None without a certificate or without TLS."""
    if ssl_object is None:
        return None
    der: bytes | None = ssl_object.getpeercert(binary_form=True)
    return der


_VERIFY_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_accept_any_chain = _VERIFY_CALLBACK(lambda _store, _argument: 1)


def _leave_chain_to_us(context: ssl.SSLContext) -> bool:
    """Make OpenSSL accept any client certificate chain; False when this interpreter does not allow it.

    Python's `ssl` cannot request a certificate without rejecting unknown authorities; OpenSSL itself can.
    The OpenSSL context is the first field of Python's in every CPython from 3.2 to 3.14.
    """
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 15):
        return False
    import _ssl

    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        set_callback = library.SSL_CTX_set_cert_verify_callback
    except (OSError, AttributeError):
        return False
    set_callback.argtypes = [ctypes.c_void_p, _VERIFY_CALLBACK, ctypes.c_void_p]
    set_callback.restype = None
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    set_callback(pointer, _accept_any_chain, None)
    return True
