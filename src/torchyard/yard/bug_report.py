"""What a bug report needs, as one archive without secrets."""

from __future__ import annotations

import io
import json
import platform
import re
import sys
import tarfile
import time
from importlib import metadata
from pathlib import Path

from torchyard import __version__, files
from torchyard.yard.machine import diagnose_machine
from torchyard.yard.settings import PlaneSettings
from torchyard.yard.status import plane_status

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
    """Write the archive and return the names of its files. Objects, kubeconfigs and keys are not among them."""
    content = {
        "versions.json": json.dumps(_versions(), indent=2),
        "doctor.txt": "".join(f"{'ok' if ok else 'no'} {name}: {detail}\n" for name, ok, detail in diagnose_machine()),
        "status.json": json.dumps(_status(settings), indent=2),
        "yard.log": files.read_end(settings.log, _LOG_BYTES).decode(errors="replace") if settings.log.exists() else "",
    }
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
