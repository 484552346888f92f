"""`yard smoke TARGET`: does a job reach its first step? Before the long run."""

from __future__ import annotations

import asyncio
import copy
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.option_groups import with_groups
from torchyard.cli.output import Output, OutputOption, Quiet, for_programs, show_records
from torchyard.cli.run import Arguments, Target, read_target
from torchyard.cli.run_options import OnInterrupt, SessionOptions
from torchyard.cli.script_options import script_options
from torchyard.cli.target import Cluster, choose_cluster
from torchyard.core.run.script_job import ScriptJob

if TYPE_CHECKING:
    from torchyard.api.objects import Object
    from torchyard.cli.run_session import RunSession
    from torchyard.cli.step_screen import StepScreen
    from torchyard.kube.client import Client

# A program may read it, to load less data.
SMOKE = "TORCHYARD_SMOKE"
TIMED_OUT = 124  # as of timeout(1)


@with_groups(script=script_options, cluster=choose_cluster)
def smoke(
    script: ScriptJob,
    cluster: Cluster,
    target: Target,
    arguments: Arguments = None,
    timeout: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Fail after so long without a step.")] = 300,
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Run a manifest or a script until its first step, delete the job, and exit with 0.

    A step is a line with progress or a metric, such as `step 1/100` or `loss=0.25`; a program that ends with 0 passes
    too. Programs see TORCHYARD_SMOKE=1. The job has a name of its own, and as many replicas as the real one.
    A job that fails before gives its exit code, one that takes too long 124.

    Examples: yard smoke job.yaml; yard smoke train.py --nodes 2 -- --lr 0.1
    """
    if script.name:  # never the name of the real job: this one is deleted
        script = replace(script, name=_smoke_name(script.name))
    objects = [_prepared(obj) for obj in read_target(target, script, arguments, cluster).objects]
    from torchyard.core.run.state import RUNNABLE

    if not any(obj["kind"] in RUNNABLE for obj in objects):
        raise YardError(f"{target} has no job to test: none of {', '.join(sorted(RUNNABLE))}", code="BadManifest")
    output = Output.name if quiet else output
    outcome = cluster.run(lambda client: _smoke(client, cluster, objects, timeout, for_programs=for_programs(output)))
    if for_programs(output):
        show_records([asdict(outcome)], output, columns={}, empty="")
    raise typer.Exit(outcome.exitCode)


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """What a smoke test found. `line` is that of the first step."""

    name: str
    passed: bool
    exitCode: int  # noqa: N815 - a key of the output
    seconds: float
    line: str
    message: str


def _smoke_name(name: str) -> str:
    from torchyard.jobs.scripts import random_suffix

    return f"{name[:40]}-smoke-{random_suffix()}"


def _prepared(obj: Object) -> Object:
    from torchyard.core.run.program import set_value
    from torchyard.core.run.rerun import base_name
    from torchyard.core.run.script_job import is_script
    from torchyard.core.run.state import RUNNABLE

    if obj["kind"] not in RUNNABLE:
        return obj
    job = copy.deepcopy(obj)
    if not is_script(job):  # the name of a script's job has a suffix already
        name = base_name(str(job["metadata"].pop("generateName", job["metadata"].get("name", ""))).rstrip("-"))
        job["metadata"]["name"] = _smoke_name(name)
    set_value(job, f"{SMOKE}=1")
    return job


async def _smoke(
    client: Client, cluster: Cluster, objects: list[Object], seconds: float, *, for_programs: bool
) -> SmokeResult:
    from torchyard.cli.run_session import RunSession
    from torchyard.cli.screen import create_screen
    from torchyard.cli.step_screen import StepScreen
    from torchyard.core.run.state import RUNNABLE

    screen = StepScreen(create_screen(for_programs=for_programs))
    session = RunSession(client, screen, SessionOptions(cluster.namespace, OnInterrupt.delete), cluster.namespace)
    name = next((obj["metadata"]["name"] for obj in objects if obj["kind"] in RUNNABLE), "")
    try:
        result = await _until_step(session, screen, objects, seconds, name)
        screen.note(f"smoke test {'passed' if result.passed else 'failed'}{result.message}")
        return result
    finally:
        await session.handle_interrupt()
        screen.close()


async def _until_step(
    session: RunSession, screen: StepScreen, objects: list[Object], seconds: float, name: str
) -> SmokeResult:
    started = time.monotonic()
    running = asyncio.ensure_future(session.run(objects))
    stepping = asyncio.ensure_future(screen.step.wait())
    try:
        await asyncio.wait({running, stepping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        took = round(time.monotonic() - started, 1)
        if stepping.done():
            message = f": first step after {took:.1f} s: {screen.line}"
            return SmokeResult(name, True, 0, took, screen.line, message)
        if running.done():
            code = running.result()
            return SmokeResult(name, code == 0, code, took, "", ": the program ended" if code == 0 else "")
        return SmokeResult(name, False, TIMED_OUT, took, "", f": no step within {seconds:g} s")
    finally:
        for task in (running, stepping):
            task.cancel()
        await asyncio.gather(running, stepping, return_exceptions=True)
