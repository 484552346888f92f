"""Kubeconfig files, read: which cluster to talk to and as whom.

Follows client-go: the files of KUBECONFIG are merged and the first to say something wins; paths in a file are relative
to it. Nothing is written here (see `kubeconfig_entry`), and nobody is called (see `credentials`).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from torchyard.api.errors import YardError

Config = dict[str, Any]
ENTRIES = ("clusters", "users", "contexts")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeconfigError(YardError):
    """A kubeconfig that is missing, damaged, or does not say what is needed."""

    code = "KubeconfigError"


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that prints credentials (client.authentication.k8s.io)."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


@dataclass(frozen=True, slots=True)
class Connection:
    """All a transport needs to know: where the API server is, how to trust it, and who we are to it."""

    server: str
    namespace: str = "default"
    authority: bytes | None = None  # PEM; None means the system's
    insecure: bool = False
    server_name: str = ""  # the name its certificate must have, where that is not the URL's
    proxy: str = ""
    certificate: bytes | None = None  # PEM
    key: bytes | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    plugin: ExecPlugin | None = None
    impersonate: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: str = ""  # for messages: the context and file this came from


def load(path: Path | None = None, *, context: str = "", environ: Mapping[str, str] | None = None) -> Connection:
    """The connection of a context (the current one by default).

    From `path`, else from the files of KUBECONFIG, else from ~/.kube/config; without any, from inside a pod.
    """
    environ = os.environ if environ is None else environ
    files = [path] if path is not None else default_files(environ)
    config = read(files, required=path is not None)
    if not config["contexts"] and path is None and "KUBERNETES_SERVICE_HOST" in environ:
        return in_cluster(environ)
    where = ", ".join(str(one) for one in files)
    if not any(one.exists() for one in files):
        if context:
            raise KubeconfigError(
                f"there is no context {context!r}, since there is no {where}", hint="name its file with --kubeconfig"
            )
        raise KubeconfigError(f"no cluster is named, and there is no {where}", hint="start a plane: yard up")
    return connection(config, context, where=where)


def default_files(environ: Mapping[str, str]) -> list[Path]:
    """The files KUBECONFIG lists, or ~/.kube/config."""
    listed = [Path(one).expanduser() for one in environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    return list(dict.fromkeys(listed)) or [Path(environ.get("HOME") or Path.home()) / ".kube" / "config"]


def in_cluster(environ: Mapping[str, str] | None = None, *, directory: Path = SERVICE_ACCOUNT) -> Connection:
    """The connection of a pod with its service account."""
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token_file = directory / "token"
    if not host or not token_file.exists():
        raise KubeconfigError(
            "this is no pod with a service account: "
            + (f"{token_file} is missing" if host else "KUBERNETES_SERVICE_HOST is not set"),
            hint="give a kubeconfig, or let the pod have its service account's token",
        )
    namespace_file = directory / "namespace"
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        authority=_file(directory / "ca.crt"),
        token_file=token_file,
        origin="the pod's service account",
    )


def read(files: list[Path], *, required: bool = False) -> Config:
    """Several files as one: the first to set a value, or to name an entry, wins. Missing ones are passed over."""
    merged: Config = {"current-context": "", **{kind: {} for kind in ENTRIES}}
    for path in files:
        content = parse_file(path, required=required)
        merged["current-context"] = merged["current-context"] or content.get("current-context") or ""
        for kind in ENTRIES:
            for entry in content.get(kind) or ():
                if not isinstance(entry, dict) or not entry.get("name"):
                    raise KubeconfigError(f"{path}: an entry of {kind} has no name")
                found = entry.get(kind[:-1]) or {}
                merged[kind].setdefault(entry["name"], {**found, "directory": path.parent})
    return merged


def connection(config: Config, context: str = "", *, where: str = "the kubeconfig") -> Connection:
    """What a merged config says about one context."""
    name = context or config["current-context"]
    if not name:
        raise KubeconfigError(
            f"{where} names no current context",
            hint="choose one: kubectl config use-context NAME" if config["contexts"] else "start a plane: yard up",
        )
    chosen = _entry(config, "contexts", name, where)
    cluster = _entry(config, "clusters", chosen.get("cluster", ""), where)
    user = _entry(config, "users", chosen["user"], where) if chosen.get("user") else {}
    if not cluster.get("server"):
        raise KubeconfigError(f'{where}: cluster "{chosen["cluster"]}" has no server')
    if "auth-provider" in user:
        raise KubeconfigError(
            f'{where}: user "{chosen["user"]}" uses an auth-provider, which Kubernetes removed in 1.26',
            hint="use an exec plugin, a token or a client certificate",
        )
    return Connection(
        server=cluster["server"].rstrip("/"),
        namespace=chosen.get("namespace") or "default",
        authority=_material(cluster, "certificate-authority", where),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
        certificate=_material(user, "client-certificate", where),
        key=_material(user, "client-key", where),
        token=user.get("token") or "",
        token_file=user["directory"] / user["tokenFile"] if user.get("tokenFile") and not user.get("token") else None,
        username=user.get("username") or "",
        password=user.get("password") or "",
        plugin=_plugin(user, where) if user.get("exec") else None,
        impersonate=_impersonate(user),
        origin=f'context "{name}" of {where}',
    )


def _entry(config: Config, kind: str, name: str, where: str) -> Config:
    found: Config | None = config[kind].get(name)
    if found is None:
        known = ", ".join(sorted(config[kind])) or "none"
        raise KubeconfigError(f'{where} has no {kind[:-1]} "{name}"', hint=f"it has: {known}")
    return found


def _material(entry: Config, name: str, where: str) -> bytes | None:
    """A certificate or key, inline (which wins) or in a file."""
    inline = entry.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except (binascii.Error, TypeError) as error:
            raise KubeconfigError(f"{where}: {name}-data is not base64: {error}") from error
    return _file(entry["directory"] / entry[name]) if entry.get(name) else None


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot read {path}: {error.strerror}") from error


def _plugin(user: Config, where: str) -> ExecPlugin:
    said = user["exec"]
    version, command = said.get("apiVersion", ""), said.get("command", "")
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise KubeconfigError(
            f'{where}: exec plugin version "{version}" is not known',
            hint="client.authentication.k8s.io/v1 and v1beta1 are",
        )
    if not command:
        raise KubeconfigError(f"{where}: an exec plugin has no command")
    if "/" in command:
        command = str(user["directory"] / command)
    return ExecPlugin(
        api_version=version,
        command=command,
        args=tuple(str(one) for one in said.get("args") or ()),
        env={one["name"]: one["value"] for one in said.get("env") or ()},
        install_hint=(said.get("installHint") or "").strip(),
        provide_cluster_info=bool(said.get("provideClusterInfo")),
        interactive_mode=said.get("interactiveMode") or "IfAvailable",
    )


def _impersonate(user: Config) -> dict[str, tuple[str, ...]]:
    """As headers."""
    headers: dict[str, tuple[str, ...]] = {}
    if user.get("as"):
        headers["Impersonate-User"] = (user["as"],)
    if user.get("as-uid"):
        headers["Impersonate-Uid"] = (user["as-uid"],)
    if user.get("as-groups"):
        headers["Impersonate-Group"] = tuple(user["as-groups"])
    for key, values in (user.get("as-user-extra") or {}).items():
        headers[f"Impersonate-Extra-{key}"] = tuple(values)
    return headers


def parse_file(path: Path, *, required: bool) -> Config:
    """One file as it is; nothing when it is missing, unless it is required."""
    try:
        content = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        if required:
            raise KubeconfigError(f"{path} does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeconfigError(f"{path} cannot be read as a kubeconfig: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(content.get(kind) or [], list) for kind in ENTRIES):
        raise KubeconfigError(f"{path} is not a kubeconfig")
    return content
