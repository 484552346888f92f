"""`yard run MODULE:FUNCTION`: how a pod calls the function."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchyard.core.run.program import set_arguments
from torchyard.core.run.script_job import CALL, ScriptJob, pod_template

MODULE = """
import functools, sys
def plain(lr: float = 0.1, amp: bool = True, layers: "int | None" = None, name="x", steps=1):
    print(lr, amp, layers, name, steps)
def rate(lr: "Optional[float]" = None): print(lr)
def no_flag(cache=True, no_cache=False): print(cache, no_cache)
def several(first, *others, **options): print(first, others, options)
def generator(): yield 1
async def coroutine(): print("awaited")
def parses(): print(sys.argv)
def parses_argv(argv=None): print(argv, sys.argv[1:])
class Trainer:
    @staticmethod
    def fit(lr=1.0): print("fit", lr)
class Command:
    def __call__(self, *args, **kwargs): print("command", args, sys.argv[1:])
def recorded(function):
    @functools.wraps(function)
    def call(*args, **kwargs): return function(*args, **kwargs)
    return call
wrapped, command, half, number = recorded(plain), Command(), functools.partial(plain, amp=False), 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("functions")
    (folder / "train.py").write_text(MODULE)
    return folder


def call(folder: Path, function: str, *words: str) -> str:
    command = [sys.executable, "-I", "-S", "-c", CALL, "train", function, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return (done.stdout if done.returncode == 0 else done.stderr).strip()


@pytest.mark.parametrize(
    ("function", "words", "printed"),
    [
        ("plain", ["--lr", "0.5", "--amp", "false", "--layers=3", "--steps", "2"], "0.5 False 3 x 2"),
        ("plain", ["--amp", "--name", "true", "--layers", "None"], "0.1 True None true 1"),
        ("plain", ["--no-amp", "--name", "y"], "0.1 False None y 1"),
        ("no_flag", ["--no-cache"], "True True"),
        ("plain", ["--lr", "-1e-3", "--steps", "0.5"], "-0.001 True None x 0.5"),
        ("rate", ["--lr", "None"], "None"),
        ("several", ["a", "b", "--some-option", "--c", "d"], "a ('b',) {'some_option': 'true', 'c': 'd'}"),
        ("coroutine", [], "awaited"),
        ("parses", ["--lr", "3"], "['train', '--lr', '3']"),
        ("parses_argv", ["--lr", "3"], "None ['--lr', '3']"),
        ("Trainer.fit", ["--lr", "2"], "fit 2.0"),
        ("command", ["--lr", "2"], "command () ['--lr', '2']"),
        ("wrapped", ["--lr", "2"], "2.0 True None x 1"),
        ("half", ["--lr", "2"], "2.0 False None x 1"),
    ],
)
def test_arguments_have_the_types_of_the_parameters(
    folder: Path, function: str, words: list[str], printed: str
) -> None:
    assert call(folder, function, *words) == printed


@pytest.mark.parametrize(
    ("function", "words", "problem"),
    [
        ("plain", ["--lr", "fast"], "--lr fast: it is not a number"),
        ("plain", ["--layers", "2.5"], "--layers 2.5: it is not an integer"),
        ("plain", ["--amp=perhaps"], "--amp perhaps: it is not true or false"),
        ("plain", ["--no-amp=true"], "cannot be called: got an unexpected keyword argument 'no_amp'"),
        ("plain", ["--no-lr"], "cannot be called: got an unexpected keyword argument 'no_lr'"),
        ("plain", ["--lrr", "1"], "cannot be called: got an unexpected keyword argument 'lrr'"),
        ("missing", [], "train:missing does not exist: train has no missing"),
        ("generator", [], "train:generator is a generator, of which a call runs nothing"),
        ("number", [], "train:number is not a function but of type int"),
    ],
)
def test_a_call_that_is_wrong_ends_with_one_line(folder: Path, function: str, words: list[str], problem: str) -> None:
    assert call(folder, function, *words).endswith(problem)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_arguments_of_a_call_can_be_replaced(processes: int) -> None:
    job = ScriptJob("j", "train:plain", arguments=("-c", "old"), processes=processes)
    template = pod_template(job, b"")
    manifest = {"kind": "Job", "spec": {"template": template}}
    set_arguments(manifest, ["--lr", "1"])
    assert template["spec"]["containers"][0]["command"][-5:] == [CALL, "train", "plain", "--lr", "1"]


def test_a_script_whose_name_looks_like_an_option_is_run() -> None:
    container = pod_template(ScriptJob("j", "-dash.py"), b"")["spec"]["containers"][0]
    assert container["command"][-1] == "./-dash.py"
