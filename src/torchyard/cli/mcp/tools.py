"""The tools of `yard mcp`: each is a command of the command line, with JSON as its output."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.cli.mcp.tool import Arguments, Parameter, Tool, positional

JSON = "-ojson"
_JOB = Parameter("string", "Name of a job, as list_jobs shows it; KIND/NAME if several kinds have it.", required=True)
_RANK = Parameter("string", "A rank such as 0, or a replica such as worker-0.", "--rank")
_SCRIPT = {
    "args": Parameter("array", "Arguments of the script."),
    "name": Parameter("string", "Name of the job. Default: that of the script and a suffix.", "--name"),
    "nodes": Parameter("integer", "Number of pods.", "--nodes"),
    "nproc": Parameter("integer", "Processes of each pod.", "--nproc"),
    "gpus": Parameter("integer", "GPUs of each pod.", "--gpus"),
    "cpu": Parameter("string", "CPUs of each pod, such as 2.", "--cpu"),
    "memory": Parameter("string", "Memory of each pod, such as 4Gi.", "--memory"),
    "env": Parameter("object", "Environment variables.", "--env"),
    "queue": Parameter("string", "LocalQueue to wait in.", "--queue"),
    "image": Parameter("string", "Image of the pods.", "--image"),
}
_RUN_SECONDS = 600.0

Command = Callable[[Arguments], tuple[list[str], list[str]]]


def _verb(*words: str, behind: tuple[str, ...] = ()) -> Command:
    """A verb with arguments of the tool behind its options."""

    def command(arguments: Arguments) -> tuple[list[str], list[str]]:
        return list(words), [word for name in behind for word in positional(arguments, name)]

    return command


def _script(*words: str) -> Command:
    """A verb with a target, and with arguments that may look like options."""

    def command(arguments: Arguments) -> tuple[list[str], list[str]]:
        return list(words), [*positional(arguments, "target"), *map(str, arguments.get("args") or ())]

    return command


def _exec(arguments: Arguments) -> tuple[list[str], list[str]]:
    return ["exec"], [*positional(arguments, "job"), *map(str, arguments["command"])]


def _rerun(arguments: Arguments) -> tuple[list[str], list[str]]:
    return ["rerun", "--detach", JSON], [*positional(arguments, "job"), *map(str, arguments.get("args") or ())]


READ_TOOLS = (
    Tool(
        "list_jobs",
        "List jobs with state, replicas, queue and age (yard ps).",
        {
            "all_namespaces": Parameter("boolean", "Jobs of all namespaces.", "--all-namespaces"),
            "labels": Parameter("string", "Label selector.", "--selector"),
        },
        _verb("ps", JSON),
    ),
    Tool(
        "explain_job",
        "Say why a job waits, failed or stands still, and what would help (yard why). Call it first.",
        {"job": _JOB},
        _verb("why", JSON, behind=("job",)),
    ),
    Tool(
        "job_logs",
        "Read the logs of a job, also of a deleted one (yard logs). Ask for a tail or a pattern: logs are long.",
        {
            "job": _JOB,
            "rank": _RANK,
            "tail": Parameter("integer", "Only the last lines of each replica.", "--tail"),
            "grep": Parameter("string", "Only lines that match a regular expression.", "--grep"),
            "since": Parameter("string", "Only lines newer than 30s, 5m or 2h.", "--since"),
            "previous": Parameter("boolean", "The log before the last restart.", "--previous"),
        },
        _verb("logs", behind=("job",)),
    ),
    Tool(
        "job_events",
        "Events of a job and its pods (yard events).",
        {"job": _JOB},
        _verb("events", JSON, behind=("job",)),
    ),
    Tool(
        "job_usage",
        "CPU and memory that each replica uses (yard top).",
        {"job": Parameter("string", "Name of a job. Default: all that run.")},
        _verb("top", JSON, behind=("job",)),
    ),
    Tool(
        "job_history",
        "Jobs that have ended, with exit codes and GPU-hours, also deleted ones (yard history).",
        {
            "job": Parameter("string", "Only this job."),
            "since": Parameter("string", "Only jobs that ended within 30m, 12h or 7d.", "--since"),
            "limit": Parameter("integer", "The last N jobs.", "--limit"),
        },
        _verb("history", JSON, behind=("job",)),
    ),
    Tool(
        "compare_jobs",
        "Options, environment, outcome and last metrics of two or more jobs (yard compare).",
        {"jobs": Parameter("array", "Names of jobs.", required=True)},
        _verb("compare", JSON, behind=("jobs",)),
    ),
    Tool(
        "sweep_results",
        "The last metrics of each run of a sweep (yard sweep JOB).",
        {"job": _JOB, "sort": Parameter("string", "A metric, the lowest first.", "--sort")},
        _verb("sweep", JSON, behind=("job",)),
    ),
    Tool(
        "check_run",
        "What `run_job` would create or change, without packages, checked by the server; nothing is created or "
        "installed (yard run --dry-run --no-deps).",
        {"target": Parameter("string", "A manifest, a Python script or MODULE:FUNCTION.", required=True), **_SCRIPT},
        _script("run", "--dry-run", "--no-deps", JSON),
        seconds=_RUN_SECONDS,
    ),
)

WRITE_TOOLS = (
    Tool(
        "run_job",
        "Start a manifest, a Python script or MODULE:FUNCTION and return at once (yard run --detach).",
        {
            "target": Parameter("string", "A manifest, a Python script or MODULE:FUNCTION.", required=True),
            **_SCRIPT,
            "replace": Parameter("boolean", "Delete a job of the same name first.", "--replace"),
        },
        _script("run", "--detach", JSON),
        writes=True,
        destructive=True,
        seconds=_RUN_SECONDS,
    ),
    Tool(
        "smoke_test",
        "Run a target until its first step and delete it (yard smoke). Do it before a long run.",
        {
            "target": Parameter("string", "A manifest, a Python script or MODULE:FUNCTION.", required=True),
            **_SCRIPT,
            "timeout": Parameter("integer", "Seconds without a step until it fails.", "--timeout"),
        },
        _script("smoke"),
        writes=True,
        seconds=_RUN_SECONDS,
    ),
    Tool(
        "rerun_job",
        "Run a job again under another name, also with other options (yard rerun --detach).",
        {
            "job": _JOB,
            "set": Parameter("object", "Options, variables or spec.PATH fields to change.", "--set"),
            "name": Parameter("string", "Name of the new job.", "--name"),
            "args": Parameter("array", "Other arguments of the program."),
        },
        _rerun,
        writes=True,
    ),
    Tool(
        "start_sweep",
        "Run a script with every combination of options (yard sweep --detach).",
        {
            "target": Parameter("string", "A Python script.", required=True),
            **_SCRIPT,
            "grid": Parameter(
                "object", 'Values of each option: {"lr": [0.1, 0.01]}.', "--grid", required=True, lists=True
            ),
            "parallel": Parameter("integer", "How many run at once.", "--parallel"),
        },
        _script("sweep", "--detach", JSON),
        writes=True,
        seconds=_RUN_SECONDS,
    ),
    Tool(
        "stop_job",
        "Suspend a job: its pods are deleted, the job stays (yard stop).",
        {"job": _JOB},
        _verb("stop", JSON, behind=("job",)),
        writes=True,
        destructive=True,
    ),
    Tool(
        "resume_job",
        "Start a stopped job again (yard resume).",
        {"job": _JOB},
        _verb("resume", JSON, behind=("job",)),
        writes=True,
    ),
    Tool(
        "delete_job",
        "Delete a job and its pods (yard delete).",
        {"job": _JOB},
        _verb("delete", JSON, behind=("job",)),
        writes=True,
        destructive=True,
    ),
    Tool(
        "exec_command",
        "Run a command in a replica of a job (yard exec).",
        {"job": _JOB, "rank": _RANK, "command": Parameter("array", "The command and its arguments.", required=True)},
        _exec,
        writes=True,
        destructive=True,
    ),
)
