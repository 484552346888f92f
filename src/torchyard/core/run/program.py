"""The program of a job: its image, command, arguments and environment, and how to change them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.run.script_command import program_of, split_command
from torchyard.core.run.script_job import call_end

_ENVIRONMENT = re.compile(r"[A-Z_][A-Z0-9_]*")
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")
# In a shell script: what stands between an option and its value, and a value with its quotations.
_BETWEEN = r"(?P<between>(?:[ \t=]|\\\n)+)(?!--|\\\n)"
_VALUE = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\$\([^()]*\)|`[^`]*`|\\.|[^\s\\'"`;&|()<>])+"""


def pod_specs(job: Object) -> list[Object]:
    """The specs of the pods of a job, by replica type.

    A TrainJob has the pods of its runtime; its trainer has image, command, arguments and environment of a container.
    """
    spec = job.get("spec") or {}
    if job["kind"] == "Pod":
        return [spec]
    if job["kind"] == "Job":
        return [spec["template"]["spec"]]
    if job["kind"] == "JobSet":
        return [each["template"]["spec"]["template"]["spec"] for each in spec.get("replicatedJobs") or ()]
    if job["kind"] == "TrainJob":
        trainer = spec.get("trainer")
        return [{"containers": [{} if trainer is None else trainer]}]
    return [replica["template"]["spec"] for replica in (spec.get("pytorchReplicaSpecs") or {}).values()]


def program_words(job: Object) -> list[str]:
    """The command line of the first container, without what unpacks the files of a script."""
    return program_of(pod_specs(job)[0]["containers"][0])


def program_options(job: Object) -> dict[str, str]:
    """The options of the program (`--lr 0.1`), and its other words as `arguments`."""
    words = program_words(job)
    if len(words) == 3 and words[0] in _SHELLS and words[1] == "-c":
        words = _split(words[2])
    options: dict[str, str] = {}
    others: list[str] = []
    position = 0
    while position < len(words):
        word, following = words[position], words[position + 1 : position + 2]
        position += 1
        if word.startswith("--") and "=" in word:
            name, _, options[name] = word.partition("=")
        elif word.startswith("--") and following and not following[0].startswith("--"):
            options[word] = following[0]
            position += 1
        elif word.startswith("--") and len(word) > 2:
            options[word] = "true"
        else:
            others.append(word)
    return {"arguments": shlex.join(others), **options}


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a script with an open quotation
        return [text]


def set_value(job: Object, assignment: str) -> None:
    """Change a job in place: `spec.PATH=VALUE` a field, `NAME=VALUE` in capitals a variable, `name=value` an option."""
    name, equals, value = assignment.partition("=")
    if not equals or not name:
        raise YardError(
            f"--set {assignment}: it is not NAME=VALUE",
            hint="write for example --set lr=0.1, --set NCCL_DEBUG=INFO or --set spec.runPolicy.backoffLimit=0",
            code="BadOption",
        )
    if name.startswith("spec."):
        _set_field(job, name, _parse_yaml(assignment, value))
    elif _ENVIRONMENT.fullmatch(name):
        for container in _first_containers(job):
            _set_variable(container, name, value)
    else:
        option = name if name.startswith("-") else f"--{name}"
        for container in _first_containers(job):
            _set_option(container, option, value)


def set_arguments(job: Object, arguments: list[str]) -> None:
    """Replace the arguments of the program: those of a script, or `args` of the first container."""
    for container in _first_containers(job):
        command = container.get("command") or []
        unpack, program = split_command(command)
        scripts = [number for number, word in enumerate(program) if word.endswith(".py")]
        if container.get("args") is not None or not command:
            container["args"] = list(arguments)
        elif unpack and (end := call_end(program)):
            container["command"] = [*unpack, *program[:end], *arguments]
        elif scripts and program[:2] != ["sh", "-c"]:
            container["command"] = [*unpack, *program[: scripts[0] + 1], *arguments]
        else:
            raise YardError(
                f"the arguments of {shlex.join(command)} cannot be replaced: the container has no args and no script",
                hint="change its options with --set, or edit the manifest",
                code="BadOption",
            )


def _first_containers(job: Object) -> Iterator[Object]:
    """The containers that a change of the program changes."""
    if job["kind"] == "TrainJob" and job["spec"].get("trainer") is None:
        job["spec"]["trainer"] = {}
    for spec in pod_specs(job):
        yield spec["containers"][0]


def _parse_yaml(assignment: str, value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise YardError(
            f"--set {assignment}: the value is not valid YAML", hint="quote a string", code="BadOption"
        ) from error


def _set_field(target: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    try:
        for step in parents:
            target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
        if isinstance(target, list):
            target[int(last)] = value
        elif isinstance(target, dict) and last:
            target[last] = value
        else:
            raise TypeError(path)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise YardError(
            f"--set {path}: the job has no such field",
            hint="write names of fields and numbers of list items, such as spec.template.spec.containers.0.image",
            code="BadOption",
        ) from error


def _set_variable(container: Object, name: str, value: str) -> None:
    others = [variable for variable in container.get("env") or () if variable["name"] != name]
    container["env"] = [*others, {"name": name, "value": value}]


def _set_option(container: Object, option: str, value: str) -> None:
    unpack, command = split_command(list(container.get("command") or ()))
    args = list(container.get("args") or ())
    words = [*command, *args]
    if not words:
        raise YardError(
            f"{option} cannot be set: the container has neither command nor args, the program is that of its image",
            hint="pass all arguments of the program after --",
            code="BadOption",
        )
    if len(words) == 3 and words[0] in _SHELLS and words[1] == "-c":
        words[2] = _set_in_script(words[2], option, value)
        command, args = words[: len(command)], words[len(command) :]
    elif (changed := _set_in_words(args, option, value)) is not None:
        args = changed
    elif (changed := _set_in_words(command, option, value)) is not None:
        command = changed
    else:
        (args or command).extend([option, value])
    for key, changed in (("command", [*unpack, *command]), ("args", args)):
        if changed:
            container[key] = changed


def _set_in_words(words: list[str], option: str, value: str) -> list[str] | None:
    """The words with another value of an option; None if they do not have it."""
    for number, word in enumerate(words):
        if word.startswith(f"{option}="):
            return [*words[:number], f"{option}={value}", *words[number + 1 :]]
        if word == option:
            following = words[number + 1 :]
            if following and not following[0].startswith("--"):
                return [*words[: number + 1], value, *following[1:]]
            return [*words[:number], *_flag(option, value), *following]
    return None


def _flag(option: str, value: str) -> list[str]:
    """The words of an option that had no value."""
    return {"true": [option], "false": []}.get(value.lower(), [option, value])


def _set_in_script(script: str, option: str, value: str) -> str:
    start = rf"(?<!\S){re.escape(option)}"
    with_value = re.compile(rf"{start}{_BETWEEN}{_VALUE}")
    if with_value.search(script):
        return with_value.sub(lambda match: f"{option}{match['between']}{shlex.quote(value)}", script, count=1)
    flag = re.compile(rf"{start}(?![^\s;&|()<>])")
    if not flag.search(script):
        raise YardError(
            f"the shell script of the container has no option {option}",
            hint="set a variable that it reads, or edit the manifest",
            code="BadOption",
        )
    return flag.sub(lambda _: shlex.join(_flag(option, value)), script, count=1)
