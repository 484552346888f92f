"""The coordinator of a job without a master of its own: kept beside one worker, named in its environment.

PyTorchJobs with `rdzvBackend: torchyard` work this way. If that worker dies, the others train on until the world must
change, then wait for its successor; the new coordinator learns from them where they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path

from torchyard.elastic.coordinator.membership import WorldLimits
from torchyard.elastic.errors import ElasticError
from torchyard.elastic.run import write_record

LEASE = 5.0
"""Pods share machines: a second of silence means little there."""

_begun: list[threading.Thread] = []


def serve_beside() -> None:
    """Start the job's coordinator if this worker is the one that keeps it; once in a process."""
    port = os.environ.get("TORCHYARD_ELASTIC_SERVE")
    if not port or _begun:
        return
    given = os.environ.get("TORCHYARD_ELASTIC_DIR")
    directory = Path(given) if given else Path(tempfile.mkdtemp(prefix="torchyard-coordinator-"))
    write_record(directory, record(os.environ["TORCHYARD_ELASTIC_WORLD"], port))
    command = [sys.executable, "-m", "torchyard.elastic", "coordinator", "--with-parent", "--dir", str(directory)]
    command += ["--host", "0.0.0.0", "--port", port]  # noqa: S104  # workers are elsewhere; the token keeps others out
    _begun.append(threading.Thread(target=_keep, args=(command,), name="elastic-coordinator", daemon=True))
    _begun[0].start()


def _keep(command: list[str]) -> None:
    """Start it again until it has ended by itself."""
    while subprocess.run(command, check=False).returncode < 0:
        pass


def record(world: str, port: str) -> dict[str, object]:
    """`world` is MIN:WANTED:MAX."""
    try:
        least, want, most = (int(part) for part in world.split(":"))
    except ValueError as error:
        raise ElasticError(
            "BadWorld", f"TORCHYARD_ELASTIC_WORLD is {world!r}", hint="give MIN:WANTED:MAX, as in 1:2:4"
        ) from error
    return {
        "job": os.environ["TORCHYARD_ELASTIC_JOB"],
        "token": os.environ["TORCHYARD_ELASTIC_TOKEN"],
        "address": f"127.0.0.1:{port}",
        "lease": LEASE,
        "hang_after": 300.0,
        "limits": asdict(WorldLimits(least, most, 1, want)),
        "runner": os.getpid(),
    }
