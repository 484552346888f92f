"""A sweep: an Indexed Job with one index for every combination of options."""

from __future__ import annotations

import itertools
import json
import shlex

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.queue.names import PRIORITY, QUEUE_NAME
from torchyard.core.run.script_job import ScriptJob, archive_objects, pod_template

COMBINATIONS = "torchyard.dev/sweep"
MAX_COMBINATIONS = 1000
_INDEX = "JOB_COMPLETION_INDEX"

Combination = dict[str, str]


def grid(assignments: list[str]) -> list[Combination]:
    """Every combination of `NAME=VALUE,VALUE…`, the last name changing fastest. A repeated name adds values."""
    values: dict[str, list[str]] = {}
    for name, added in map(_parse, assignments):
        values[name] = list(dict.fromkeys([*values.get(name, ()), *added]))
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    if len(combinations) > MAX_COMBINATIONS:
        raise YardError(
            f"the grid has {len(combinations)} combinations; a sweep has at most {MAX_COMBINATIONS}",
            hint="leave out values, or split it into several sweeps",
            code="SweepTooLarge",
        )
    return combinations


def _parse(assignment: str) -> tuple[str, list[str]]:
    name, equals, values = assignment.partition("=")
    if not equals or not name or not values:
        raise YardError(
            f"--grid {assignment}: it is not NAME=VALUE,VALUE",
            hint="write for example --grid lr=0.1,0.01",
            code="BadOption",
        )
    return name, values.split(",")


def sweep_objects(job: ScriptJob, workspace: bytes, combinations: list[Combination], parallelism: int) -> list[Object]:
    """The ConfigMap with the packed workspace and the Indexed Job that runs every combination."""
    labels = {name: value for name, value in {QUEUE_NAME: job.queue, PRIORITY: job.priority}.items() if value}
    template = pod_template(job, workspace, prepare=_choice(combinations))
    template["spec"]["restartPolicy"] = "Never"
    container = template["spec"]["containers"][0]
    if job.processes > 1:  # torchrun reads them; no controller sets them in the pods of a Job
        launcher = {"PET_NPROC_PER_NODE": str(job.processes), "PET_STANDALONE": "1"}
        variables = [{"name": name, "value": value} for name, value in launcher.items() if name not in job.env]
        container["env"] = [*(container.get("env") or ()), *variables]
    spec: Object = {
        "completionMode": "Indexed",
        "completions": len(combinations),
        "parallelism": min(parallelism or len(combinations), len(combinations)),
        "backoffLimitPerIndex": 0,
        "template": template,
    }
    metadata: Object = {"name": job.name, "annotations": {COMBINATIONS: json.dumps(combinations)}}
    if labels:
        metadata["labels"] = labels
    sweep = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return [*archive_objects(job, workspace), sweep]


def _choice(combinations: list[Combination]) -> str:
    """The shell command that appends the options of an index to the program's arguments."""
    options = [
        shlex.join(word for name, value in combination.items() for word in (f"--{name}", value))
        for combination in combinations
    ]
    cases = [f'{index}) set -- "$@" {words} ;;' for index, words in enumerate(options)]
    return f"case ${_INDEX} in {' '.join(cases)} esac"


def combinations_of(job: Object) -> list[Combination]:
    """The combinations of a sweep; none for another job."""
    text = (job["metadata"].get("annotations") or {}).get(COMBINATIONS, "")
    combinations: list[Combination] = json.loads(text) if text else []
    return combinations
