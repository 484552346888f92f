"""`yard console` for a real Kubernetes, and what it says without pages, without a cluster and without a plane."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.console.browser import Browser
from tests.console.conftest import console_of
from tests.support.kubernetes import ROOT, Server
from tests.support.process import free_port


def console(*arguments: str, pages: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TORCHYARD_CONSOLE_PAGES": str(pages or "/missing")}
    command = [sys.executable, "-m", "torchyard.cli", "console", "--no-browser", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_a_real_kubernetes_is_shown_with_the_rights_of_the_kubeconfig(
    kube: Server, pages: Path, tmp_path: Path
) -> None:
    with console_of(kube, pages, tmp_path) as process:
        match = re.search(r"(http://\S+)/console/#login=(\S+)", process.log.read_text())
        assert match is not None
        browser = Browser(match[1])
        assert browser.sign_in(match[2]).status == 204
        identity = browser.own("GET", "/session").json
        assert identity["plane"] is False and "system:masters" in identity["groups"]
        assert browser.own("GET", "/k8s/api/v1/namespaces/default").json["kind"] == "Namespace"
        samples = browser.own("GET", "/samples/default/jobs.batch/missing?since=0").json
        assert samples["series"] == [] and samples["lostBefore"] > 0
        assert browser.own("GET", "/history").json == {"items": []}
        assert browser.own("GET", "/").status == 200
        assert match[2] not in process.log.read_text().replace(match[0], ""), "the code is printed once"


def test_without_pages_it_says_what_to_run() -> None:
    result = console()
    assert result.returncode == 1
    assert (
        "make console" in result.stderr and "Node.js 20" in result.stderr and "code: ConsoleNotBuilt" in result.stderr
    )


def test_a_server_that_does_not_respond_is_an_error_of_the_command(pages: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"""{{current-context: a, contexts: [{{name: a, context: {{cluster: a}}}}],
        clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{free_port()}"}}}}]}}"""
    )
    result = console("--kubeconfig", str(config), "--port", "0", pages=pages)
    assert result.returncode == 1 and "code: Unreachable" in result.stderr


def test_the_link_of_a_plane_signs_in_and_a_cluster_has_none(yard: Server, kube: Server) -> None:
    link = console("--direct", "--kubeconfig", str(yard.kubeconfig)).stdout.strip()
    origin, _, code = link.partition("/console/#login=")
    browser = Browser(origin, str(yard.ca))
    assert browser.sign_in(code).status == 204
    assert browser.own("GET", "/session").json["user"] == "yard-admin"
    result = console("--direct", "--kubeconfig", str(kube.kubeconfig))
    assert result.returncode == 1 and "does not serve the console" in result.stderr


def test_the_impersonation_of_a_kubeconfig_is_honoured(yard: Server, pages: Path, tmp_path: Path) -> None:
    """A user who chose fewer rights must not get more in the console."""
    config = tmp_path / "config"
    text = yard.kubeconfig.read_text()
    assert yard.token in text
    config.write_text(re.sub(r"(\n\s*)(token: )", r"\1as: carol\1as-groups: [readers, guests]\1\2", text, count=1))
    server = Server("yard", yard.url, yard.token, yard.ca, config)
    with console_of(server, pages, tmp_path) as process:
        match = re.search(r"(http://\S+)/console/#login=(\S+)", process.log.read_text())
        assert match is not None
        browser = Browser(match[1])
        browser.sign_in(match[2])
        identity = browser.own("GET", "/session").json
        assert identity["user"] == "carol" and {"readers", "guests"} <= set(identity["groups"])
        assert browser.own("GET", "/k8s/api/v1/secrets").status == 403
        watched = browser.own("GET", "/k8s/api/v1/secrets?watch=true")
        assert watched.status == 403 and "carol" in watched.json["message"]
