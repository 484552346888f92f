"""The agent of a pod: one worker, whose end is the pod's end. Whoever made the pod decides whether there is another.

A pod that is deleted or preempted gets SIGTERM first: it is handed on to the worker, which leaves at the next step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from torchyard.elastic.errors import ElasticError

SIGNALLED = 128
"""How a shell, and so Kubernetes, tells the signal that ended a program."""


def run(command: Sequence[str]) -> int:
    """Run the worker's command as the pod's only work; the exit code a container would have had."""
    if not command:
        raise ElasticError("NoCommand", "nothing to run", hint="put the program after --, as in: -- python train.py")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.setdefault("TORCHYARD_ELASTIC_MEMORY", tempfile.mkdtemp(prefix="torchyard-memory-", dir=_memory()))
    # A group of its own: the command may be a shell with the program below it.
    worker = subprocess.Popen(list(command), env=environment, start_new_session=True)

    def hand_on(number: int, frame: Any) -> None:
        if worker.poll() is None:
            os.killpg(worker.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, hand_on)
    code = worker.wait()
    if code < 0:
        sys.stderr.write(f"the worker was ended by {signal.Signals(-code).name}\n")
        return SIGNALLED - code
    return code


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  # memory, by its name
