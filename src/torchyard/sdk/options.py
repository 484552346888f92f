"""How a script or a function runs: the keyword arguments of `run` and `train`, as the options of `yard run`."""

from __future__ import annotations

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
        if not isinstance(number, int) or number < least:
            raise YardError(f"{name}={number!r}: it must be a number of at least {least}", code="BadOption")
    elastic = options.get("elastic")
    if elastic is not None and (len(elastic) != 2 or not 1 <= elastic[0] <= elastic[1]):
        raise YardError(f"elastic={elastic!r}: it must be (least, most)", hint="such as (1, 4)", code="BadOption")
    return ScriptJob(
        name=options.get("name", ""),
        script=script,
        arguments=arguments,
        image=options.get("image", ""),
        nodes=options.get("nodes", 1),
        processes=options.get("nproc", 1),
        gpus=options.get("gpus", 0),
        cpu=options.get("cpu", ""),
        memory=options.get("memory", ""),
        env=dict(options.get("env", {})),
        queue=options.get("queue", ""),
        priority=options.get("priority", ""),
        elastic=elastic,
    )
