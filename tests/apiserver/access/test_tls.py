"""Client certificates over real TLS: known, unknown, none."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from torchyard.apiserver.access.authentication import CertificateAuthenticator
from torchyard.apiserver.access.certificate_dir import CertificateDir
from torchyard.apiserver.access.certificates import ensure
from torchyard.apiserver.access.tls import (
    _send_certificate_as_it_is,
    peer_certificate,
    renew_certificates,
    server_context,
)


@asynccontextmanager
async def serving(context: ssl.SSLContext, credentials: CertificateDir) -> AsyncIterator[int]:
    """A server that sends each client its user name."""
    users = CertificateAuthenticator(credentials.authority.read_bytes())

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        der = peer_certificate(writer.get_extra_info("ssl_object"))
        user = None if der is None else users.authenticate(der)
        writer.write(b"none" if der is None else b"unknown" if user is None else user.name.encode())
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def user_name(port: int, authority: Path, client: CertificateDir | None) -> str:
    context = ssl.create_default_context(cafile=str(authority))
    if client is not None:
        context.load_cert_chain(client.directory / "admin.crt", client.directory / "admin.key")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.fixture
def certificate_dir(tmp_path: Path) -> CertificateDir:
    return ensure(tmp_path / "ours")


async def test_a_client_certificate_authenticates_its_user(certificate_dir: CertificateDir) -> None:
    async with serving(server_context(certificate_dir), certificate_dir) as port:
        assert await user_name(port, certificate_dir.authority, certificate_dir) == "yard-admin"


async def test_a_connection_without_a_client_certificate_is_accepted(certificate_dir: CertificateDir) -> None:
    async with serving(server_context(certificate_dir), certificate_dir) as port:
        assert await user_name(port, certificate_dir.authority, None) == "none"


async def test_a_certificate_of_another_authority_connects_but_is_not_authenticated(
    certificate_dir: CertificateDir, tmp_path: Path
) -> None:
    other_dir = ensure(tmp_path / "theirs")
    async with serving(server_context(certificate_dir), certificate_dir) as port:
        assert await user_name(port, certificate_dir.authority, other_dir) == "unknown"


async def test_a_running_server_uses_its_renewed_certificate(certificate_dir: CertificateDir) -> None:
    context = server_context(certificate_dir)
    before = certificate_dir.server_certificate.read_bytes()
    renewal = asyncio.create_task(renew_certificates(certificate_dir, context, names=["new.example"], every=0.01))
    async with serving(context, certificate_dir) as port:
        served = before
        while served == before:
            pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
            served = x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.PEM)
    renewal.cancel()
    assert served == certificate_dir.server_certificate.read_bytes()


async def test_a_handshake_sends_no_session_tickets_and_verifies_no_certificate_of_the_server(
    certificate_dir: CertificateDir,
) -> None:
    """Both would cost every connection something, and no client uses them."""
    context = server_context(certificate_dir)
    assert context.num_tickets == 0
    assert _send_certificate_as_it_is(context)
    async with serving(context, certificate_dir) as port:
        client = ssl.create_default_context(cafile=str(certificate_dir.authority))
        reader, writer = await asyncio.open_connection("localhost", port, ssl=client)
        await reader.read()
        session = writer.get_extra_info("ssl_object").session
        writer.close()
    assert session is None or not session.has_ticket
