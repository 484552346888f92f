"""`-o json|yaml|name` and `-q` of the commands that manage planes, images and queues."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from tests.support.yard import Yard
from typer.testing import CliRunner

from torchyard.cli.main import build_app

PYTORCHJOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: mnist}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: {spec: {containers: [{name: pytorch, image: busybox, command: ["true"]}]}}
"""
DOCKERFILE = "FROM busybox\nCMD true\n"
# The command, and what it names; None: not compared.
COMMANDS: dict[str, list[str] | None] = {
    "status": ["torchyard"],
    "kubeconfig": ["torchyard"],
    "kubeconfig --path": ["torchyard"],
    "backup FOLDER/a.db": ["FOLDER/a.db"],
    "doctor": None,
    "image build FOLDER -t small:1": ["small:1"],
    "image ls": ["docker.io/library/small:1"],
    "image inspect small:1": ["small:1"],
    "image tag small:1 small:2": ["small:2"],
    "image map example.com/* small:1": ["example.com/*"],
    "image map": ["example.com/*"],
    "image unmap example.com/*": ["example.com/*"],
    "image save small:1 -o FOLDER/small.tar --layers-only": None,
    "image rm small:2": ["small:2"],
    "queue list": [],
    "install --dry-run --crds-only": None,
    "convert FOLDER/job.yaml": ["trainjob/mnist"],
}


FORMATS = {"image save small:1": (), "install": ("json",)}  # the definitions are long
# What must be run before each time.
BEFORE = {"image unmap": "image map example.com/* small:1", "image rm": "image tag small:1 small:2"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_output_for_programs_is_data_and_nothing_else(plane: Yard, command: str) -> None:
    folder = plane.state.parent
    (folder / "job.yaml").write_text(PYTORCHJOB)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    expected = COMMANDS[command]
    names = run(plane, f"{command} -q").splitlines()
    if expected is not None:
        assert names == [name.replace("FOLDER", str(folder)) for name in expected]
    for output in FORMATS.get(command.partition(" -")[0], ("json", "yaml")):
        (folder / "a.db").unlink(missing_ok=True)
        text = run(plane, f"{command} -o {output}")
        data: Any = json.loads(text) if output == "json" else list(yaml.safe_load_all(text))
        assert data if expected != [] else data in ([], [[]])


def run(plane: Yard, command: str) -> str:
    for name, before in BEFORE.items():
        if command.startswith(name):
            run(plane, before)
    words = [word.replace("FOLDER", str(plane.state.parent)) for word in command.split()]
    state = [] if words[0] in ("install", "convert") else ["--state", str(plane.state)]
    result = CliRunner().invoke(build_app(words[0]), [*words, *state])
    assert result.exit_code == 0, (command, result.output, result.exception)
    return result.stdout
