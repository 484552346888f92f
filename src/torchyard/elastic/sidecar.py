"""The coordinator of a job without a master: a child process of one worker, chosen by its environment.

PyTorchJobs with `rdzvBackend: torchyard` and TrainJobs of the elastic runtime work this way. If that worker dies, the
others train on until the world must change, then wait for its replacement; the new coordinator learns their progress
from them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from torchyard.elastic.errors import ElasticError
from torchyard.elastic.job_record import JobRecord, write_record

LEASE = 5.0
"""Pods share machines: one second without a heartbeat means little there."""
HANG_AFTER = 300.0

_threads: list[threading.Thread] = []


def start_sidecar() -> None:
    """Start the job's coordinator if this worker has to run it. Further calls in a process do nothing."""
    port = os.environ.get("TORCHYARD_ELASTIC_SERVE")
    if not port or _threads or not _is_first():
        return
    job_directory = os.environ.get("TORCHYARD_ELASTIC_DIR")
    directory = Path(job_directory) if job_directory else Path(tempfile.mkdtemp(prefix="torchyard-coordinator-"))
    write_record(directory, sidecar_record(os.environ["TORCHYARD_ELASTIC_WORLD"], port))
    command = [sys.executable, "-m", "torchyard.elastic", "coordinator", "--with-parent", str(os.getpid())]
    command += ["--dir", str(directory), "--host", "0.0.0.0", "--port", port]  # noqa: S104  # workers run elsewhere; the token protects the port
    _threads.append(
        threading.Thread(target=_restart_if_killed, args=(command,), name="elastic-coordinator", daemon=True)
    )
    _threads[0].start()


def _is_first() -> bool:
    """Whether this is the first process of the first pod. Pods with the same template differ in their index."""
    return os.environ.get("TORCHYARD_ELASTIC_INDEX", "0") == os.environ.get("LOCAL_RANK", "0") == "0"


def _restart_if_killed(command: list[str]) -> None:
    while subprocess.run(command, check=False).returncode < 0:
        pass


def sidecar_record(world: str, port: str) -> JobRecord:
    """Return the record of a job whose world is MIN:START:MAX workers."""
    try:
        min_workers, start_workers, max_workers = (int(part) for part in world.split(":"))
    except ValueError as error:
        raise ElasticError(
            "BadWorld",
            f"TORCHYARD_ELASTIC_WORLD is {world!r}, not three numbers",
            hint="use MIN:START:MAX, for example 1:2:4",
        ) from error
    return {
        "job": os.environ["TORCHYARD_ELASTIC_JOB"],
        "token": os.environ["TORCHYARD_ELASTIC_TOKEN"],
        "address": f"127.0.0.1:{port}",
        "workers": start_workers,
        "next_worker": 0,
        "lease": LEASE,
        "hang_after": HANG_AFTER,
        "limits": {
            "min_workers": min_workers,
            "max_workers": max_workers,
            "multiple_of": 1,
            # The number of pods decides: a job with more of them has more workers.
            "target_workers": max_workers,
            "start_workers": start_workers,
        },
        "runner": os.getpid(),
    }
