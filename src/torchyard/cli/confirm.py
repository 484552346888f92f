"""The plan of a run on a terminal, and the question whether to carry it out."""

from __future__ import annotations

import signal
import sys

from torchyard.api.objects import Object
from torchyard.cli.apply import Plan, check, locate, plan
from torchyard.cli.options import say
from torchyard.cli.output import table_lines
from torchyard.cli.printable import mask_unprintable
from torchyard.core.run.plan_text import describe_job
from torchyard.core.run.script_job import is_archive
from torchyard.core.run.state import RUNNABLE
from torchyard.kube.client import Client
from torchyard.kube.job_lookup import qualified_name

_BASE64 = 4 / 3


async def confirm(client: Client, objects: list[Object], namespace: str, *, replace: bool) -> bool:
    """Show what a run changes, and ask. A plan that cannot be carried out raises YardError."""
    for obj in objects:
        if not is_archive(obj):
            planned = await plan(client, await locate(client, obj, namespace), replace=replace)
            if obj["kind"] in RUNNABLE:
                await check(client, planned)
            _show(planned, obj)
    packed = sum(len(part) for obj in objects if is_archive(obj) for part in obj["binaryData"].values())
    if packed:
        say(f"files of this folder: {_size(packed / _BASE64)} packed")
    sys.stdout.write("Continue? [Y/n] ")
    sys.stdout.flush()
    answer = _read_line()
    return bool(answer) and answer.strip().lower() in ("", "y", "yes")


def _read_line() -> str:
    """A line of the terminal, or KeyboardInterrupt. The handler of the event loop would only act after the line."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, handler)


def _show(planned: Plan, obj: Object) -> None:
    metadata = {"name": obj["metadata"].get("generateName", ""), **obj["metadata"]}
    name = qualified_name(planned.target.gvr, {**obj, "metadata": metadata})
    space = f" in namespace {planned.target.namespace}" if planned.target.namespace else ""
    _say_printable(f"{name}{space} would be {planned.action}")
    if planned.diff:
        _say_printable(*planned.diff.split("\n"))
    if obj["kind"] in RUNNABLE and planned.action in ("created", "replaced"):
        _say_printable(*table_lines([[f"  {key}", value] for key, value in describe_job(obj)] or [[""]]))


def _say_printable(*lines: str) -> None:
    """An escape sequence of a manifest could change what is shown and confirmed."""
    for line in lines:
        say(mask_unprintable(line))


def _size(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(count, 1) / 1e3:.1f} kB"
