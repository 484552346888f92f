"""How the command line ends: errors, interrupts, readers that stop."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchyard.api.errors import YardError
from torchyard.api.gvr import JOBS
from torchyard.api.objects import Object
from torchyard.cli.target import Cluster


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


@pytest.mark.parametrize("group", ["", "image ", "queue ", "queue why ", "ps ", "elastic ", "elastic status "])
def test_help_is_printed_for_programs_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], group: str
) -> None:
    assert run(monkeypatch, f"{group}-h -o json") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert f"usage: yard {group}".strip() in printed.out.lower()


def test_the_list_of_images_has_both_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    printed = []
    for name in ("ls", "list"):
        assert run(monkeypatch, f"image {name} --state {tmp_path}") == 0
        printed.append(capsys.readouterr().out)
    assert printed == ["no images\n"] * 2


@pytest.mark.parametrize("option", ["-A", "-l team=a"])
def test_a_job_that_is_named_is_in_one_namespace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert run(monkeypatch, f"ps mnist {option}") == 1
    assert "a job is named in one namespace and without a selector" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("ps", ["a", "b"]),
        ("ps b", ["b"]),
        ("ps job/b a b", ["b", "a"]),
        ("ps c", []),
    ],
)
def test_the_list_of_jobs_has_those_that_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, names: list[str]
) -> None:
    jobs: dict[str, Object] = {
        name: {
            "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}},
        }
        for name in ("a", "b")
    }

    class JobsClient:
        async def find(self, gvr: Any, name: str, _namespace: str) -> Any:
            return jobs.get(name) if gvr == JOBS else None

        async def list(self, gvr: Any, _namespace: str, **_: str) -> Any:
            return SimpleNamespace(items=list(jobs.values()) if gvr == JOBS else [])

    monkeypatch.setattr(Cluster, "namespace", "n")
    monkeypatch.setattr(Cluster, "run", lambda _self, work: asyncio.run(work(JobsClient())))
    monkeypatch.setattr("torchyard.jobs.past_jobs.with_hint_about_deleted", lambda _cluster, _name, error: error)
    assert run(monkeypatch, f"{words} -q") == (0 if names else 1)
    printed = capsys.readouterr()
    assert printed.out.split() == [f"job.batch/{name}" for name in names]
    assert names or "no job is called c" in printed.err


def test_a_terminal_that_lacks_a_character_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="latin-1"))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert run(monkeypatch, "ps", lambda *_, **__: print("日 é", flush=True)) == 0
    assert out.getvalue() == b"\\u65e5 \xe9\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("history mnist --since 7d", "mnist is one job: --all-namespaces and --since choose among several"),
        ("sweep grid --parallel 2", "grid is not a script"),
        ("sweep grid --nodes 2", "grid is not a script"),
        ("run {job} -d --on-interrupt delete", "--on-interrupt needs a job that is followed"),
        ("smoke {config}", "has no job to test"),
        ("top -w -o json", "--watch prints a table"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str, problem: str
) -> None:
    files = {"job": "apiVersion: batch/v1\nkind: Job", "config": "apiVersion: v1\nkind: ConfigMap"}
    for name, kind in files.items():
        (tmp_path / name).write_text(f"{kind}\nmetadata: {{name: a}}\n")
    paths = {name: str(tmp_path / name) for name in files}
    assert run(monkeypatch, words.format(**paths)) == 1
    assert problem in capsys.readouterr().err
