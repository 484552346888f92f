"""Parses the supported subset of Dockerfiles: pure, from text to instructions. The rest is refused by name."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

from torchyard.api.errors import YardError

SUPPORTED = ("FROM", "COPY", "ADD", "ENV", "ARG", "WORKDIR", "RUN", "ENTRYPOINT", "CMD", "USER", "LABEL")
# allowed, without effect on an image that runs here
IGNORED = ("EXPOSE", "MAINTAINER", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "SHELL")


class DockerfileError(YardError):
    """A line that cannot be built; the message has its number."""

    code = "DockerfileError"


@dataclass(frozen=True, slots=True)
class Instruction:
    line: int
    keyword: str
    text: str

    def words(self) -> list[str]:
        """The arguments of an instruction that takes a list: JSON, or words with shell quoting."""
        arguments = self.json()
        return arguments if arguments is not None else shlex.split(self.text)

    def json(self) -> list[str] | None:
        if not self.text.startswith("["):
            return None
        try:
            arguments = json.loads(self.text)
        except ValueError:
            return None
        return [str(word) for word in arguments] if isinstance(arguments, list) else None

    def command(self) -> list[str]:
        """ENTRYPOINT, CMD, RUN: a JSON list as it is, anything else through the shell."""
        arguments = self.json()
        return arguments if arguments is not None else ["/bin/sh", "-c", self.text]


def parse(text: str) -> list[Instruction]:
    """The instructions in order, without comments and with continuations joined. Raises for unsupported ones."""
    instructions: list[Instruction] = []
    for number, line in _logical_lines(text):
        name, _, rest = line.partition(" ")
        keyword = name.upper()
        if keyword in IGNORED:
            continue
        if keyword not in SUPPORTED:
            supported = ", ".join(SUPPORTED)
            raise DockerfileError(f"line {number}: {name} is not supported", hint=f"supported are {supported}")
        if not instructions and keyword not in ("FROM", "ARG"):
            raise DockerfileError(f"line {number}: the first instruction must be FROM")
        instructions.append(Instruction(number, keyword, rest.strip()))
    froms = [instruction for instruction in instructions if instruction.keyword == "FROM"]
    if not froms:
        raise DockerfileError("the Dockerfile has no FROM")
    if len(froms) > 1:
        message = f"line {froms[1].line}: multi-stage builds are not supported"
        raise DockerfileError(message, hint="keep the last FROM only")
    return instructions


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        first = first or number
        if stripped.endswith("\\"):
            joined += stripped[:-1] + " "
            continue
        lines.append((first, joined + stripped))
        joined, first = "", 0
    if joined:
        lines.append((first, joined.rstrip()))
    return lines


_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?:(:[-+])([^}]*))?\})")


def substitute(text: str, values: dict[str, str]) -> str:
    """`$name`, `${name}`, `${name:-default}`, `${name:+other}`."""

    def replace(match: re.Match[str]) -> str:
        if match.group(0) == "\\$":
            return "$"
        value = values.get(match.group(1) or match.group(2) or "", "")
        if match.group(3) == ":-":
            return value or match.group(4)
        if match.group(3) == ":+":
            return match.group(4) if value else ""
        return value

    return _VARIABLE.sub(replace, text)


def assignments(instruction: Instruction) -> dict[str, str]:
    """ENV and LABEL: `A=b C="d e"`, or the old `A b c`."""
    if "=" in instruction.text.split()[0]:
        return dict(word.split("=", 1) for word in shlex.split(instruction.text))
    name, _, value = instruction.text.partition(" ")
    return {name: value.strip()}


def split_flags(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Flags such as `--chown=x` in front of the paths of COPY."""
    flags: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name, _, value = words.pop(0)[2:].partition("=")
        flags[name] = value
    return flags, words
