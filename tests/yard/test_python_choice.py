"""The interpreter of `yard up --python` is that of later starts and of `yard image` too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.api.errors import YardError
from torchyard.node.images import python
from torchyard.yard.images import image_store
from torchyard.yard.node import node_settings
from torchyard.yard.python_choice import AUTO, chosen, find_chosen, remember
from torchyard.yard.settings import PlaneSettings


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The interpreter of an environment that is not the active one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    return tmp_path / "env" / "bin" / "python"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    directory.mkdir()
    return directory


def test_a_chosen_interpreter_is_that_of_later_starts_and_images(state: Path, environment: Path) -> None:
    remember(PlaneSettings(state=state, python=str(environment)))
    later = PlaneSettings(state=state)
    assert node_settings(later, 0).python == str(environment)
    assert image_store(later).python.executable == environment
    other = PlaneSettings(state=state, python=sys.executable)
    assert chosen(other) == sys.executable


def test_a_relative_path_is_remembered_as_an_absolute_one(
    state: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(environment.parent)
    remember(PlaneSettings(state=state, python="./python"))
    assert chosen(PlaneSettings(state=state)) == str(environment)


def test_auto_goes_back_to_the_active_environment(state: Path, environment: Path) -> None:
    remember(PlaneSettings(state=state, python=str(environment)))
    settings = PlaneSettings(state=state, python=AUTO)
    assert find_chosen(settings) == python.find()
    remember(settings)
    assert chosen(PlaneSettings(state=state)) == ""


def test_a_chosen_interpreter_that_is_gone_is_an_error_with_a_way_out(state: Path) -> None:
    (state / "python").write_text(f"{state}/gone/bin/python\n")
    with pytest.raises(YardError, match="an earlier `yard up --python` chose it") as refused:
        find_chosen(PlaneSettings(state=state))
    assert "--python auto" in refused.value.hint
