"""How the command line ends: errors, interrupts, readers that stop."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from torchyard.api.errors import YardError


def run(monkeypatch: pytest.MonkeyPatch, words: str, app: Callable[..., Any] | None = None) -> int:
    monkeypatch.setattr(sys, "argv", ["yard", *words.split()])
    for name in ("enable", "save"):  # not for the process of the tests
        monkeypatch.setattr(f"torchyard.bytecode.{name}", lambda: None)
    if app is not None:
        monkeypatch.setattr(importlib.import_module("torchyard.cli.main"), "build_app", lambda _: app)
    try:
        _entry_point()()
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code
    return 0


def _entry_point() -> Callable[[], None]:
    """The function of the package; the module of this name takes its place when it is imported."""
    spec = importlib.util.find_spec("torchyard.cli")
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    main: Callable[[], None] = package.main
    return main


def raising(error: BaseException) -> Callable[..., Any]:
    def app(*_: object, **__: object) -> None:
        raise error

    return app


def test_ctrl_c_ends_a_command_without_a_traceback_while_modules_load(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "ps", raising(KeyboardInterrupt())) == 130


def test_a_reader_that_stops_ends_a_command_that_has_tasks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    group = ExceptionGroup("tasks", [ExceptionGroup("tasks", [BrokenPipeError()])])
    assert run(monkeypatch, "ps -w", raising(group)) == 1
    sys.stdout.close()
    assert capsys.readouterr().err == ""


def test_the_error_of_a_task_is_printed_as_one_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "ps -w", raising(ExceptionGroup("tasks", [YardError("gone", code="Gone")]))) == 1
    assert capsys.readouterr().err == "error: gone\ncode: Gone\n"
    several = ExceptionGroup("tasks", [ValueError("a"), ValueError("b")])
    with pytest.raises(ExceptionGroup):
        run(monkeypatch, "ps -w", raising(several))


@pytest.mark.parametrize("words", ["ps -o json --such", "run -o json", "run --nodes 0 --output=json a.py"])
def test_wrong_usage_is_an_object_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert run(monkeypatch, words) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "BadOption"


def test_json_of_a_script_is_none_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "run missing.py -- -o json") == 1
    assert capsys.readouterr().err.startswith("error: cannot read missing.py")


def test_a_terminal_that_lacks_a_character_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="latin-1"))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert run(monkeypatch, "ps", lambda *_, **__: print("日 é", flush=True)) == 0
    assert out.getvalue() == b"\\u65e5 \xe9\n"
