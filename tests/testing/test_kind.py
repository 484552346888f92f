"""`torchyard-kind`, which test suites call as `kind`: its clusters, kubeconfigs and refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.node.support import need_network
from tests.support.kubernetes import ROOT
from tests.support.waiting import eventually

from torchyard.kube.kubeconfig import load
from torchyard.testing import kind_config
from torchyard.testing.kind_config import KindConfig, UnsupportedConfig

Kind = Callable[..., subprocess.CompletedProcess[str]]
HEAD = "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n"


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[Kind]:
    """The program, with a state and a kubeconfig of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "KUBECONFIG": str(tmp_path / "config"),
    }

    def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "torchyard.testing.kind", *arguments]
        return subprocess.run(
            command, env=environment, input=text, capture_output=True, text=True, check=False, timeout=120
        )

    yield run
    run("delete", "clusters", "--all")


def test_clusters_are_created_listed_and_deleted(kind: Kind, tmp_path: Path) -> None:
    need_network()
    assert kind("get", "clusters").stderr == "No kind clusters found.\n"
    created = kind("create", "cluster", "--name=one", "--image=kindest/node:v1.29.1", "--wait=5m")
    assert (created.returncode, created.stdout) == (0, "")
    assert "not kindest/node:v1.29.1" in created.stderr
    assert created.stderr.endswith('Set kubectl context to "kind-one"\n')
    assert kind("get", "clusters").stdout == "one\n"
    assert kind("get", "nodes", "--name", "one").stdout == "one-control-plane\n"
    again = kind("create", "cluster", "--name", "one")
    assert again.returncode == 1
    assert 'node(s) already exist for a cluster with the name "one"' in again.stderr

    connection = load(tmp_path / "config")
    assert connection.certificate is not None
    assert connection.namespace == "default"
    exported = kind("export", "kubeconfig", "--name", "one", "--kubeconfig", str(tmp_path / "other"))
    assert exported.returncode == 0, exported.stderr
    printed = yaml.safe_load(kind("get", "kubeconfig", "--name", "one").stdout)
    assert printed == yaml.safe_load((tmp_path / "other").read_text())
    assert printed["current-context"] == "kind-one"
    logs = kind("export", "logs", str(tmp_path / "logs"), "--name", "one")
    assert (tmp_path / "logs" / "one-control-plane.log").exists(), logs.stderr

    lock = json.loads((tmp_path / "state" / "torchyard-kind" / "one" / "lock").read_text())
    os.kill(lock["pid"], signal.SIGKILL)
    eventually(lambda: kind("get", "clusters").stdout == "", "the end of the plane")
    assert kind("create", "cluster", "--name", "one").returncode == 0, "a killed plane is replaced"
    assert kind("delete", "cluster", "--name", "one").returncode == 0
    assert yaml.safe_load((tmp_path / "config").read_text())["contexts"] == []
    assert kind("get", "clusters").stdout == ""
    missing = kind("get", "kubeconfig", "--name", "one")
    assert missing.returncode == 1
    assert "could not locate any control plane nodes for cluster named 'one'" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (("create", "cluster", "--name", "A b"), "", "'A b' is not a valid cluster name"),
        (("create", "cluster", "--wait", "5x"), "", 'invalid duration "5x"'),
        (("create", "cluster", "--config", "missing.yaml"), "", "cannot read missing.yaml"),
        (("create", "cluster", "--config", "-"), "kind: Pod", "no configuration of kind"),
        (("create", "cluster", "--config", "-"), f"{HEAD}featureGates: {{A: true}}", "featureGates does not work"),
        (("load", "docker-image", "app:1"), "", "could not locate any control plane nodes for cluster named 'kind'"),
        (("delete", "clusters"), "", "no cluster is named"),
    ],
)
def test_what_cannot_be_done_is_one_error(kind: Kind, arguments: tuple[str, ...], text: str, message: str) -> None:
    done = kind(*arguments, text=text)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ERROR: ")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("nodes: [{role: control-plane}, {role: worker}]", "nodes"),
        ("nodes: [{role: worker}]", "nodes[0].role"),
        ("nodes: [{labels: {a: b}}]", "nodes[0].labels"),
        ("nodes: [{kubeadmConfigPatches: [x]}]", "nodes[0].kubeadmConfigPatches"),
        (
            "nodes: [{extraPortMappings: [{containerPort: 80, hostPort: 8080}]}]",
            "nodes[0].extraPortMappings[0].hostPort",
        ),
        (
            "nodes: [{extraPortMappings: [{containerPort: 80, hostPort: 80, listenAddress: 0.0.0.0}]}]",
            "nodes[0].extraPortMappings[0].listenAddress",
        ),
        ("nodes: [{extraMounts: [{hostPath: /a, containerPath: /b}]}]", "nodes[0].extraMounts[0].containerPath"),
        (
            "nodes: [{extraMounts: [{hostPath: /a, containerPath: /a, readOnly: true}]}]",
            "nodes[0].extraMounts[0].readOnly",
        ),
        ("networking: {ipFamily: ipv6}", "networking.ipFamily"),
        ("networking: {disableDefaultCNI: true}", "networking.disableDefaultCNI"),
        ("containerdConfigPatches: [x]", "containerdConfigPatches"),
    ],
)
def test_a_field_that_a_plane_cannot_honour_is_named(text: str, field: str) -> None:
    with pytest.raises(UnsupportedConfig, match=r"f\.yaml: .* does not work on a plane") as caught:
        kind_config.read(Path("f.yaml"), HEAD + text)
    assert caught.value.message == f"f.yaml: {field} does not work on a plane"


def test_what_a_plane_has_is_read() -> None:
    text = (
        "name: tests\nnetworking: {apiServerAddress: 127.0.0.2, apiServerPort: 6443, ipFamily: ipv4}\n"
        "nodes: [{role: control-plane, image: x, extraPortMappings: [{containerPort: 30000, hostPort: 30000}]}]\n"
    )
    assert kind_config.read(Path("f.yaml"), HEAD + text) == KindConfig("tests", "127.0.0.2", 6443)
