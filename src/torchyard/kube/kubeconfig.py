"""Reading kubeconfig files: the server to use and how to authenticate.

Follows client-go: the files of KUBECONFIG are merged, the first file that sets a value wins, and paths are relative
to the file. `kubeconfig_entry` writes kubeconfigs, and `credentials` runs exec plugins.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.api.errors import YardError

Config = dict[str, Any]
ENTRIES = ("clusters", "users", "contexts")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeconfigError(YardError):
    """The kubeconfig is missing, not valid, or incomplete."""

    code = "KubeconfigError"


class NotConfiguredError(KubeconfigError):
    """No kubeconfig names a cluster: there is no file, or none of them has a current context."""


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
    """What a transport needs: the server, its CA and the client's credentials (client-go's rest.Config)."""

    server: str
    namespace: str = "default"
    authority: bytes | None = None  # PEM; None: the system's CAs
    insecure: bool = False
    server_name: str = ""  # the name to verify in the certificate, if it is not that of the URL
    proxy: str = ""
    certificate: bytes | None = None  # PEM
    key: bytes | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    plugin: ExecPlugin | None = None
    impersonate: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    context: str = ""  # its name in the kubeconfig
    origin: str = ""  # for messages: the context and the file


def load(path: Path | None = None, *, context: str = "", environ: Mapping[str, str] | None = None) -> Connection:
    """Return the connection of a context, by default the current one.

    Reads `path`, or the files of KUBECONFIG, or ~/.kube/config. Without any of them, uses the pod's service account.
    """
    environ = os.environ if environ is None else environ
    files = [path] if path is not None else default_files(environ)
    config = read(files, required=path is not None)
    if not config["contexts"] and path is None and "KUBERNETES_SERVICE_HOST" in environ:
        return in_cluster(environ)
    where = ", ".join(str(path) for path in files)
    if not any(path.exists() for path in files):
        if context:
            raise KubeconfigError(
                f"context {context!r} does not exist: there is no {where}", hint="name the file with --kubeconfig"
            )
        raise NotConfiguredError(f"no cluster is configured: there is no {where}", hint="start a plane: yard up")
    return connection(config, context, where=where)


def default_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the files that KUBECONFIG lists, or ~/.kube/config."""
    listed = [Path(name).expanduser() for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return list(dict.fromkeys(listed)) or [Path(environ.get("HOME") or Path.home()) / ".kube" / "config"]


def in_cluster(environ: Mapping[str, str] | None = None, *, directory: Path = SERVICE_ACCOUNT) -> Connection:
    """Return the connection of a pod through its service account."""
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token_file = directory / "token"
    if not host or not token_file.exists():
        raise KubeconfigError(
            "this process does not run in a pod with a service account: "
            + (f"{token_file} is missing" if host else "KUBERNETES_SERVICE_HOST is not set"),
            hint="use a kubeconfig, or mount the service account token into the pod",
        )
    namespace_file = directory / "namespace"
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        authority=_file(directory / "ca.crt"),
        token_file=token_file,
        context="in-cluster",
        origin="the pod's service account",
    )


def read(files: list[Path], *, required: bool = False) -> Config:
    """Merge several files: the first one that sets a value or an entry wins. Missing files are skipped."""
    merged: Config = {"current-context": "", **{kind: {} for kind in ENTRIES}}
    for path in files:
        content = parse_file(path, required=required)
        merged["current-context"] = merged["current-context"] or content.get("current-context") or ""
        for kind in ENTRIES:
            for entry in content.get(kind) or ():
                if not isinstance(entry, dict) or not entry.get("name"):
                    raise KubeconfigError(f"{path}: an entry of {kind} has no name")
                value = entry.get(kind[:-1]) or {}
                merged[kind].setdefault(entry["name"], {**value, "directory": path.parent})
    return merged


def connection(config: Config, context: str = "", *, where: str = "the kubeconfig") -> Connection:
    """Return the connection of a context of a merged config."""
    name = context or config["current-context"]
    if not name:
        raise NotConfiguredError(
            f"{where} has no current context",
            hint="choose one with `kubectl config use-context NAME`"
            if config["contexts"]
            else "start a plane: yard up",
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
        authority=_certificate_data(cluster, "certificate-authority", where),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
        certificate=_certificate_data(user, "client-certificate", where),
        key=_certificate_data(user, "client-key", where),
        token=user.get("token") or "",
        token_file=user["directory"] / user["tokenFile"] if user.get("tokenFile") and not user.get("token") else None,
        username=user.get("username") or "",
        password=user.get("password") or "",
        plugin=_plugin(user, where) if user.get("exec") else None,
        impersonate=_impersonate(user),
        context=name,
        origin=f'context "{name}" of {where}',
    )


def _entry(config: Config, kind: str, name: str, where: str) -> Config:
    entry: Config | None = config[kind].get(name)
    if entry is None:
        known = ", ".join(sorted(config[kind])) or "none"
        raise KubeconfigError(f'{where} has no {kind[:-1]} "{name}"', hint=f"existing names: {known}")
    return entry


def _certificate_data(entry: Config, name: str, where: str) -> bytes | None:
    """Return a certificate or key, given inline (which takes precedence) or as a file."""
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
    exec_config = user["exec"]
    version, command = exec_config.get("apiVersion", ""), exec_config.get("command", "")
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise KubeconfigError(
            f'{where}: exec plugin version "{version}" is not supported',
            hint="use client.authentication.k8s.io/v1 or v1beta1",
        )
    if not command:
        raise KubeconfigError(f"{where}: an exec plugin has no command")
    if "/" in command:
        command = str(user["directory"] / command)
    return ExecPlugin(
        api_version=version,
        command=command,
        args=tuple(str(arg) for arg in exec_config.get("args") or ()),
        env={variable["name"]: variable["value"] for variable in exec_config.get("env") or ()},
        install_hint=(exec_config.get("installHint") or "").strip(),
        provide_cluster_info=bool(exec_config.get("provideClusterInfo")),
        interactive_mode=exec_config.get("interactiveMode") or "IfAvailable",
    )


def _impersonate(user: Config) -> dict[str, tuple[str, ...]]:
    """Return the impersonation headers."""
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
    """Parse one file. A missing file gives an empty config, unless it is required."""
    import yaml

    try:
        content = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        if required:
            raise KubeconfigError(f"{path} does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeconfigError(f"{path} is not a valid kubeconfig: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(content.get(kind) or [], list) for kind in ENTRIES):
        raise KubeconfigError(f"{path} is not a valid kubeconfig")
    return content
