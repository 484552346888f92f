"""Who we are to an API server, kept fresh: token files that are rotated, programs that print credentials."""

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

# Tokens in pods are rotated in place; client-go too looks again after a minute.
FILE_LIFE = 60.0
PLUGIN_PATIENCE = 60.0


class CredentialError(YardError):
    """Credentials could not be had; the message says from where."""

    code = "CredentialError"


@dataclass(frozen=True, slots=True)
class Credential:
    """What to show the server: headers, and a client certificate where there is one."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    expires: float | None = None  # seconds of the wall clock; None: it does not


def ssl_context(connection: Connection, credential: Credential) -> ssl.SSLContext:
    """The TLS settings of a connection. Raises `CredentialError` when a certificate or key is not one."""
    try:
        if connection.authority is not None:
            context = ssl.create_default_context(cadata=connection.authority.decode())
        else:
            context = ssl.create_default_context()
        if connection.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credential.certificate is not None:
            # The standard library takes a client's certificate and key from a file only.
            with NamedTemporaryFile(prefix="torchyard-") as file:
                file.write(credential.certificate + b"\n" + (credential.key or b""))
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialError(f"the certificates of {connection.origin} cannot be used: {error}") from error
    return context


class Credentials:
    """The current credential of a connection."""

    def __init__(self, connection: Connection, *, clock: Callable[[], float] = time.time) -> None:
        self._connection = connection
        self._clock = clock
        self._current: Credential | None = None
        self._lock = asyncio.Lock()

    async def current(self, *, renew: bool = False) -> Credential:
        """The credential to use now. `renew` asks for a new one, after the server answered 401."""
        current = self._current
        if current is not None and not renew and (current.expires is None or self._clock() < current.expires):
            return current
        async with self._lock:
            if self._current is not current and self._current is not None:
                return self._current  # somebody else renewed it meanwhile
            self._current = await self._fresh()
            return self._current

    async def _fresh(self) -> Credential:
        about = self._connection
        if about.plugin is not None:
            return await _from_plugin(about.plugin, about)
        headers: dict[str, str] = {}
        expires = None
        if about.token:
            headers["Authorization"] = f"Bearer {about.token}"
        elif about.token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {about.token_file.read_text().strip()}"
            except OSError as error:
                raise CredentialError(f"cannot read the token {about.token_file}: {error.strerror}") from error
            expires = self._clock() + FILE_LIFE
        elif about.username:
            pair = f"{about.username}:{about.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return Credential(headers, about.certificate, about.key, expires)


async def _from_plugin(plugin: ExecPlugin, about: Connection) -> Credential:
    """Run the plugin and take what it prints."""
    interactive = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise CredentialError(f"the exec plugin {plugin.command} needs a terminal, and there is none")
    interactive = interactive and plugin.interactive_mode != "Never"
    info = {
        "kind": "ExecCredential",
        "apiVersion": plugin.api_version,
        "spec": {"interactive": interactive, **_cluster_info(plugin, about)},
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
        async with asyncio.timeout(PLUGIN_PATIENCE):
            out, problems = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CredentialError(f"the exec plugin {plugin.command} did not end within {PLUGIN_PATIENCE:.0f} s") from None
    if process.returncode != 0:
        said = problems.decode(errors="replace").strip()
        raise CredentialError(
            f"the exec plugin {plugin.command} failed with exit code {process.returncode}{f': {said}' if said else ''}",
            hint=plugin.install_hint,
        )
    return _printed(plugin, out)


def _cluster_info(plugin: ExecPlugin, about: Connection) -> dict[str, Any]:
    if not plugin.provide_cluster_info:
        return {}
    cluster: dict[str, Any] = {"server": about.server}
    if about.authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(about.authority).decode()
    if about.server_name:
        cluster["tls-server-name"] = about.server_name
    if about.insecure:
        cluster["insecure-skip-tls-verify"] = True
    return {"cluster": cluster}


def _printed(plugin: ExecPlugin, out: bytes) -> Credential:
    who = f"the exec plugin {plugin.command}"
    try:
        said = json.loads(out)
        status = said["status"]
        if said["apiVersion"] != plugin.api_version:
            raise CredentialError(f"{who} answered in {said['apiVersion']}, not in {plugin.api_version}")
        expires = status.get("expirationTimestamp")
        until = parse_rfc3339(expires).astimezone(UTC).timestamp() if expires else None
    except (ValueError, KeyError, TypeError, AttributeError, TimeError) as error:
        raise CredentialError(f"{who} printed no ExecCredential: {error}") from error
    token, certificate = status.get("token"), status.get("clientCertificateData")
    if not token and not certificate:
        raise CredentialError(f"{who} printed neither a token nor a client certificate")
    return Credential(
        {"Authorization": f"Bearer {token}"} if token else {},
        certificate.encode() if certificate else None,
        status["clientKeyData"].encode() if status.get("clientKeyData") else None,
        until,
    )
