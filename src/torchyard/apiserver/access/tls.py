"""The TLS side of the server: which certificate it shows and how it asks for its clients'."""

from __future__ import annotations

import asyncio
import ctypes
import ssl
import sys
from collections.abc import Iterable
from typing import Any

from torchyard.apiserver.access.certificates import CertificateDir, ensure

# Certificates last a year and are replaced months before their end: twice a day is often enough.
RENEWAL_INTERVAL = 12 * 3600.0


def server_context(credentials: CertificateDir) -> ssl.SSLContext:
    """A context that asks clients for a certificate and takes connections without one.

    A certificate of an unknown authority must end in 401, as everywhere in Kubernetes, not in a broken handshake: the
    chain is checked later, by `users.CertificateUsers`. Where that cannot be had from this interpreter the handshake
    fails instead.
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
    """Replace, until cancelled, what comes near its end; new connections get the new certificate."""
    while True:
        await asyncio.sleep(every)
        ensure(credentials.directory, names=names)
        context.load_cert_chain(credentials.server_certificate, credentials.server_key)


def peer_certificate(ssl_object: Any) -> bytes | None:
    """The client's certificate as DER, unverified; None when it showed none or the connection is not TLS."""
    if ssl_object is None:
        return None
    der: bytes | None = ssl_object.getpeercert(binary_form=True)
    return der


_VERIFY_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_accept_any_chain = _VERIFY_CALLBACK(lambda _store, _argument: 1)


def _leave_chain_to_us(context: ssl.SSLContext) -> bool:
    """Tell OpenSSL to accept any client chain. False when this interpreter gives no way to say so.

    Python's `ssl` can ask for a certificate only together with refusing unknown ones; OpenSSL itself can do without.
    Its context is the first field of Python's in every CPython from 3.2 to 3.14.
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
