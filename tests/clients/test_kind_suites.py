"""Test suites of other projects that call `kind`, with `torchyard-kind` under that name. Their sources come from PyPI.

Each suite runs as its authors run it. A test that fails must be among those listed here with a reason, which is that of
the suite or of this machine, not that of the plane.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.effort import FULL
from tests.support.kubernetes import ROOT, assets

pytestmark = [
    pytest.mark.skipif(not FULL, reason="runs whole test suites of other projects: TORCHYARD_TESTS=full"),
    pytest.mark.timeout(1800),
]
NO_PODS = "a plane has no pods in kube-system"
NO_IMAGE = "the image comes from a registry, which this machine may not reach"
GROUP = "its release of httpx-ws raises the error in an exception group"


@dataclass(frozen=True, slots=True)
class Suite:
    """A source archive, how to run its tests, and where it looks for `kind` and `kubectl`."""

    archive: str
    tests: tuple[str, ...]
    at_least: int  # so many tests pass
    kind: str = "bin/kind"
    kubectl: str = "bin/kubectl"
    known: Mapping[str, str] = field(default_factory=dict)


KR8S = {
    "test_get_pods": NO_PODS,
    "test_get_pods_as_table": NO_PODS,
    "test_get_raw": NO_PODS,
    "test_list_raw": NO_PODS,
    "test_url": NO_PODS,
    "test_api_resources": "a plane serves metrics.k8s.io, which has a second resource `pods`",
    "test_api_timeout": "its client may notice a time-out of 10 µs in another place, with another error",
    "test_cast_to_from_kubernetes": "needs an older kubernetes package",
    "test_wait_replicas": NO_IMAGE,
    "test_pod_exec_error": GROUP,
    "test_pod_exec_to_file": GROUP,
    "test_pod_exec_not_ready": NO_IMAGE,
    "test_service_exec": NO_IMAGE,
    "test_adoption": NO_IMAGE,
    "port_forward": NO_IMAGE,
}
SUITES = {
    "kr8s": Suite(
        "kr8s-0.20.15",
        ("kr8s", "--keep-cluster", "-o", "timeout=30"),
        250,
        kind=".pytest-kind/pytest-kind/kind-v0.17.0",
        kubectl=".pytest-kind/pytest-kind/kubectl-v1.25.3",
        known=KR8S,
    ),
    "kopf": Suite(
        "kopf-1.45.2",
        ("tests/e2e", "--with-e2e", "--no-looptime", "--timeout=90"),
        12,
        known={"17-admission": "oscrypto 1.3.0 cannot read the version of OpenSSL 3.0.10 and later"},
    ),
    "cloudcoil": Suite(
        "cloudcoil-0.6.0",
        ("tests/test_sync_e2e.py", "tests/test_async_e2e.py", "-o", "asyncio_mode=auto", "--timeout=100"),
        16,
        kind="home/.cache/cloudcoil/kind/v0.20.0/kind",
    ),
}


@pytest.mark.clients
@pytest.mark.parametrize("name", SUITES)
def test_a_suite_that_uses_kind_runs_on_planes(name: str, tmp_path: Path) -> None:
    programs = assets()
    if programs is None:
        pytest.skip("the suites need kubectl")
    suite = SUITES[name]
    python = _environment(name, tmp_path / "venv")
    sources = _sources(name, suite, tmp_path)
    kind = _program(sources / suite.kind, f'{sys.executable} -m torchyard.testing.kind "$@"')
    for kubectl in {suite.kubectl, str(Path(suite.kubectl).with_name("kubectl"))}:
        _program(sources / kubectl, f'{programs / "kubectl"} "$@"')
    environment = {
        **{key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
        "HOME": str(sources / "home"),
        "KUBECONFIG": str(sources / "kubeconfig"),
        "PATH": f"{(sources / suite.kubectl).parent}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    if name == "kopf":  # it uses the current cluster
        subprocess.run([kind, "create", "cluster", "--wait=1m"], env=environment, check=True, capture_output=True)
    report = tmp_path / "report.xml"
    command = [str(python), "-m", "pytest", *suite.tests, "-o", "addopts=", "-q", f"--junitxml={report}"]
    try:
        output = _run(command, sources, environment, report)
    finally:
        subprocess.run([kind, "delete", "clusters", "--all"], env=environment, check=False, capture_output=True)
    assert report.exists(), output
    passed, failed = _outcomes(report)
    unknown = [test for test in failed if not any(part in test for part in suite.known)]
    print(f"{suite.archive}: {len(passed)} passed, {len(failed)} failed: {failed}")
    assert not unknown, f"{unknown}\n{output[-20000:]}"
    assert len(passed) >= suite.at_least


def _run(command: list[str], sources: Path, environment: dict[str, str], report: Path) -> str:
    """Run a suite until it has written its report; some leave threads that watch for ever."""
    log = report.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=sources, env=environment, stdout=file, stderr=subprocess.STDOUT)
        while not report.exists():
            try:
                process.wait(1)
                break
            except subprocess.TimeoutExpired:
                continue
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return log.read_text()


def _environment(name: str, home: Path) -> Path:
    pins = ROOT / "requirements" / "suites" / f"{name}.txt"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
    python = home / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-r", str(pins)], capture_output=True, text=True, check=False
    )
    if installed.returncode != 0:
        pytest.skip(f"{name} cannot be installed here: {installed.stderr.strip().splitlines()[-1]}")
    return python


def _sources(name: str, suite: Suite, target: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "-d",
        str(target),
    ]
    fetched = subprocess.run(
        [*command, suite.archive.replace("-", "==", 1)], capture_output=True, text=True, check=False
    )
    archive = target / f"{suite.archive}.tar.gz"
    if not archive.exists():
        pytest.skip(f"the sources of {name} cannot be had here: {fetched.stderr.strip().splitlines()[-1]}")
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    return target / suite.archive


def _program(path: Path, command: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nPYTHONPATH={ROOT / 'src'} exec {command}\n")
    path.chmod(0o755)
    return path


def _outcomes(report: Path) -> tuple[list[str], list[str]]:
    passed, failed = [], []
    for case in ElementTree.parse(report).iter("testcase"):
        outcomes = {part.tag for part in case}
        if outcomes & {"failure", "error"}:
            failed.append(str(case.get("name")))
        elif "skipped" not in outcomes:
            passed.append(str(case.get("name")))
    return passed, failed
