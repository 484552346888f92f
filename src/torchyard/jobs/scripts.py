"""The manifest of a script or a function that `yard run` or the SDK starts."""

from __future__ import annotations

import re
import secrets
import sys
from dataclasses import replace
from pathlib import Path

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.core.run.requirements import is_package
from torchyard.core.run.script_command import REQUIREMENTS
from torchyard.core.run.script_job import DEFAULT_IMAGE, ScriptJob, job_name, script_objects
from torchyard.jobs.dependencies import (
    PROJECT,
    check_python,
    find_python,
    find_requirements,
    install,
    is_installed,
)
from torchyard.jobs.function_source import ENTRY, Function, function_files
from torchyard.jobs.local_plane import local_plane
from torchyard.jobs.target import Target
from torchyard.jobs.text_files import read_text
from torchyard.jobs.workspace import files_of, pack
from torchyard.yard.python_choice import find_chosen

# The letters of the suffixes that Kubernetes gives to generated names.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_MANIFESTS = (".yaml", ".yml", ".json")
SOURCES = "src"


def is_script_target(target: str) -> bool:
    """Whether a target is a script or `module:function`, and not a manifest."""
    return target.endswith(".py") or (_FUNCTION.fullmatch(target) is not None and not target.endswith(_MANIFESTS))


def random_suffix() -> str:
    """A suffix such as Kubernetes gives to generated names."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_SUFFIX))


def script_manifest(
    job: ScriptJob, cluster: Target | None = None, *, dependencies: bool = True, may_install: bool = True
) -> list[Object]:
    """The objects that run a script with the files of the current directory, or of its own if it lies elsewhere."""
    return script_objects(*prepare_script(job, cluster, dependencies=dependencies, may_install=may_install))


def prepare_script(
    job: ScriptJob, cluster: Target | None = None, *, dependencies: bool = True, may_install: bool = True
) -> tuple[ScriptJob, bytes]:
    """The job with a name, an image, its packages and the path of the script in its packed folder.

    Without `may_install`, packages that are not installed yet are only named, for a command that changes nothing.
    """
    directory, relative = _locate(job.script)
    if relative not in files_of(directory):
        raise YardError(
            f"{job.script} is not among the files of {directory} that are copied",
            hint="remove it from .yardignore, .dockerignore or .gitignore",
            code="NotFound",
        )
    requirements = find_requirements(directory / relative, directory) if dependencies else []
    version = find_python(directory / relative, directory) if dependencies else ""
    named = _named(job, job.script if _is_function(job.script) else relative.as_posix())
    named = replace(named, sources=_find_sources(directory))
    return _pack(named, cluster, directory, requirements, {}, version=version, may_install=may_install)


def prepare_function(
    job: ScriptJob, function: Function, cluster: Target | None = None, *, dependencies: bool = True
) -> tuple[ScriptJob, bytes]:
    """The job that calls a function, with the files of the current directory."""
    directory = Path.cwd()
    requirements = find_requirements(None, directory) if dependencies else []
    version = find_python(None, directory) if dependencies else ""
    named = _named(replace(job, name=job.name or f"{job_name(function.__name__)}-{random_suffix()}"), ENTRY)
    named = replace(named, sources=_find_sources(directory))
    return _pack(named, cluster, directory, requirements, function_files(function), version=version)


def _is_function(target: str) -> bool:
    return not target.endswith(".py")


def _find_sources(directory: Path) -> str | None:
    """The folder with the packages of a project, which programs import as if the project was installed."""
    if not (directory / PROJECT).is_file() or not is_package(read_text(directory / PROJECT)):
        return None
    return SOURCES if (directory / SOURCES).is_dir() else "."


def _named(job: ScriptJob, script: str) -> ScriptJob:
    name = job.name or f"{job_name(job.script)}-{random_suffix()}"
    return replace(job, name=name, script=script, image=job.image or DEFAULT_IMAGE)


def _pack(
    job: ScriptJob,
    cluster: Target | None,
    directory: Path,
    requirements: list[str],
    extra: dict[str, str],
    *,
    version: str,
    may_install: bool = True,
) -> tuple[ScriptJob, bytes]:
    """The folder as an archive. On this machine's plane its packages are installed now, elsewhere by the pods."""
    settings = local_plane(cluster) if cluster is not None and (requirements or version) else None
    if settings is not None and job.image == DEFAULT_IMAGE:
        python = find_chosen(settings)
        check_python(version, python)
        if requirements and (may_install or is_installed(requirements, python, directory)):
            packages = install(requirements, python, directory)
            return replace(job, packages=str(packages) if packages else ""), pack(directory, extra)
        if requirements:
            sys.stderr.write(f"packages that a run would install: {', '.join(requirements)}\n")
    if requirements:
        extra = {**extra, REQUIREMENTS: "\n".join(requirements) + "\n"}
    return job, pack(directory, extra)


def _locate(target: str) -> tuple[Path, Path]:
    """The folder of a script or a module, and its path in it."""
    here = Path.cwd()
    if _is_function(target):
        module = target.rpartition(":")[0]
        path = Path(*module.split("."))
        places = [path] if _find_sources(here) in (None, ".") else [SOURCES / path, path]
        for candidate in [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]:
            if (here / candidate).is_file():
                return here, candidate
        raise YardError(f"there is no module {module} in {here}", hint="run it from its folder", code="NotFound")
    script = Path(target)
    if not script.is_file():
        reason = "it is a directory" if script.is_dir() else "No such file"
        raise YardError(f"cannot read {script}: {reason}", code="NotFound")
    script = script.resolve()
    directory = here if script.is_relative_to(here) else script.parent
    return directory, script.relative_to(directory)
