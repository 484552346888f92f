"""What every command has: an example, output for programs, and error codes that the page lists."""

from __future__ import annotations

import re
from typing import Any

from tests.support.kubernetes import ROOT
from typer.main import get_command

from torchyard.cli.main import build_app

COMMANDS = get_command(build_app()).commands  # type: ignore[attr-defined]
# `attach` passes on the bytes of a process, as `kubectl attach` does; the others manage planes and clusters.
FOR_PROGRAMS = {
    "run", "ps", "logs", "why", "events", "stop", "resume", "delete", "smoke", "sweep", "top", "history", "rerun",
    "compare", "exec", "port-forward", "cp",
}  # fmt: skip


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
        verb = "ps" if name == "list" else name
        _, _, text = command.help.partition("Example")
        examples = re.findall(rf"yard {re.escape(verb)}\b([^;]*)", text)
        assert examples, name
        known = {option for parameter in command.params for option in parameter.opts}
        for example in examples:
            words = [word.strip(')"') for word in example.partition(" -- ")[0].split()]
            options = {word for word in words if re.match(r"--?[a-z]", word)}
            assert options <= known, (name, options - known)


def test_commands_about_jobs_have_output_for_programs() -> None:
    for name in FOR_PROGRAMS:
        options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert {"-o", "-q"} <= options, name


def test_every_error_code_of_commands_is_documented() -> None:
    page = (ROOT / "docs/command-line.md").read_text()
    documented = set(re.findall(r"`([A-Z][A-Za-z]+)`", page[page.index("| code |") : page.index("Exit codes:")]))
    used: set[str] = set()
    for package in ("cli", "jobs", "sdk", "core/run"):
        for path in (ROOT / "src/torchyard" / package).rglob("*.py"):
            used |= set(re.findall(r'code="([A-Za-z]+)"', path.read_text()))
    assert used - documented == set()
