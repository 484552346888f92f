"""The plane's certificates: their contents, their reuse, and their renewal."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from torchyard.api.errors import YardError
from torchyard.apiserver.access.certificate_dir import CertificateDir
from torchyard.apiserver.access.certificates import ensure, ensure_client, is_signed_by

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def certificate(credentials: CertificateDir, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(credentials.load(name).certificate)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_first_start_creates_all_files_readable_by_the_owner_only(tmp_path: Path) -> None:
    credentials = ensure(tmp_path / "pki", now=NOW)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in credentials.directory.iterdir()}
    pairs = ("ca", "server", "admin", "front-proxy-ca", "front-proxy-client")
    names = [*(f"{name}.{kind}" for name in pairs for kind in ("crt", "key")), "service-accounts.key"]
    assert modes == dict.fromkeys(names, 0o600)
    assert stat.S_IMODE(credentials.directory.stat().st_mode) == 0o700


def test_the_server_certificate_has_all_names_of_the_machine_and_the_cluster(tmp_path: Path) -> None:
    credentials = ensure(tmp_path, names=["yard.example.org", "192.0.2.7", "bücher.example"], now=NOW)
    server = certificate(credentials, "server")
    alternative_names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    names = set(alternative_names.get_values_for_type(x509.DNSName))
    assert {"localhost", "kubernetes.default.svc", "yard.example.org", "xn--bcher-kva.example"} <= names
    assert {str(address) for address in alternative_names.get_values_for_type(x509.IPAddress)} >= {
        "127.0.0.1",
        "::1",
        "192.0.2.7",
    }
    usage = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert is_signed_by(server, certificate(credentials, "ca"))


def test_keys_are_p256_and_clock_skew_is_tolerated(tmp_path: Path) -> None:
    credentials = ensure(tmp_path, now=NOW)
    for name in ("ca", "server", "admin"):
        issued = certificate(credentials, name)
        key = issued.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert isinstance(key.curve, ec.SECP256R1)
        assert issued.not_valid_before_utc < NOW - timedelta(minutes=1)


def test_a_client_certificate_has_its_user_and_groups_in_the_subject(tmp_path: Path) -> None:
    credentials = ensure(tmp_path, now=NOW)
    ensure_client(credentials, "bob", user="bob", groups=("dev", "ops"), now=NOW)
    subject = certificate(credentials, "bob").subject
    assert [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["bob"]
    assert [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == [
        "dev",
        "ops",
    ]


def test_a_restart_reuses_all_files(tmp_path: Path) -> None:
    before = contents(ensure(tmp_path, names=["a.example"], now=NOW).directory)
    assert contents(ensure(tmp_path, names=["a.example"], now=NOW + timedelta(days=30)).directory) == before


LEAVES = {"server.crt", "admin.crt", "front-proxy-client.crt"}


@pytest.mark.parametrize(
    ("later", "renewed"),
    [
        (timedelta(days=300), LEAVES),
        (timedelta(days=3000), {*LEAVES, "ca.crt", "front-proxy-ca.crt"}),
        (timedelta(days=-30), {*LEAVES, "ca.crt", "front-proxy-ca.crt"}),
    ],
    ids=["a year is almost over", "the authority's time is almost over", "they were made by a clock gone ahead"],
)
def test_certificates_are_renewed_before_they_expire_and_keys_are_kept(
    tmp_path: Path, later: timedelta, renewed: set[str]
) -> None:
    before = contents(ensure(tmp_path, now=NOW).directory)
    credentials = ensure(tmp_path, now=NOW + later)
    after = contents(credentials.directory)
    assert {name for name in after if after[name] != before[name]} == renewed
    assert is_signed_by(certificate(credentials, "server"), x509.load_pem_x509_certificate(before["ca.crt"]))


def add_name(directory: Path) -> None:
    ensure(directory, names=["new.example"], now=NOW)


def damage(directory: Path) -> None:
    (directory / "server.crt").write_text("not a certificate")
    ensure(directory, now=NOW)


def replace_key(directory: Path) -> None:
    (directory / "server.key").unlink()
    ensure(directory, now=NOW)


def take_anothers(directory: Path) -> None:
    other = ensure(directory.parent / "other", now=NOW)
    for name in ("server.crt", "server.key"):
        (directory / name).write_bytes((other.directory / name).read_bytes())
    ensure(directory, now=NOW)


@pytest.mark.parametrize("change", [add_name, damage, replace_key, take_anothers])
def test_a_server_certificate_with_missing_names_is_reissued(tmp_path: Path, change: Callable[[Path], None]) -> None:
    directory = tmp_path / "pki"
    before = contents(ensure(directory, now=NOW).directory)
    change(directory)
    after = contents(directory)
    assert after["server.crt"] != before["server.crt"]
    assert after["ca.crt"] == before["ca.crt"]
    assert is_signed_by(certificate(CertificateDir(directory), "server"), certificate(CertificateDir(directory), "ca"))


def test_an_authority_without_its_key_is_an_error_and_is_not_replaced(tmp_path: Path) -> None:
    ensure(tmp_path, now=NOW)
    (tmp_path / "ca.key").unlink()
    before = contents(tmp_path)
    with pytest.raises(YardError, match=r"private key .*ca\.key is missing"):
        ensure(tmp_path, now=NOW)
    assert contents(tmp_path) == before


def test_an_invalid_key_file_is_named_in_the_error(tmp_path: Path) -> None:
    ensure(tmp_path, now=NOW)
    (tmp_path / "service-accounts.key").write_text("x")
    with pytest.raises(YardError, match=r"service-accounts\.key is not a private key"):
        ensure(tmp_path, now=NOW)
