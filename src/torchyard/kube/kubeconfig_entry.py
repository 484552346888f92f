"""Our own entry in a kubeconfig: written to a file of its own, merged into the user's, taken out again.

Writing is atomic, for the owner's eyes only, and touches no entry but ours.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import yaml

from torchyard.kube.kubeconfig import ENTRIES, Config, KubeconfigError, default_files, parse_file

# How we know our own entries in a user's file: kubeconfigs have a place for such notes.
MARK = {"name": "torchyard", "extension": {"provider": "torchyard"}}
LOCK_PATIENCE = 5.0


def build_config(
    name: str, *, server: str, authority: bytes, token: str = "", certificate: bytes = b"", key: bytes = b""
) -> Config:
    """A config with one cluster, user and context, all called `name` and marked as ours."""
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
    """Put a whole config in place at once, readable by the owner only. A link stays a link."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.dump(config, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
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
    """Put our entries into the user's kubeconfig and return its path. The rest of the file stays.

    An entry of the same name that is not ours is overwritten only with `replace`. The current context changes when
    there is none, or with `switch`.
    """
    path = _writable(default_files(os.environ if environ is None else environ))
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        merged = _merged(parse_file(path, required=False), own, path, replace=replace)
        if switch or not merged.get("current-context"):
            merged["current-context"] = own["current-context"]
        write(path, merged)
    return path


def remove(name: str, *, environ: Mapping[str, str] | None = None) -> list[Path]:
    """Take our entries called `name` out of the user's kubeconfigs; returns the files that had them."""
    changed = []
    for path in default_files(os.environ if environ is None else environ):
        if not path.exists():
            continue
        with _locked(path):
            config = parse_file(path, required=False)
            kept = {
                kind: [one for one in config.get(kind) or () if one.get("name") != name or not _is_ours(one, kind)]
                for kind in ENTRIES
            }
            if all(len(kept[kind]) == len(config.get(kind) or ()) for kind in ENTRIES):
                continue
            config.update(kept)
            if config.get("current-context") == name:
                config["current-context"] = ""
            write(path, config)
            changed.append(path)
    return changed


def _writable(files: list[Path]) -> Path:
    """client-go's choice for a new entry: the first file that exists, else the last of the list."""
    return next((path for path in files if path.exists()), files[-1])


def _merged(config: Config, own: Config, path: Path, *, replace: bool) -> Config:
    merged = {"apiVersion": "v1", "kind": "Config", **config}
    for kind in ENTRIES:
        (mine,) = own[kind]
        entries = list(merged.get(kind) or ())
        index = next((at for at, one in enumerate(entries) if one.get("name") == mine["name"]), None)
        if index is None:
            entries.append(mine)
        elif replace or _is_ours(entries[index], kind):
            entries[index] = mine
        else:
            raise KubeconfigError(
                f'{path} already has a {kind[:-1]} "{mine["name"]}" that is not ours',
                hint="rename it there, or ask for it to be overwritten",
            )
        merged[kind] = entries
    return merged


def _is_ours(entry: Config, kind: str) -> bool:
    return MARK in ((entry.get(kind[:-1]) or {}).get("extensions") or ())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep kubectl, which takes the same lock file, from writing at the same time."""
    target = path.resolve()
    lock = target.with_name(f"{target.name}.lock")
    until = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
            break
        except FileExistsError:
            if time.monotonic() > until:
                raise KubeconfigError(
                    f"{path} is locked by another program", hint=f"if none is running, remove {lock}"
                ) from None
            time.sleep(0.05)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
