"""Compiled code is kept where Python keeps none, and is never that of another source."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kubernetes import ROOT

_PROGRAM = """
import sys
from torchyard.bytecode import BytecodeCache, install
cache = BytecodeCache(sys.argv[2])
install(cache, sys.argv[1] + "/package")
sys.path.insert(0, sys.argv[1])
import package.module
print(package.module.VALUE, package.module.__file__, len(cache._added))
cache.save()
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "tree" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text("VALUE = 'first'")
    return tmp_path / "tree"


def _import(tree: Path, file: Path) -> tuple[str, int]:
    """The value of the module, and how many modules were compiled."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tree), str(file)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=60,
    )
    value, module_file, compiled = done.stdout.split()
    assert module_file == str(tree / "package" / "module.py")
    return value, int(compiled)


def test_a_second_process_compiles_nothing(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "cache" / "code"
    assert _import(tree, file) == ("first", 1)
    assert _import(tree, file) == ("first", 0)


def test_a_changed_source_is_compiled_again(tree: Path, tmp_path: Path) -> None:
    file, module = tmp_path / "cache" / "code", tree / "package" / "module.py"
    _import(tree, file)
    before = module.stat()
    module.write_text("VALUE = 'other'")  # as long as before
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert _import(tree, file) == ("other", 1)
    assert _import(tree, file) == ("other", 0)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "shared"])
def test_a_file_that_is_damaged_or_writable_by_others_is_not_used(tree: Path, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "cache" / "code"
    _import(tree, file)
    content = file.read_bytes()
    if damage == "shared":
        file.chmod(0o666)
    else:
        changed = bytes([content[-1] ^ 1])
        file.write_bytes({"cut": content[:-10], "changed": content[:-1] + changed, "empty": b""}[damage])
    assert _import(tree, file) == ("first", 1)
    assert _import(tree, file) == ("first", 0)


def test_python_s_own_file_is_used_and_not_kept_twice(tree: Path, tmp_path: Path) -> None:
    py_compile.compile(str(tree / "package" / "module.py"))
    assert _import(tree, tmp_path / "cache" / "code") == ("first", 0)


@pytest.mark.parametrize(("python_writes", "kept"), [(False, ""), (False, "bytecode.py"), (True, "")])
def test_a_command_keeps_its_code_where_python_keeps_none(python_writes: bool, kept: str, tmp_path: Path) -> None:
    """What Python has kept of one module says nothing about the others."""
    without_bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "torchyard", tmp_path / "torchyard", ignore=without_bytecode)
    if kept:
        py_compile.compile(str(tmp_path / "torchyard" / kept))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"):
        environment.pop(name, None)
    if not python_writes:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    (tmp_path / "cache").mkdir()
    command = [sys.executable, "-m", "torchyard.cli", "status", "--state", str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.stdout == f"not running (state: {tmp_path / 'state'})\n", done.stderr
    files = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert len(files) == (0 if python_writes else 1)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert bool(list((tmp_path / "torchyard").rglob("*.pyc"))) == (python_writes or bool(kept))
