"""The Python environments of images: an image keeps the one it was built with; all have the elastic runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.node.test_images import build

from torchyard.node.images import python
from torchyard.node.images.model import ImageError
from torchyard.node.images.store import ImageStore


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment without Torchyard."""
    directory = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return directory


async def test_an_image_keeps_the_environment_it_was_built_with(tmp_path: Path, environment: Path) -> None:
    python.describe.cache_clear()
    builder = ImageStore(tmp_path / "images", python.describe(str(environment / "bin" / "python")))
    await build(builder, tmp_path / "context", "FROM python:3\nENV A=1\n")
    image = ImageStore(tmp_path / "images", python.describe(sys.executable)).resolve("local/mine:1")
    assert environment in image.root.prefixes
    assert image.config.env["PATH"].startswith(str(environment))


async def test_an_image_whose_environment_is_gone_names_it(tmp_path: Path, environment: Path) -> None:
    builder = ImageStore(tmp_path / "images", python.describe(str(environment / "bin" / "python")))
    await build(builder, tmp_path / "context", "FROM python:3\nENV A=1\n")
    content = next((tmp_path / "images").glob("*/image.json"))
    content.write_text(content.read_text().replace(str(environment), str(tmp_path / "gone")))
    with pytest.raises(ImageError, match=r"was built with the Python environment .*gone, which does not") as error:
        builder.resolve("local/mine:1")
    assert "yard image build" in error.value.hint
    assert not builder.lacks("local/mine:1")


def test_an_environment_without_torchyard_gets_the_elastic_runtime(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python.describe.cache_clear()
    interpreter = python.describe(str(environment / "bin" / "python"))
    assert not interpreter.has_runtime
    image = ImageStore(tmp_path / "images", interpreter).resolve("pytorch/pytorch:2.0")
    runtime = image.config.env["PYTHONPATH"]
    assert Path(runtime) in image.root.prefixes
    assert Path(runtime).is_relative_to(tmp_path / "cache"), "containers see its path, which is not that of the state"
    command = [str(interpreter.executable), "-c", "import torchyard.elastic.wire as w; print(w.__file__)"]
    output = subprocess.run(command, env={"PYTHONPATH": runtime}, capture_output=True, text=True, check=True).stdout
    assert output.startswith(runtime)
    assert sorted(path.name for path in (Path(runtime) / "torchyard").iterdir() if path.name != "__pycache__") == [
        "__init__.py",
        "elastic",
        "initializer",
    ]


def test_an_environment_that_was_reached_by_a_link_is_there_under_both_paths(tmp_path: Path, environment: Path) -> None:
    """Its programs begin with the path at which it was made."""
    link = tmp_path / "venv"
    link.symlink_to(environment, target_is_directory=True)
    interpreter = python.describe(str(link / "bin" / "python"))
    assert {link, environment.resolve()} <= set(interpreter.prefixes)


def test_an_environment_that_has_torchyard_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    directory = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "torchyard").mkdir()
    (packages / "torchyard" / "__init__.py").write_text("")
    interpreter = python.describe(str(directory / "bin" / "python"))
    assert interpreter.has_runtime
    assert "PYTHONPATH" not in ImageStore(tmp_path / "images", interpreter).resolve("python:3").config.env
