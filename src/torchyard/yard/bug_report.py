"""What a bug report needs, as one archive without secrets."""

from __future__ import annotations

import io
import json
import platform
import re
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from torchyard import __version__, files
from torchyard.yard.machine import diagnose_machine
from torchyard.yard.settings import PlaneSettings
from torchyard.yard.status import plane_status

Finding = tuple[str, bool, str]  # the subject, whether it works, and a detail
_LOG_BYTES = 1 << 20
_NAME = r"[\w-]*(?:token|password|passwd|secret|api[_-]?key)[\w-]*"
_VALUE = r"""(?:\\"[^"\n]*"|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s,;}]+)"""
# Tokens, passwords and keys, in the forms in which logs and addresses have them.
_SECRETS = (
    re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"),
    re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"),
    re.compile(rf"(?i)({_NAME}(?:\\?[\"'])?\s*[:=]\s*){_VALUE}"),
    re.compile(rf"(?i)((?<![\w-])--?{_NAME}[\"']?,?\s+)(?!-){_VALUE}"),
    re.compile(r"(?<=://)[^/\s\"']+(?=@)"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL),
)


def redact(text: str) -> str:
    """The text without what looks like a secret."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: f"{match[1]} (redacted)" if match.lastindex else "(redacted)", text)
    return text


def write_bundle(settings: PlaneSettings, target: Path) -> list[str]:
    """Write the archive of a plane and return the names of its files.

    Objects, kubeconfigs and keys are not among them.
    """
    content = {
        "versions.json": json.dumps(_versions(), indent=2),
        "doctor.txt": _findings_text(diagnose_machine()),
        "status.json": json.dumps(_status(settings), indent=2),
        "yard.log": files.read_end(settings.log, _LOG_BYTES).decode(errors="replace") if settings.log.exists() else "",
    }
    return _write(content, target)


def write_cluster_bundle(findings: Sequence[Finding], server: Mapping[str, object], target: Path) -> list[str]:
    """Write the archive of a cluster: what it lacks, its version, and the versions of this program."""
    content = {
        "versions.json": json.dumps(_versions(), indent=2),
        "doctor.txt": _findings_text(findings),
        "server.json": json.dumps(server, indent=2),
    }
    return _write(content, target)


def _findings_text(findings: Iterable[Finding]) -> str:
    return "".join(f"{'ok' if works else 'no'} {subject}: {detail}\n" for subject, works, detail in findings)


def _write(content: Mapping[str, str], target: Path) -> list[str]:
    with tarfile.open(target, "w:gz") as archive:
        for name, text in content.items():
            data = redact(text).encode()
            entry = tarfile.TarInfo(f"torchyard-report/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o644, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
    return list(content)


def _versions() -> dict[str, object]:
    packages = {
        name: metadata.version(name) for name in ("aiohttp", "typer", "uvloop", "orjson") if _is_installed(name)
    }
    system = {"python": sys.version, "platform": platform.platform(), "machine": platform.machine()}
    return {"torchyard": __version__, **system, "packages": packages}


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _status(settings: PlaneSettings) -> dict[str, object]:
    status = plane_status(settings.state)
    return {"running": status is not None, **(status.fields() if status else {})}
