"""The agent of a pod: runs one worker, and ends with it. The pod's controller decides whether there is another pod.

A pod that is deleted or preempted gets SIGTERM first. The agent forwards it, and the worker leaves at the next step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from torchyard.elastic.errors import ElasticError, cannot_start

SIGNAL_EXIT_BASE = 128
"""A shell, and so Kubernetes, reports a program that a signal ended with this plus the signal's number."""


def run(command: Sequence[str]) -> int:
    """Run the worker's command, and return the exit code that a container would have."""
    if not command:
        raise ElasticError(
            "NoCommand", "there is no command to run", hint="put the program after --, for example: -- python train.py"
        )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    memory = tempfile.mkdtemp(prefix="torchyard-memory-", dir=_shared_memory_root())
    environment.setdefault("TORCHYARD_ELASTIC_MEMORY", memory)
    # A process group of its own: the command may be a shell with the program below it.
    try:
        worker = subprocess.Popen(list(command), env=environment, start_new_session=True)
    except OSError as error:
        raise cannot_start(command, error) from error

    def forward(number: int, frame: Any) -> None:
        if worker.poll() is None:
            os.killpg(worker.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, forward)
    code = worker.wait()
    if code < 0:
        sys.stderr.write(f"worker ended by a signal: signal={signal.Signals(-code).name}\n")
        return SIGNAL_EXIT_BASE - code
    return code


def _shared_memory_root() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  # shared memory by name
