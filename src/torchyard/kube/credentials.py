"""Credentials of an API client: static ones, token files that are rotated, and exec plugins."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC
from tempfile import NamedTemporaryFile
from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.times import TimeError, parse_rfc3339
from torchyard.kube.kubeconfig import Connection, ExecPlugin

# Tokens in pods are rotated in place. Like client-go, read the file again after a minute.
TOKEN_FILE_SECONDS = 60.0
PLUGIN_TIMEOUT_SECONDS = 60.0


class CredentialError(YardError):
    """The credentials are not available or not valid."""

    code = "CredentialError"


@dataclass(frozen=True, slots=True)
class Credential:
    """Request headers, and optionally a client certificate."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    expires: float | None = None  # Unix time; None: never


def ssl_context(connection: Connection, credential: Credential) -> ssl.SSLContext:
    """Return the TLS settings of a connection. Raises `CredentialError` for an invalid certificate or key."""
    try:
        if connection.authority is not None:
            context = ssl.create_default_context(cadata=connection.authority.decode())
        else:
            context = ssl.create_default_context()
        if connection.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credential.certificate is not None:
            # The standard library loads client certificates from files only.
            with NamedTemporaryFile(prefix="torchyard-") as file:
                file.write(credential.certificate + b"\n" + (credential.key or b""))
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialError(f"the certificates of {connection.origin} are not valid: {error}") from error
    return context


class Credentials:
    """The current credential of a connection."""

    def __init__(self, connection: Connection, *, clock: Callable[[], float] = time.time) -> None:
        self._connection = connection
        self._clock = clock
        self._current: Credential | None = None
        self._lock = asyncio.Lock()

    async def current(self, *, renew: bool = False) -> Credential:
        """Return the current credential. `renew` forces a new one, after a 401 response."""
        current = self._current
        if current is not None and not renew and (current.expires is None or self._clock() < current.expires):
            return current
        async with self._lock:
            if self._current is not current and self._current is not None:
                return self._current  # another task renewed it in the meantime
            self._current = await self._load()
            return self._current

    async def _load(self) -> Credential:
        connection = self._connection
        if connection.plugin is not None:
            return await _from_plugin(connection.plugin, connection)
        headers: dict[str, str] = {}
        expires = None
        if connection.token:
            headers["Authorization"] = f"Bearer {connection.token}"
        elif connection.token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {connection.token_file.read_text().strip()}"
            except OSError as error:
                raise CredentialError(
                    f"cannot read the token file {connection.token_file}: {error.strerror}"
                ) from error
            expires = self._clock() + TOKEN_FILE_SECONDS
        elif connection.username:
            pair = f"{connection.username}:{connection.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return Credential(headers, connection.certificate, connection.key, expires)


async def _from_plugin(plugin: ExecPlugin, connection: Connection) -> Credential:
    """Run the plugin and parse its output."""
    interactive = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise CredentialError(f"the exec plugin {plugin.command} needs a terminal, but stdin is not one")
    interactive = interactive and plugin.interactive_mode != "Never"
    info = {
        "kind": "ExecCredential",
        "apiVersion": plugin.api_version,
        "spec": {"interactive": interactive, **_cluster_info(plugin, connection)},
    }
    environment = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise CredentialError(
            f"cannot run the exec plugin {plugin.command}: {error.strerror}", hint=plugin.install_hint
        ) from error
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT_SECONDS):
            stdout, stderr_bytes = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CredentialError(
            f"the exec plugin {plugin.command} did not exit within {PLUGIN_TIMEOUT_SECONDS:.0f} s"
        ) from None
    if process.returncode != 0:
        stderr = stderr_bytes.decode(errors="replace").strip()
        detail = f": {stderr}" if stderr else ""
        raise CredentialError(
            f"the exec plugin {plugin.command} failed with exit code {process.returncode}{detail}",
            hint=plugin.install_hint,
        )
    return _parse_output(plugin, stdout)


def _cluster_info(plugin: ExecPlugin, connection: Connection) -> dict[str, Any]:
    if not plugin.provide_cluster_info:
        return {}
    cluster: dict[str, Any] = {"server": connection.server}
    if connection.authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(connection.authority).decode()
    if connection.server_name:
        cluster["tls-server-name"] = connection.server_name
    if connection.insecure:
        cluster["insecure-skip-tls-verify"] = True
    return {"cluster": cluster}


def _parse_output(plugin: ExecPlugin, stdout: bytes) -> Credential:
    name = f"the exec plugin {plugin.command}"
    try:
        document = json.loads(stdout)
        status = document["status"]
        if document["apiVersion"] != plugin.api_version:
            raise CredentialError(
                f"{name} returned apiVersion {document['apiVersion']} instead of {plugin.api_version}"
            )
        expires = status.get("expirationTimestamp")
        until = parse_rfc3339(expires).astimezone(UTC).timestamp() if expires else None
    except (ValueError, KeyError, TypeError, AttributeError, TimeError) as error:
        raise CredentialError(f"{name} did not print a valid ExecCredential: {error}") from error
    token, certificate = status.get("token"), status.get("clientCertificateData")
    if not token and not certificate:
        raise CredentialError(f"{name} printed neither a token nor a client certificate")
    return Credential(
        {"Authorization": f"Bearer {token}"} if token else {},
        certificate.encode() if certificate else None,
        status["clientKeyData"].encode() if status.get("clientKeyData") else None,
        until,
    )
