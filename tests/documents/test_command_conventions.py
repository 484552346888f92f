"""What every command has: an example, output for programs, and error codes that the page lists."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from tests.support.kubernetes import ROOT
from tests.support.syntax import parse
from typer.main import get_command

from torchyard.cli.main import build_app
from torchyard.cli.output import Output

ALIASES = {"list": "ps", "image list": "image ls"}  # their help is that of the command
COMMANDS = get_command(build_app()).commands  # type: ignore[attr-defined]
# Why a command has no output for programs. A new command needs the options, or a reason here.
NOT_FOR_PROGRAMS = {
    "attach": "passes on the bytes of a process, as `kubectl attach` does",
    "tui": "draws on a terminal",
    "console": "serves pages until Ctrl-C",
    "mcp": "its standard output is a protocol",
    "operator": "serves until it is stopped; its output is its log",
    "elastic": "the runtime's own parser",
    "image save": "-o is the archive, as for `docker save`",
}


def leaves(commands: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The commands by their full names, those of groups too."""
    leaf_commands: dict[str, Any] = {}
    for name, command in commands.items():
        members = getattr(command, "commands", None)
        leaf_commands |= leaves(members, f"{prefix}{name} ") if members else {f"{prefix}{name}": command}
    return leaf_commands


def test_every_command_has_an_example_with_its_own_options() -> None:
    for name, command in leaves(COMMANDS).items():
        if name == "elastic":  # the runtime's own parser
            continue
        verb = ALIASES.get(name, name)
        _, _, text = command.help.partition("Example")
        examples = re.findall(rf"yard {re.escape(verb)}\b([^;]*)", text)
        assert examples, name
        known = {option for parameter in command.params for option in parameter.opts}
        for example in examples:
            words = [word.strip(')"') for word in example.partition(" -- ")[0].split()]
            options = {word for word in words if re.match(r"--?[a-z]", word)}
            assert options <= known, (name, options - known)


@pytest.mark.parametrize("name", sorted(leaves(COMMANDS).keys() - NOT_FOR_PROGRAMS))
def test_every_command_has_output_for_programs(name: str) -> None:
    options = {option: parameter for parameter in leaves(COMMANDS)[name].params for option in parameter.opts}
    assert {"-o", "--output", "-q", "--quiet"} <= options.keys()
    assert set(options["-o"].type.choices) == {output.value for output in Output}
    assert options["-q"].is_flag


def test_only_known_commands_have_no_output_for_programs() -> None:
    assert NOT_FOR_PROGRAMS.keys() <= leaves(COMMANDS).keys()


def test_every_error_code_of_commands_is_documented() -> None:
    page = (ROOT / "docs/command-line.md").read_text()
    documented = set(re.findall(r"`([A-Z][A-Za-z]+)`", page[page.index("| code |") : page.index("Exit codes:")]))
    used: set[str] = set()
    for package in ("cli", "jobs", "sdk", "core/run", "yard", "operator"):
        for path in (ROOT / "src/torchyard" / package).rglob("*.py"):
            used |= set(re.findall(r'code="([A-Za-z]+)"', path.read_text()))
    assert used - documented == set()


def test_every_error_of_commands_has_a_code() -> None:
    """A program cannot tell errors apart by a message, which may change."""
    without: list[str] = []
    for package in ("cli", "jobs", "sdk", "core/run", "yard", "operator", "kube/job_lookup.py"):
        path = ROOT / "src/torchyard" / package
        for file in [path] if path.is_file() else path.rglob("*.py"):
            for node in ast.walk(parse(file)):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "YardError"
                    and "code" not in {keyword.arg for keyword in node.keywords}
                ):
                    without.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert without == []
