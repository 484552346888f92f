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
    # Neither client-go nor curl nor Python's clients resume sessions; two tickets cost a tenth of a handshake.
    context.num_tickets = 0
    _leave_chain_to_us(context)
    _send_certificate_as_it_is(context)
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
    """
    set_callback = _openssl_function("SSL_CTX_set_cert_verify_callback")
    if set_callback is None:
        return False
    set_callback.argtypes = [ctypes.c_void_p, _VERIFY_CALLBACK, ctypes.c_void_p]
    set_callback.restype = None
    set_callback(_openssl_context(context), _accept_any_chain, None)
    return True


_SSL_CTRL_MODE, _SSL_MODE_NO_AUTO_CHAIN = 33, 0x8


def _send_certificate_as_it_is(context: ssl.SSLContext) -> bool:
    """Keep OpenSSL from completing the server's chain, which verifies its certificate again in every handshake.

    The authority signs the certificate itself, so there is nothing to complete; clients know the authority.
    """
    control = _openssl_function("SSL_CTX_ctrl")
    if control is None:
        return False
    control.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    control.restype = ctypes.c_long
    mode: int = control(_openssl_context(context), _SSL_CTRL_MODE, _SSL_MODE_NO_AUTO_CHAIN, None)
    return bool(mode & _SSL_MODE_NO_AUTO_CHAIN)


def _openssl_function(name: str) -> Any:
    """A function of the OpenSSL that Python uses; None when this interpreter does not allow it."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 15):
        return None
    import _ssl

    try:
        return getattr(ctypes.CDLL(getattr(_ssl, "__file__", None)), name)
    except (OSError, AttributeError):
        return None


def _openssl_context(context: ssl.SSLContext) -> ctypes.c_void_p:
    """The first field of Python's context in every CPython from 3.2 to 3.14."""
    return ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
