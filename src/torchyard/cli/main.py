"""The root of the command line: the commands, and how errors are printed."""

from __future__ import annotations

import errno
import json
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from torchyard import __version__
from torchyard.api.errors import YardError

# The commands in the order of the help: the module and the function of each. A Typer is a group of commands.
_COMMANDS = {
    "up": ("plane", "up"),
    "down": ("plane", "down"),
    "status": ("plane", "status"),
    "kubeconfig": ("plane", "kubeconfig"),
    "backup": ("store", "backup"),
    "restore": ("store", "restore"),
    "doctor": ("doctor", "doctor"),
    "operator": ("operator", "operator"),
    "install": ("operator", "install"),
    "uninstall": ("operator", "uninstall"),
    "run": ("run", "run"),
    "ps": ("jobs", "ps"),
    "list": ("jobs", "ps"),
    "logs": ("logs", "logs"),
    "why": ("jobs", "why"),
    "events": ("jobs", "events"),
    "stop": ("jobs", "stop"),
    "resume": ("jobs", "resume"),
    "delete": ("jobs", "delete"),
    "smoke": ("smoke", "smoke"),
    "sweep": ("sweep", "sweep"),
    "top": ("top", "top"),
    "tui": ("tui.command", "tui"),
    "console": ("console", "console"),
    "history": ("history", "history"),
    "rerun": ("rerun", "rerun"),
    "compare": ("compare", "compare"),
    "export": ("export", "export"),
    "convert": ("convert", "convert"),
    "exec": ("processes", "exec_command"),
    "attach": ("processes", "attach"),
    "port-forward": ("processes", "port_forward"),
    "cp": ("copy", "cp"),
    "elastic": ("elastic", "elastic"),
    "mcp": ("mcp.command", "mcp"),
    "image": ("images", "app"),
    "queue": ("queue", "app"),
}
_USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # UsageError, which typer does not export
_OPTIONS: dict[str, dict[str, Any]] = {
    "list": {"hidden": True},
    # The runtime's own parser handles everything after `elastic`, including --help.
    "elastic": {
        "add_help_option": False,
        "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    },
}


def build_app(command: str = "") -> typer.Typer:
    """The command line with all commands, or with only one: a command does not load the modules of the others."""
    app = typer.Typer(
        name="yard",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
        rich_markup_mode=None,  # a table would cut the names of options in a narrow terminal
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in [command] if command in _COMMANDS else _COMMANDS:
        module, attribute = _COMMANDS[name]
        target = getattr(import_module(f"torchyard.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name)
        else:
            app.command(name, **_OPTIONS.get(name, {}))(target)
    return app


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"yard {__version__}")
        raise typer.Exit


def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """PyTorch training the Kubernetes way, on one machine or on a cluster."""


def _arguments(words: list[str]) -> list[str]:
    """The arguments of the command line. As kubectl's, `--dry-run` alone has a value.

    Help ends the line of a group, whose commands have the options: `yard image -h -o json` is no error.
    """
    for groups in ([], ["image"], ["queue"]):
        if words[: len(groups)] == groups and words[len(groups) : len(groups) + 1] in (["-h"], ["--help"]):
            return [*groups, "--help"]
    if words[:1] not in (["run"], ["rerun"]):
        return words
    end = words.index("--") if "--" in words else len(words)
    return ["--dry-run=server" if word == "--dry-run" else word for word in words[:end]] + words[end:]


def main() -> None:
    """Run the command line. A known error prints its message and a hint, never a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a character that the encoding of the terminal lacks is no error
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    try:
        _run(sys.argv[1:])
    except YardError as error:
        _exit_with_error(error.message, error.hint, error.code)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        _exit_with_error(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror))


def _run(words: list[str]) -> None:
    """Run a command. The error of one task of a group is raised without the group."""
    app = build_app(words[0] if words else "")
    has_json_errors = _wants_json(words)
    try:
        code = app(_arguments(words), prog_name="yard", standalone_mode=not has_json_errors)
        if has_json_errors:
            raise SystemExit(code if isinstance(code, int) else 0)
    except _USAGE_ERROR as error:  # otherwise typer prints it with the usage
        _exit_with_error(error.format_message(), "the options: add -h", "BadOption", status=2)
    except BaseExceptionGroup as group:
        cause = _only_error(group)
        if isinstance(cause, BrokenPipeError):  # the reader has all it wants, such as `head`
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - the interpreter flushes and closes it
            raise SystemExit(1) from None
        if cause is group:
            raise
        raise cause from None


def _only_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _wants_json(words: list[str]) -> bool:
    own = words[: words.index("--")] if "--" in words else words
    return bool({"-ojson", "--output=json"} & set(own) or ("json" in own and {"-o", "--output"} & set(own)))


def _exit_with_error(message: str, hint: str = "", code: str = "Error", *, status: int = 1) -> NoReturn:
    """Print an error for people, or as JSON for a program that asked for JSON. The code stays the same."""
    if _wants_json(sys.argv[1:]):
        sys.stderr.write(json.dumps({"error": {"code": code or "Error", "message": message, "hint": hint}}) + "\n")
        raise SystemExit(status) from None
    sys.stderr.write(f"error: {message}\n")
    if hint:
        sys.stderr.write(f"hint: {hint}\n")
    if code not in ("", "Error"):
        sys.stderr.write(f"code: {code}\n")
    raise SystemExit(1) from None
