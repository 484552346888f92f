"""`make demo` on a terminal, with a small job in place of the training."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.cli.test_run import job
from tests.node.support import need_network
from tests.support.kubernetes import ROOT

PYTHON = ROOT / ".venv-train" / "bin" / "python"


def test_the_demo_asks_nothing_on_a_terminal(tmp_path: Path) -> None:
    need_network()
    if subprocess.run([PYTHON, "-c", "import torch"], check=False, capture_output=True).returncode:
        pytest.skip("torch is not installed in .venv-train")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("pytorch-dist-mnist-gloo-demo", "echo accuracy=0.9000")))
    controller, terminal = pty.openpty()
    command = [sys.executable, str(ROOT / "tools" / "demo.py"), "--manifest", str(tmp_path / "job.yaml")]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, start_new_session=True
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while data := os.read(controller, 4096):
                shown += data
                if data.endswith(b"? [Y/n] "):
                    os.write(controller, b"n\n")
        except OSError:  # the terminal is closed: EIO
            pass
        finally:
            os.close(controller)
    assert process.returncode == 0, shown.decode()
    assert b"accuracy=0.9000 after one epoch" in shown
