"""`yard smoke TARGET`: does a job reach its first step? Before the long run."""

from __future__ import annotations

import asyncio
import copy
import time
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli.option_groups import with_groups
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
) -> None:
    """Run a manifest or a script until its first step, delete the job, and exit with 0.

    A step is a line with progress or a metric, such as `step 1/100` or `loss=0.25`; a program that ends with 0 passes
    too. Programs see TORCHYARD_SMOKE=1. The job has a name of its own, and as many replicas as the real one.
    A job that fails before gives its exit code, one that takes too long 124.

    Examples: yard smoke job.yaml; yard smoke train.py --nodes 2 -- --lr 0.1
    """
    objects = [_prepared(obj) for obj in read_target(target, script, arguments, cluster).objects]
    raise typer.Exit(cluster.run(lambda client: _smoke(client, cluster, objects, timeout)))


def _prepared(obj: Object) -> Object:
    from torchyard.cli.run_script import random_suffix
    from torchyard.core.run.program import set_value
    from torchyard.core.run.rerun import base_name
    from torchyard.core.run.script_job import is_script
    from torchyard.core.run.state import RUNNABLE

    if obj["kind"] not in RUNNABLE:
        return obj
    job = copy.deepcopy(obj)
    if not is_script(job):  # the name of a script's job has a suffix already
        name = base_name(str(job["metadata"].pop("generateName", job["metadata"].get("name", ""))).rstrip("-"))
        job["metadata"]["name"] = f"{name[:40]}-smoke-{random_suffix()}"
    set_value(job, f"{SMOKE}=1")
    return job


async def _smoke(client: Client, cluster: Cluster, objects: list[Object], seconds: float) -> int:
    from torchyard.cli.run_session import RunSession
    from torchyard.cli.screen import create_screen
    from torchyard.cli.step_screen import StepScreen

    screen = StepScreen(create_screen())
    session = RunSession(client, screen, SessionOptions(cluster.namespace, OnInterrupt.delete), cluster.namespace)
    try:
        return await _until_step(session, screen, objects, seconds)
    finally:
        await session.handle_interrupt()
        screen.close()


async def _until_step(session: RunSession, screen: StepScreen, objects: list[Object], seconds: float) -> int:
    started = time.monotonic()
    running = asyncio.ensure_future(session.run(objects))
    stepping = asyncio.ensure_future(screen.step.wait())
    try:
        await asyncio.wait({running, stepping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if stepping.done():
            screen.note(f"smoke test passed: first step after {time.monotonic() - started:.1f} s: {screen.line}")
            return 0
        if running.done():
            code = running.result()
            screen.note("smoke test passed: the program ended" if code == 0 else "smoke test failed")
            return code
        screen.note(f"smoke test failed: no step within {seconds:g} s")
        return TIMED_OUT
    finally:
        for task in (running, stepping):
            task.cancel()
        await asyncio.gather(running, stepping, return_exceptions=True)
