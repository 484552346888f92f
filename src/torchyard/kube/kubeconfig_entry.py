"""Torchyard's own entry in a kubeconfig: writing it to a file, merging it into the user's kubeconfig, removing it.

Writes are atomic, readable by the owner only, and touch no other entries.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from torchyard.kube.kubeconfig import ENTRIES, Config, KubeconfigError, default_files, parse_file

# The extension that marks our entries in a user's kubeconfig.
MARK = {"name": "torchyard", "extension": {"provider": "torchyard"}}
LOCK_TIMEOUT_SECONDS = 5.0


def build_config(
    name: str, *, server: str, authority: bytes, token: str = "", certificate: bytes = b"", key: bytes = b""
) -> Config:
    """Return a config with one cluster, user and context named `name` and marked as ours."""
    user: Config = {"token": token} if token else {}
    if certificate:
        user["client-certificate-data"] = base64.b64encode(certificate).decode()
        user["client-key-data"] = base64.b64encode(key).decode()
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    context = {"cluster": name, "namespace": "default", "user": name}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {**cluster, "extensions": [MARK]}}],
        "users": [{"name": name, "user": {**user, "extensions": [MARK]}}],
        "contexts": [{"name": name, "context": {**context, "extensions": [MARK]}}],
        "current-context": name,
    }


def write(path: Path, config: Config) -> None:
    """Write a config atomically, readable by the owner only. Symbolic links are followed."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    text = _to_yaml(config)
    with NamedTemporaryFile("w", dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            temporary.unlink()
            raise
    temporary.replace(target)


def merge(
    own: Config, *, environ: Mapping[str, str] | None = None, replace: bool = False, switch: bool = False
) -> Path:
    """Merge our entries into the user's kubeconfig and return its path.

    Other entries stay. An entry of the same name that is not ours is overwritten only with `replace`. The current
    context changes if there is none, or with `switch`.
    """
    path = _file_for_new_entry(default_files(os.environ if environ is None else environ))
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock(path):
        merged = _merge_entries(parse_file(path, required=False), own, path, replace=replace)
        if switch or not merged.get("current-context"):
            merged["current-context"] = own["current-context"]
        write(path, merged)
    return path


def remove(name: str, *, environ: Mapping[str, str] | None = None) -> list[Path]:
    """Remove our entries named `name` from the user's kubeconfigs; return the changed files."""
    changed = []
    for path in default_files(os.environ if environ is None else environ):
        if not path.exists():
            continue
        with _lock(path):
            config = parse_file(path, required=False)
            remaining = {
                kind: [
                    entry for entry in config.get(kind) or () if entry.get("name") != name or not _is_ours(entry, kind)
                ]
                for kind in ENTRIES
            }
            if all(len(remaining[kind]) == len(config.get(kind) or ()) for kind in ENTRIES):
                continue
            config.update(remaining)
            if config.get("current-context") == name:
                config["current-context"] = ""
            write(path, config)
            changed.append(path)
    return changed


def _file_for_new_entry(files: list[Path]) -> Path:
    """Return the file for a new entry, as client-go chooses it: the first that exists, or else the last."""
    return next((path for path in files if path.exists()), files[-1])


def _merge_entries(config: Config, own: Config, path: Path, *, replace: bool) -> Config:
    merged = {"apiVersion": "v1", "kind": "Config", **config}
    for kind in ENTRIES:
        (own_entry,) = own[kind]
        entries = list(merged.get(kind) or ())
        index = next((at for at, entry in enumerate(entries) if entry.get("name") == own_entry["name"]), None)
        if index is None:
            entries.append(own_entry)
        elif replace or _is_ours(entries[index], kind):
            entries[index] = own_entry
        else:
            raise KubeconfigError(
                f'{path} already has a {kind[:-1]} "{own_entry["name"]}" that is not ours',
                hint="rename that entry, or use --replace",
            )
        merged[kind] = entries
    return merged


def _is_ours(entry: Config, kind: str) -> bool:
    return MARK in ((entry.get(kind[:-1]) or {}).get("extensions") or ())


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Take the lock file that kubectl uses too."""
    target = path.resolve()
    lock = target.with_name(f"{target.name}.lock")
    until = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
            break
        except FileExistsError:
            if time.monotonic() > until:
                raise KubeconfigError(
                    f"{path} is locked by another process", hint=f"if none is running, remove {lock}"
                ) from None
            time.sleep(0.05)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


# A text that YAML reads as this text without quotes: it starts with a letter, or has one that no number or time has.
_is_plain = re.compile(
    r"(?:[A-Za-z]|[0-9](?=[\w./+=-]*[G-SU-Wg-su-wyY]))[\w./+=-]*(?:://[\w.:-]*\w)?", re.ASCII
).fullmatch
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def _to_yaml(config: Config) -> str:
    """The config in YAML. One like our own needs no library, which takes longer to load than a plane to write this."""
    try:
        return "".join(f"{line}\n" for line in _lines(config))
    except _NotPlain:
        import yaml

        class Dumper(yaml.CSafeDumper):
            def ignore_aliases(self, data: Any) -> bool:
                return True

        text: str = yaml.dump(config, Dumper=Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
        return text


class _NotPlain(Exception):
    """A value that needs quotes or another style."""


def _lines(value: Any) -> Iterator[str]:
    """Block style: maps, lists of maps, and plain texts."""
    if not value:
        raise _NotPlain
    if isinstance(value, list):
        for item in value:
            first, *others = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in others)
        return
    if not isinstance(value, dict):
        raise _NotPlain
    for key, entry in value.items():
        if isinstance(entry, str):
            yield f"{_plain(key)}: {_plain(entry)}"
            continue
        yield f"{_plain(key)}:"
        indent = "" if isinstance(entry, list) else "  "
        yield from (f"{indent}{line}" for line in _lines(entry))


def _plain(text: Any) -> str:
    if not isinstance(text, str) or not _is_plain(text) or text.lower() in _WORDS:
        raise _NotPlain
    return text
