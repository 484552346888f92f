"""Whether the plane's certificates and keys are current; issues what is not.

The library that reads certificates takes longer to load than the rest of the check. So a file records what the last
full check saw: the digests of the files, the names, and until when nothing has to be renewed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from torchyard.apiserver.access.certificate_dir import (
    FRONT_PROXY_AUTHORITY,
    FRONT_PROXY_CLIENT,
    CertificateDir,
    own_names,
    write,
)

_PAIRS = ("ca", "server", "admin", FRONT_PROXY_AUTHORITY, FRONT_PROXY_CLIENT)
_FILES = (*(f"{name}{suffix}" for name in _PAIRS for suffix in (".crt", ".key")), "service-accounts.key")


@dataclass(frozen=True, slots=True)
class _CheckRecord:
    """What a full check saw. Times are seconds since the epoch."""

    digests: dict[str, str]  # by file
    names: list[str]
    valid_from: float
    valid_until: float


def ensure(directory: Path, *, names: Iterable[str] = ()) -> CertificateDir:
    """Ensure current certificates and keys in the directory: see `certificates.ensure`, called only if needed."""
    credentials, required = CertificateDir(directory), sorted({*own_names(), *names})
    if _is_checked(credentials, required, _now()):
        directory.chmod(0o700)
        return credentials
    from torchyard.apiserver.access import certificates

    certificates.ensure(directory, names=required)
    valid_from, valid_until = certificates.usable_period(credentials)
    record = _CheckRecord(_digests(directory), required, valid_from.timestamp(), valid_until.timestamp())
    write(_record_file(directory), json.dumps(asdict(record)).encode())
    return credentials


_now = time.time


def _is_checked(credentials: CertificateDir, names: list[str], now: float) -> bool:
    try:
        record = _CheckRecord(**json.loads(_record_file(credentials.directory).read_bytes()))
        return (
            record.valid_from <= now < record.valid_until
            and record.names == names
            and record.digests == _digests(credentials.directory)
        )
    except (OSError, ValueError, TypeError):
        return False


def _record_file(directory: Path) -> Path:
    return directory / "checked.json"


def _digests(directory: Path) -> dict[str, str]:
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in _FILES}
