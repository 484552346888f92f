"""`yard convert FILE`: PyTorchJobs to TrainJobs and back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import say

if TYPE_CHECKING:
    from torchyard.api.objects import Object


def convert(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Manifest with PyTorchJobs, or TrainJobs; - reads stdin.")
    ],
) -> None:
    """Print a PyTorchJob as a TrainJob, or a TrainJob as a PyTorchJob.

    Comments name what has no counterpart. Other objects of the file are printed as they are.

    Example: yard convert pytorchjob.yaml > trainjob.yaml
    """
    from torchyard.api.manifests import read

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise YardError(f"cannot read {file}: {error}", hint="name a manifest, or - for stdin") from None
    objects = read(text, file)
    if not any(obj.get("kind") in ("PyTorchJob", "TrainJob") for obj in objects):
        raise YardError(f"{file} has no PyTorchJob and no TrainJob", hint="name a manifest of one of these kinds")
    documents, problems = _documents(objects)
    say("".join(documents).rstrip())
    if problems:
        raise YardError(f"not everything in {file} was converted: {'; '.join(problems)}")


def _documents(objects: list[Object]) -> tuple[list[str], list[str]]:
    """The documents to print, and why objects could not be converted."""
    import yaml

    from torchyard.api.trainjob.names import CLUSTER_RUNTIME_KIND, RUNTIME_KIND
    from torchyard.core.trainjob.convert import Conversion, to_pytorchjob, to_trainjob

    runtimes = [obj for obj in objects if obj["kind"] in (RUNTIME_KIND, CLUSTER_RUNTIME_KIND)]
    has_train_jobs = any(obj["kind"] == "TrainJob" for obj in objects)
    documents, problems = [], []
    for obj in objects:
        if obj["kind"] == "PyTorchJob":
            conversion = to_trainjob(obj)
        elif obj["kind"] == "TrainJob":
            conversion = to_pytorchjob(obj, runtimes)
        elif obj in runtimes and has_train_jobs:
            continue  # a part of the PyTorchJob
        else:
            conversion = Conversion([obj])
        if not conversion.objects:
            problems += conversion.notes[-1:]
        comments = "".join(f"# {note}\n" for note in conversion.notes)
        texts = [yaml.safe_dump(each, sort_keys=False, width=120) for each in conversion.objects]
        documents.append("---\n" + comments + "---\n".join(texts))
    return documents, problems
