"""Reads the subset of Dockerfiles that is built here: pure, from text to steps. The rest is refused by name."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

from torchyard.api.errors import YardError

SERVED = ("FROM", "COPY", "ADD", "ENV", "ARG", "WORKDIR", "RUN", "ENTRYPOINT", "CMD", "USER", "LABEL")
# said in images, without effect on one that runs here
IGNORED = ("EXPOSE", "MAINTAINER", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "SHELL")


class DockerfileError(YardError):
    """A line that cannot be built, with its number."""

    code = "DockerfileError"


@dataclass(frozen=True, slots=True)
class Instruction:
    line: int
    instruction: str
    text: str

    def words(self) -> list[str]:
        """The arguments of a line that is a list: JSON, or words in a shell's quoting."""
        read = self.json()
        return read if read is not None else shlex.split(self.text)

    def json(self) -> list[str] | None:
        if not self.text.startswith("["):
            return None
        try:
            read = json.loads(self.text)
        except ValueError:
            return None
        return [str(word) for word in read] if isinstance(read, list) else None

    def command(self) -> list[str]:
        """ENTRYPOINT, CMD, RUN: a JSON list as it is, anything else through the shell."""
        read = self.json()
        return read if read is not None else ["/bin/sh", "-c", self.text]


def parse(text: str) -> list[Instruction]:
    """Steps in order. Comments and continuations are resolved; unknown instructions raise."""
    steps: list[Instruction] = []
    for number, line in _logical_lines(text):
        name, _, rest = line.partition(" ")
        instruction = name.upper()
        if instruction in IGNORED:
            continue
        if instruction not in SERVED:
            served = ", ".join(SERVED)
            raise DockerfileError(f"line {number}: {name} is not built here", hint=f"served are {served}")
        if not steps and instruction not in ("FROM", "ARG"):
            raise DockerfileError(f"line {number}: the first instruction must be FROM")
        steps.append(Instruction(number, instruction, rest.strip()))
    if not any(step.instruction == "FROM" for step in steps):
        raise DockerfileError("there is no FROM in it")
    froms = [step for step in steps if step.instruction == "FROM"]
    if len(froms) > 1:
        said = f"line {froms[1].line}: several stages are not built here"
        raise DockerfileError(said, hint="keep the last FROM only")
    return steps


def _logical_lines(text: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    whole, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        begun = begun or number
        if stripped.endswith("\\"):
            whole += stripped[:-1] + " "
            continue
        found.append((begun, whole + stripped))
        whole, begun = "", 0
    if whole:
        found.append((begun, whole.rstrip()))
    return found


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


def assignments(step: Instruction) -> dict[str, str]:
    """ENV and LABEL: `A=b C="d e"`, or the old `A b c`."""
    if "=" in step.text.split()[0]:
        return dict(word.split("=", 1) for word in shlex.split(step.text))
    name, _, value = step.text.partition(" ")
    return {name: value.strip()}


def split_flags(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """`--chown=x` and the like in front of COPY's paths."""
    flags: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name, _, value = words.pop(0)[2:].partition("=")
        flags[name] = value
    return flags, words
