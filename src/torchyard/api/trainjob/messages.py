"""Conditions, reasons, messages and events of a TrainJob, as Trainer 2.3 writes them, and ours."""

from __future__ import annotations

SUSPENDED, COMPLETE, FAILED = "Suspended", "Complete", "Failed"
TERMINAL = (COMPLETE, FAILED)
# The values of status.state, which are ours: the column State shows them.
CREATED, RUNNING = "Created", "Running"

IS_SUSPENDED, SUSPENDED_MESSAGE = "Suspended", "TrainJob is suspended"
IS_RESUMED, RESUMED_MESSAGE = "Resumed", "TrainJob is resumed"
PAST_DEADLINE, DEADLINE_MESSAGE = "DeadlineExceeded", "TrainJob exceeded its active deadline"
RUNTIME_NOT_SUPPORTED = "TrainingRuntimeNotSupported"
NOT_MADE = "TrainJobResourcesCreationFailed"
_MAX_NOT_MADE = 950
# The last lines of a failed node's log in the message of the condition.
LOG_LINES, LOG_CHARACTERS = 10, 2000

# Ours: the condition of a job whose objects cannot be created. It goes when they are.
RESOURCES_CREATED = "ResourcesCreated"


ELASTIC_FORMAT = 'must be "MIN:MAX", the smallest and the largest number of nodes, such as "1:4"'
ELASTIC_POLICY = (
    "only torchrun and torchyard.elastic are elastic: use it with spec.mlPolicy.torch of the runtime, or without a"
    ' policy and with the annotation torchyard.dev/rdzv-backend "torchyard"'
)
BACKEND_NEEDS_RANGE = 'an elastic job has a smallest and a largest number of nodes; add the annotation, such as "1:4"'
RESIZE_NEEDS_COORDINATOR = (
    "only jobs of the elastic runtime can be resized: use the runtime torchyard-elastic, or the annotation"
    ' torchyard.dev/rdzv-backend "torchyard"'
)
RESIZED = "JobResized"


def elastic_maximum(least: int, most: int, nodes: int) -> str:
    return (
        f"the maximum must be the number of nodes, which is {nodes}: set spec.trainer.numNodes to {most},"
        f' or the annotation to "{min(least, nodes)}:{nodes}"'
    )


def elastic_count(least: int, most: int, owner: str) -> str:
    return f"must be between {least} and {most}, as the annotation torchyard.dev/elastic of the {owner} says"


def resize_range(least: int, most: int, elastic_most: int) -> str:
    reason = "the job's quota is that of numNodes" if most < elastic_most else "the limits of the elastic job"
    return f"must be a number from {least} to {most}: {reason}"


def resized(job: str, before: int, after: int) -> str:
    return f"Job {job} has {after} nodes instead of {before}"


BAD_TTL = "must be a number of seconds up to 2147483647, such as 3600"
TUNE_NOT_SUPPORTED = (
    'torchtune\'s recipe is not chosen here: give the whole command, such as ["tune", "run",'
    ' "full_finetune_single_device", "--config", "llama3_2/1B_full_single_device"]'
)


def ignored(fields: list[str], kind: str, runtime: str, step: str) -> str:
    """A warning about fields without effect."""
    verb = "has" if len(fields) == 1 else "have"
    return (
        f"{', '.join(fields)} {verb} no effect: no replicated job of {kind} {runtime!r} has the label"
        f" trainer.kubeflow.org/trainjob-ancestor-step: {step} on its Job template"
    )


def unsupported_runtime(key: str) -> str:
    return f"unsupported runtime: {key}"


def not_made(why: str) -> str:
    text = f"TrainJob resources reconciliation failed: {why}"
    return text if len(text) <= _MAX_NOT_MADE else f"{text[:_MAX_NOT_MADE]}..."


def runtime_missing(kind: str, name: str) -> str:
    return f"{kind} {name!r} does not exist and the job has no snapshot of it; create the runtime again"


def foreign_snapshot(name: str) -> str:
    return f"the ConfigMap {name} exists and belongs to another object; delete it or rename the job"


def foreign_jobset(name: str) -> str:
    return f"the JobSet {name} exists and belongs to another object; delete it or rename the job"


def other_runtime_in_snapshot(name: str) -> str:
    return f"the ConfigMap {name} is the snapshot of another runtime; delete it"


def bad_snapshot(name: str, problem: str) -> str:
    return f"the ConfigMap {name} does not contain a valid runtime: {problem}; undo the change of the ConfigMap"


def bad_runtime(kind: str, name: str, problems: str) -> str:
    return f"{kind} {name!r} is not valid: {problems}; correct it and create the job again"


def unexpected_error(error: Exception) -> str:
    return f"internal error {type(error).__name__}: {error}; the log of the controller has the details"


def flux_not_supported() -> str:
    return "spec.mlPolicy.flux is not supported; use a runtime with torch, jax, xgboost, mpi or no policy"


def node_failed(message: str, node: str, container: str, exit_code: int, log: str) -> str:
    """The message of the JobSet, then the first node that failed and the end of its log."""
    text = f"{message}; first failed node: {node}, container {container} exited with code {exit_code}"
    return f"{text}, its last lines: {log}" if log else text
