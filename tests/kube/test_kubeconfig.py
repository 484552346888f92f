"""Reading kubeconfigs: merging, contexts, certificates, service accounts, errors."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.kubectl import need, versions

from torchyard.kube.kubeconfig import Connection, ExecPlugin, KubeconfigError, in_cluster, load, read

Config = dict[str, Any]


def config(name: str = "a", *, cluster: Config | None = None, user: Config | None = None, **context: str) -> Config:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster or {"server": f"https://{name}.example:6443"}}],
        "users": [{"name": name, "user": user or {"token": f"token-{name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
    }


def put(path: Path, content: Config | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.dump(content))
    return path


def environ(*files: Path, home: Path | None = None) -> dict[str, str]:
    variables = {"HOME": str(home)} if home else {}
    return {**variables, "KUBECONFIG": os.pathsep.join(map(str, files))} if files else variables


def test_the_current_context_is_used_unless_another_is_named(tmp_path: Path) -> None:
    first, second = put(tmp_path / "1", config("a", namespace="team")), put(tmp_path / "2", config("b"))
    current = load(environ=environ(first, second))
    assert (current.server, current.namespace, current.token) == ("https://a.example:6443", "team", "token-a")
    other = load(context="b", environ=environ(first, second))
    assert (other.server, other.namespace) == ("https://b.example:6443", "default")


def test_the_first_file_wins_and_missing_files_are_skipped(tmp_path: Path) -> None:
    first = put(tmp_path / "first", {**config("a", cluster={"server": "https://first"}), "current-context": ""})
    second = put(tmp_path / "second", {**config("a", cluster={"server": "https://second"})})
    assert load(environ=environ(tmp_path / "missing", first, second)).server == "https://first"


def test_without_kubeconfig_the_file_in_the_home_directory_is_used(tmp_path: Path) -> None:
    put(tmp_path / ".kube" / "config", config("home"))
    assert load(environ=environ(home=tmp_path)).server == "https://home.example:6443"


def test_certificates_are_inline_or_in_files_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"authority")
    (tmp_path / "key.pem").write_bytes(b"ignored: inline data takes precedence")
    user = {
        "client-certificate-data": base64.b64encode(b"certificate").decode(),
        "client-key-data": base64.b64encode(b"key").decode(),
        "client-key": "key.pem",
    }
    path = put(
        tmp_path / "config", config(cluster={"server": "https://x/", "certificate-authority": "ca.pem"}, user=user)
    )
    connection = load(path)
    assert (connection.server, connection.authority, connection.certificate, connection.key) == (
        "https://x",
        b"authority",
        b"certificate",
        b"key",
    )


def test_all_other_fields_of_a_context(tmp_path: Path) -> None:
    cluster = {
        "server": "https://x",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "real.example",
        "proxy-url": "http://proxy:3128",
    }
    user = {"tokenFile": "token", "as": "bob", "as-groups": ["g1", "g2"], "as-user-extra": {"scopes": ["s"]}}
    connection = load(put(tmp_path / "config", config(cluster=cluster, user=user)))
    assert connection == Connection(
        server="https://x",
        context="a",
        insecure=True,
        server_name="real.example",
        proxy="http://proxy:3128",
        token_file=tmp_path / "token",
        impersonate={
            "Impersonate-User": ("bob",),
            "Impersonate-Group": ("g1", "g2"),
            "Impersonate-Extra-scopes": ("s",),
        },
        origin=f'context "a" of {tmp_path / "config"}',
    )


def test_the_path_of_an_exec_plugin_is_relative_to_the_config(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./login",
        "args": ["--fast"],
        "env": [{"name": "A", "value": "1"}],
        "interactiveMode": "Never",
        "installHint": "get it\n",
    }
    connection = load(put(tmp_path / "config", config(user={"exec": plugin})))
    assert connection.plugin == ExecPlugin(
        "client.authentication.k8s.io/v1",
        str(tmp_path / "login"),
        ("--fast",),
        {"A": "1"},
        install_hint="get it",
        interactive_mode="Never",
    )


def broken(**changes: Any) -> Config:
    return {**config(), **changes}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not a valid kubeconfig"),
        ("- a", "is not a valid kubeconfig"),
        ("clusters: yes", "is not a valid kubeconfig"),
        (broken(clusters=[{"cluster": {}}]), "an entry of clusters has no name"),
        (broken(**{"current-context": ""}), "has no current context .*kubectl config use-context"),
        (broken(**{"current-context": "z"}), r'has no context "z" \(existing names: a\)'),
        (broken(clusters=[]), r'has no cluster "a" \(existing names: none\)'),
        (broken(users=[]), 'has no user "a"'),
        (config(cluster={"certificate-authority": "x"}), 'cluster "a" has no server'),
        (
            config(cluster={"server": "https://x", "certificate-authority": "nope.pem"}),
            "cannot read .*nope.pem: No such",
        ),
        (config(user={"client-key-data": "%%%"}), "client-key-data is not base64"),
        (config(user={"auth-provider": {"name": "gcp"}}), "auth-provider, which Kubernetes removed in 1.26"),
        (config(user={"exec": {"apiVersion": "v1", "command": "x"}}), 'exec plugin version "v1" is not supported'),
        (config(user={"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}), "has no command"),
    ],
)
def test_an_invalid_kubeconfig_is_an_error_with_its_reason(tmp_path: Path, content: Config | str, message: str) -> None:
    with pytest.raises(KubeconfigError, match=message):
        load(put(tmp_path / "config", content))


def test_a_missing_kubeconfig_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="nope does not exist"):
        load(tmp_path / "nope")
    with pytest.raises(KubeconfigError, match=r"no cluster is configured: there is no .*yard up"):
        load(environ=environ(home=tmp_path))
    with pytest.raises(KubeconfigError, match=r"context 'far' does not exist: there is no .*--kubeconfig"):
        load(context="far", environ={"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_a_pod_uses_its_service_account(tmp_path: Path, host: str, server: str) -> None:
    for name, text in (("token", "t"), ("ca.crt", "ca"), ("namespace", "team\n")):
        (tmp_path / name).write_text(text)
    connection = in_cluster({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}, directory=tmp_path)
    assert (connection.server, connection.namespace, connection.authority) == (server, "team", b"ca")
    assert connection.token_file == tmp_path / "token"


def test_in_cluster_fails_outside_a_pod(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="KUBERNETES_SERVICE_HOST is not set"):
        in_cluster({}, directory=tmp_path)
    with pytest.raises(KubeconfigError, match="token is missing"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, directory=tmp_path)


def test_the_repr_of_a_connection_hides_secrets(tmp_path: Path) -> None:
    connection = load(
        put(tmp_path / "config", config(user={"token": "hush", "client-key-data": "aHVzaA==", "password": "hush"}))
    )
    assert "hush" not in repr(connection)


@pytest.mark.clients
def test_several_files_merge_as_kubectl_merges_them(tmp_path: Path) -> None:
    need()
    program = next(iter(versions().values()))
    first = put(tmp_path / "1", {**config("a"), "current-context": ""})
    both = config("a", cluster={"server": "https://overridden"})
    for kind in ("clusters", "users", "contexts"):
        both[kind] += config("b")[kind]
    second = put(tmp_path / "2", {**both, "current-context": "b"})
    env = {**os.environ, **environ(first, tmp_path / "missing", second)}
    command = [str(program), "config", "view", "--raw", "-o", "json"]
    theirs = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    ours = read([first, tmp_path / "missing", second])
    assert ours["current-context"] == theirs["current-context"]
    for kind in ("clusters", "users", "contexts"):
        entries = {
            name: {key: value for key, value in entry.items() if key != "directory"}
            for name, entry in ours[kind].items()
        }
        assert entries == {entry["name"]: entry[kind[:-1]] for entry in theirs[kind]}
