"""How a script or a function runs: the keyword arguments of `run` and `train`, as the options of `yard run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from torchyard.api.errors import YardError
from torchyard.api.suggestions import closest
from torchyard.core.run.script_job import ScriptJob


class ScriptOptions(TypedDict, total=False):
    """All have a default.

    name: the name of the job; by default that of the script or function, and a suffix.
    image: the image of the pods.
    nodes, nproc: the number of pods, and of processes in each.
    gpus, cpu, memory: of each pod; quantities such as "2" or "4Gi".
    env: environment variables.
    queue, priority: a LocalQueue and a WorkloadPriorityClass.
    elastic: the least and the most pods of an elastic training.
    dependencies: whether packages that the folder names and the image lacks are installed.
    """

    name: str
    image: str
    nodes: int
    nproc: int
    gpus: int
    cpu: str
    memory: str
    env: dict[str, str]
    queue: str
    priority: str
    elastic: tuple[int, int]
    dependencies: bool


def script_job(script: str, arguments: tuple[str, ...], options: ScriptOptions) -> ScriptJob:
    """The job of a script. Raises YardError for an option that does not exist or a number that is too small."""
    for name in options.keys() - ScriptOptions.__annotations__.keys():
        similar = closest(name, ScriptOptions.__annotations__)
        hint = f"did you mean {similar}?" if similar else f"the options are {', '.join(ScriptOptions.__annotations__)}"
        raise YardError(f"{name} is not an option of scripts and functions", hint=hint, code="BadOption")
    for name, least in (("nodes", 1), ("nproc", 1), ("gpus", 0)):
        number: Any = options.get(name, least)
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise YardError(f"{name}={number!r}: it must be a number of at least {least}", code="BadOption")
    for name in ("name", "image", "cpu", "memory", "queue", "priority"):
        text: Any = options.get(name, "")
        if not isinstance(text, str):
            raise YardError(f"{name}={text!r}: it must be a string", hint=f'such as "{text}"', code="BadOption")
    env: Mapping[Any, Any] = options.get("env", {})
    for key, value in env.items():
        if not isinstance(key, str) or not isinstance(value, str):
            message, hint = f"env has {key!r}: {value!r}; both must be strings", f'such as "{key}": "{value}"'
            raise YardError(message, hint=hint, code="BadOption")
    if wrong := [word for word in arguments if not isinstance(word, (str, int, float))]:
        raise YardError(f"the argument {wrong[0]!r} is not a string", hint="pass text or numbers", code="BadOption")
    elastic = options.get("elastic")
    if elastic is not None and not _are_bounds(elastic):
        raise YardError(f"elastic={elastic!r}: it must be (least, most)", hint="such as (1, 4)", code="BadOption")
    return ScriptJob(
        name=options.get("name", ""),
        script=script,
        arguments=tuple(str(word) for word in arguments),
        image=options.get("image", ""),
        nodes=options.get("nodes", 1),
        processes=options.get("nproc", 1),
        gpus=options.get("gpus", 0),
        cpu=options.get("cpu", ""),
        memory=options.get("memory", ""),
        env=dict(env),
        queue=options.get("queue", ""),
        priority=options.get("priority", ""),
        elastic=elastic,
    )


def _are_bounds(elastic: Any) -> bool:
    is_pair = isinstance(elastic, (tuple, list)) and len(elastic) == len(("least", "most"))
    return is_pair and all(isinstance(bound, int) for bound in elastic) and 1 <= elastic[0] <= elastic[1]
