"""Credentials: tokens, token files, exec plugins run as real processes."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard.kube.credentials import Credential, CredentialError, Credentials, ssl_context
from torchyard.kube.kubeconfig import Connection, ExecPlugin

V1 = "client.authentication.k8s.io/v1"


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def plugin(tmp_path: Path, script: str, **more: Any) -> Connection:
    """Return a connection whose exec plugin is a Python script that counts its runs in a file."""
    path = tmp_path / "plugin.py"
    counting = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\nimport json, os, sys\n"
    path.write_text(counting + script)
    exec_plugin = ExecPlugin(V1, sys.executable, (str(path), "arg"), {"EXTRA": "yes"}, **more)
    return Connection(server="https://x", authority=b"ca", plugin=exec_plugin)


def printing(**status: Any) -> str:
    return f"print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential', 'status': {status!r}}}))"


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text())


@pytest.mark.parametrize(
    ("connection", "header"),
    [
        (Connection("https://x", token="t"), "Bearer t"),
        (Connection("https://x", username="u", password="p"), "Basic dTpw"),
    ],
)
async def test_static_credentials_become_an_authorization_header(connection: Connection, header: str) -> None:
    assert (await Credentials(connection).current()).headers == {"Authorization": header}


async def test_a_client_certificate_is_returned() -> None:
    credential = await Credentials(Connection("https://x", certificate=b"c", key=b"k")).current()
    assert credential == Credential({}, b"c", b"k")


async def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("first\n")
    credentials = Credentials(Connection("https://x", token_file=path), clock=clock)
    assert (await credentials.current()).headers["Authorization"] == "Bearer first"
    path.write_text("second\n")
    assert (await credentials.current()).headers["Authorization"] == "Bearer first"
    clock.now += 61
    assert (await credentials.current()).headers["Authorization"] == "Bearer second"


async def test_renew_reads_the_token_file_again_immediately(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    credentials = Credentials(Connection("https://x", token_file=path))
    await credentials.current()
    path.write_text("second")
    assert (await credentials.current(renew=True)).headers["Authorization"] == "Bearer second"


async def test_a_missing_token_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match=r"cannot read the token file .*nope: No such file"):
        await Credentials(Connection("https://x", token_file=tmp_path / "nope")).current()


async def test_an_exec_plugin_runs_once_until_its_credential_expires(tmp_path: Path) -> None:
    clock = Clock()
    connection = plugin(tmp_path, printing(token="t", expirationTimestamp="2027-01-15T08:10:00Z"))
    credentials = Credentials(connection, clock=clock)
    results = await asyncio.gather(*(credentials.current() for _ in range(5)))
    assert {credential.headers["Authorization"] for credential in results} == {"Bearer t"}
    assert runs(tmp_path) == 1
    clock.now += 601
    await credentials.current()
    assert runs(tmp_path) == 2


async def test_an_exec_plugin_gets_the_same_input_as_from_client_go(tmp_path: Path) -> None:
    script = "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n" + printing(token="x").replace(
        "'x'", "json.dumps([info, os.environ['EXTRA'], sys.argv[1]])"
    )
    credential = await Credentials(plugin(tmp_path, script, provide_cluster_info=True)).current()
    info, extra, argument = json.loads(credential.headers["Authorization"].removeprefix("Bearer "))
    assert (extra, argument) == ("yes", "arg")
    assert info == {
        "kind": "ExecCredential",
        "apiVersion": V1,
        "spec": {"interactive": False, "cluster": {"server": "https://x", "certificate-authority-data": "Y2E="}},
    }


async def test_an_exec_plugin_may_return_a_client_certificate(tmp_path: Path) -> None:
    credential = await Credentials(plugin(tmp_path, printing(clientCertificateData="c", clientKeyData="k"))).current()
    assert (credential.headers, credential.certificate, credential.key) == ({}, b"c", b"k")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('login please', file=sys.stderr); sys.exit(3)", "failed with exit code 3: login please"),
        ("print('hello')", "did not print a valid ExecCredential"),
        ("print('[]')", "did not print a valid ExecCredential"),
        (printing(), "neither a token nor a client certificate"),
        (printing(token="t").replace("/v1'", "/v1beta1'"), f"returned apiVersion {V1}beta1 instead of {V1}"),
        (printing(token="t", expirationTimestamp="soon"), "did not print a valid ExecCredential"),
    ],
)
async def test_a_failing_exec_plugin_is_an_error_with_its_reason(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(CredentialError, match=message):
        await Credentials(plugin(tmp_path, script)).current()


async def test_a_missing_exec_plugin_is_an_error_with_its_install_hint() -> None:
    missing = ExecPlugin(V1, "/nonexistent/login", install_hint="install login")
    with pytest.raises(CredentialError, match=r"cannot run the exec plugin /nonexistent/login: .*\(install login\)"):
        await Credentials(Connection("https://x", plugin=missing)).current()


async def test_an_exec_plugin_that_needs_a_terminal_does_not_run_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    connection = plugin(tmp_path, printing(token="t"), interactive_mode="Always")
    with pytest.raises(CredentialError, match="needs a terminal"):
        await Credentials(connection).current()


def test_invalid_certificates_are_an_error_that_names_the_context() -> None:
    bad = Connection("https://x", authority=b"no certificate", origin='context "a" of somewhere')
    with pytest.raises(CredentialError, match='the certificates of context "a" of somewhere are not valid'):
        ssl_context(bad, Credential())
    with pytest.raises(CredentialError, match="are not valid"):
        ssl_context(Connection("https://x"), Credential(certificate=b"c", key=b"k"))


def test_only_an_insecure_connection_skips_certificate_verification() -> None:
    assert ssl_context(Connection("https://x", insecure=True), Credential()).verify_mode == ssl.CERT_NONE
    assert ssl_context(Connection("https://x"), Credential()).verify_mode == ssl.CERT_REQUIRED
