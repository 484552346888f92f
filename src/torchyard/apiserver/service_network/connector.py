"""aiohttp's client on connections that a dialer opens."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.client_proto import ResponseHandler

from torchyard.apiserver.service_network.dialer import DIAL_SECONDS, Dialer

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.tracing import Trace

# From OpenSSL's reasons to Go's, which users search for.
_GO_REASONS = {
    "self-signed certificate": "certificate signed by unknown authority",
    "self signed certificate": "certificate signed by unknown authority",
    "unable to get local issuer certificate": "certificate signed by unknown authority",
    "certificate has expired": "certificate has expired or is not yet valid",
}


def certificate_problem(error: aiohttp.ClientConnectorCertificateError) -> str:
    """Why a server's certificate was refused, as Go writes it."""
    return verification_problem(error.certificate_error)


def verification_problem(error: Exception) -> str:
    reason = getattr(error, "verify_message", str(error))
    return f"tls: failed to verify certificate: x509: {_GO_REASONS.get(reason, reason)}"


class DialingConnector(aiohttp.BaseConnector):
    """Opens connections as UnixConnector does, which is aiohttp's own example of a connector."""

    def __init__(self, dial: Dialer, *, keep_alive: bool) -> None:
        # No limit on connections: calls of a slow server must not keep those of another one waiting.
        super().__init__(limit=0, force_close=not keep_alive)
        self._dial = dial

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109
    ) -> ResponseHandler:
        key = req.connection_key
        try:
            async with asyncio.timeout(timeout.sock_connect or DIAL_SECONDS):
                connection = await self._dial(key.host, key.port or 0)
                try:
                    context = key.ssl if key.is_ssl and isinstance(key.ssl, ssl.SSLContext) else None
                    _, protocol = await asyncio.get_running_loop().create_connection(
                        self._factory,
                        sock=connection,
                        ssl=context,
                        server_hostname=(req.server_hostname or key.host) if context else None,
                    )
                except BaseException:
                    connection.close()
                    raise
        except ssl.CertificateError as error:
            raise aiohttp.ClientConnectorCertificateError(key, error) from error
        except ssl.SSLError as error:
            raise aiohttp.ClientConnectorSSLError(key, error) from error
        except TimeoutError:
            raise
        except OSError as error:
            raise aiohttp.ClientConnectorError(key, error) from error
        return protocol
