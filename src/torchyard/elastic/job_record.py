"""The file `job.json` in a job's directory: how its runner, its coordinator and the command line find each other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NotRequired, TypedDict

from torchyard.elastic.errors import ElasticError

JOB_FILE = "job.json"


class LimitsRecord(TypedDict):
    """The fields of `WorldLimits`."""

    min_workers: int
    max_workers: int
    multiple_of: int
    target_workers: int
    start_workers: NotRequired[int]


class JobRecord(TypedDict):
    """The content of `job.json`.

    Attributes:
        job: the name of the job.
        token: the secret that workers, agents and the command line present.
        address: where the coordinator listens; empty while the job does not run.
        workers: how many workers the job began with.
        next_worker: the number of the next worker; numbers are not used twice.
        lease: seconds without a heartbeat after which a worker is expelled.
        hang_after: seconds without progress after which a worker is killed.
        limits: how many workers a world may have.
        runner: the pid of the process that keeps the coordinator running; 0 while the job does not run.
        run: identifies the run that began the job.
        resume: how that run treats earlier checkpoints; see `ResumePolicy`.
    """

    job: str
    token: str
    address: str
    workers: int
    next_worker: int
    lease: float
    hang_after: float
    limits: LimitsRecord
    runner: int
    run: NotRequired[str]
    resume: NotRequired[str]


def has_job(directory: Path) -> bool:
    return (directory / JOB_FILE).exists()


def read_record(directory: Path) -> JobRecord:
    """Return the record of the job in a directory."""
    path = directory / JOB_FILE
    try:
        record: JobRecord = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ElasticError(
            "NoJob", f"there is no job in {directory}", hint="pass the job's directory with --dir"
        ) from error
    except ValueError as error:
        raise ElasticError(
            "BadRecord", f"{path} is not valid JSON: {error}", hint="choose another directory with --dir"
        ) from error
    return record


def write_record(directory: Path, record: JobRecord) -> None:
    """Replace the record of the job in a directory. It contains the token, so only the owner may read it."""
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{JOB_FILE}.new"
    temporary.unlink(missing_ok=True)  # one that is there already may be readable by others
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(record, file, indent=1)
    temporary.replace(directory / JOB_FILE)
