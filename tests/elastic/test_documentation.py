"""Every command of the elastic page is executed as it is written there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchyard.elastic.cli import parser

PAGE = Path(__file__).parents[2] / "docs" / "elastic.md"
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]


SLOWLY = """    import os, time
    time.sleep(0 if os.path.exists('go') else 0.2)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_documented_command_parses(command: str) -> None:
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "torchyard.elastic"]
    assert parser().parse_args(words[3:]).call


@pytest.mark.train
def test_the_page_works_as_written(tmp_path: Path) -> None:
    program = next(
        code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "train.py" in code
    )
    # Slow until the commands that need a running job have been tried, and short after that.
    assert "epochs=20" in program
    program = program.replace("epochs=20", "epochs=2").replace("    x, y = batch\n", f"{SLOWLY}    x, y = batch\n")
    (tmp_path / "train.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(PAGE.parents[1] / "src")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    output_file = tmp_path / "said"
    with output_file.open("w") as file:
        training = subprocess.Popen(shlex.split(COMMANDS[0]), cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + 120
        while "Running" not in (status := run(COMMANDS[1])).stdout and time.monotonic() < deadline:
            time.sleep(0.5)
        assert "2 workers (min 1, max 4)" in status.stdout
        assert run(COMMANDS[2]).stdout == "scaled to 3 workers\n"
        assert "WorldBegan" in run(COMMANDS[3]).stdout
        (tmp_path / "go").touch()
        training.wait(150)
    finally:
        training.kill()
        training.wait()
    output = output_file.read_text()
    assert training.returncode == 0, output
    together = set(re.findall(r"model (\w{64})", output))
    alone = run("python train.py")
    assert together == set(re.findall(r"model (\w{64})", alone.stdout)), (output, alone.stderr)
