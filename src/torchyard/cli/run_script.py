"""The manifest of a script that `yard run` starts."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.cli.workspace import files_of, pack
from torchyard.core.run.script_job import DEFAULT_IMAGE, ScriptJob, job_name, script_objects

# The letters of the suffixes that Kubernetes gives to generated names.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5


def script_manifest(job: ScriptJob) -> list[Object]:
    """The objects that run a script with the files of the current directory, or of its own if it lies elsewhere."""
    script = Path(job.script)
    if not script.is_file():
        raise YardError(f"cannot read {script}: {'it is a directory' if script.is_dir() else 'No such file'}")
    script, here = script.resolve(), Path.cwd()
    directory = here if script.is_relative_to(here) else script.parent
    relative = script.relative_to(directory)
    if relative not in files_of(directory):
        raise YardError(
            f"{job.script} is not among the files of {directory} that are copied",
            hint="remove it from .yardignore, .dockerignore or .gitignore",
        )
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(_SUFFIX))
    named = replace(
        job,
        name=job.name or f"{job_name(job.script)}-{suffix}",
        script=relative.as_posix(),
        image=job.image or DEFAULT_IMAGE,
    )
    return script_objects(named, pack(directory))
