"""Programs that people put around kubectl work at a plane: kubectl's plugins, and kubecolor, which reads its output."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import kubectl as kubectls
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import Server

pytestmark = pytest.mark.clients


def program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return Path(found)


@pytest.fixture
def shell(yard: Server, tmp_path: Path) -> Kubectl:
    """kubectl by its usual name, with a kubeconfig that a plugin may change, and a directory for plugins."""
    kubectl = kubectls.need()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl.path)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yard.kubeconfig.read_text())
    shell = replace(kubectl, path=programs / "kubectl").using(kubeconfig, tmp_path)
    shell.environment["PATH"] = f"{programs}:/usr/bin:/bin"
    return shell


def test_kubens_and_kubectx_are_plugins_that_change_namespace_and_context(shell: Kubectl) -> None:
    for plugin, name in (("kubectl-ns", "kubens"), ("kubectl-ctx", "kubectx")):
        (shell.path.parent / plugin).symlink_to(program(name))
    assert {"kubectl-ns", "kubectl-ctx"} <= {Path(line).name for line in shell("plugin", "list").split()}
    assert {"default", "kube-system"} <= set(shell("ns").split())
    shell("ns", "kube-system")
    assert shell("config", "view", "--minify", "-o", "jsonpath={..namespace}") == "kube-system"
    shell("get", "serviceaccounts")
    assert "no namespace exists" in shell.fails("ns", "there-is-none")
    (context,) = shell("ctx").split()
    shell("ctx", f"plane={context}")
    assert shell("ctx", "-c").strip() == "plane"


def test_kubecolor_colours_what_kubectl_prints(shell: Kubectl, yard: Server) -> None:
    kubecolor = replace(shell, path=program("kubecolor"))
    for words in (("get", "namespaces"), ("describe", "namespace", "default"), ("api-resources",)):
        coloured = kubecolor("--force-colors", *words)
        assert "\x1b[" in coloured
        plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
        without_ages = r"\s+\d+[smh]+\d*[smh]?(?=\s|$)"
        assert re.sub(without_ages, "", plain).split() == re.sub(without_ages, "", shell(*words)).split()
