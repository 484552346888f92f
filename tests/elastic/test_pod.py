"""A pod's agent and the runtime it is served: signals are handed on, codes come out, nothing but Python is needed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from torchyard.elastic import sidecar
from torchyard.elastic.bundle import BOOTSTRAP, bundle
from torchyard.elastic.coordinator.coordinator import CoordinatorConfig
from torchyard.elastic.coordinator.server import CoordinatorServer
from torchyard.elastic.errors import ElasticError


@pytest.fixture
def runtime(tmp_path: Path) -> dict[str, str]:
    """An environment whose only torchyard is the served one."""
    path = tmp_path / "runtime.zip"
    path.write_bytes(bundle())
    return {**os.environ, "PYTHONPATH": str(path)}


def test_the_bundle_contains_the_runtime_and_nothing_else() -> None:
    names = zipfile.ZipFile(BytesIO(bundle())).namelist()
    assert {"torchyard/__init__.py", "torchyard/elastic/api.py", "elasticai_api/pytorch/controller.py"} <= set(names)
    assert not [name for name in names if name.startswith("torchyard/") and "/elastic/" not in name][1:]


@pytest.mark.parametrize(
    ("command", "code"),
    [(["true"], 0), (["bash", "-c", "exit 7"], 7), (["bash", "-c", "kill -9 $$"], 137), ([], 2)],
)
def test_a_pod_ends_with_the_exit_code_of_its_worker(runtime: dict[str, str], command: list[str], code: int) -> None:
    agent = [sys.executable, "-m", "torchyard.elastic", "pod", "--", *command]
    assert subprocess.run(agent, env=runtime, check=False, timeout=120).returncode == code


def test_sigterm_reaches_the_program_below_the_shell(runtime: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *told: sys.exit(5))\n"
        "print('ready', flush=True)\ntime.sleep(600)\n"
    )
    agent = [
        sys.executable,
        "-m",
        "torchyard.elastic",
        "pod",
        "--",
        "bash",
        "-c",
        f"{sys.executable} {program}; exit $?",
    ]
    with subprocess.Popen(agent, env=runtime, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) in (5, 143)  # the shell, told as well, may end with the signal's own code


def test_world_limits_that_are_not_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ElasticError, match="MIN:START:MAX"):
        sidecar.sidecar_record("two", "1")
    monkeypatch.setenv("TORCHYARD_ELASTIC_JOB", "n/j")
    monkeypatch.setenv("TORCHYARD_ELASTIC_TOKEN", "t")
    limits = {"min_workers": 1, "max_workers": 4, "multiple_of": 1, "target_workers": 4, "start_workers": 2}
    assert sidecar.sidecar_record("1:2:4", "29400")["limits"] == limits


@pytest.mark.parametrize(("token", "code", "output"), [("t", 0, "from the pod"), ("guess", 1, "status=403")])
async def test_a_pod_gets_the_runtime_with_the_token_only(tmp_path: Path, token: str, code: int, output: str) -> None:
    server = CoordinatorServer(CoordinatorConfig("j", "t", tmp_path / "ledger.db"))
    port = await server.start()
    environment = {"TORCHYARD_ELASTIC_COORDINATOR": f"127.0.0.1:{port}", "TORCHYARD_ELASTIC_TOKEN": token}
    command = [sys.executable, "-c", BOOTSTRAP, "/bin/echo", "from", "the", "pod"]
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path
    )
    printed, _ = await process.communicate()
    await server.close()
    assert (process.returncode, output in printed.decode()) == (code, True), printed
