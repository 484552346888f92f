"""`yard convert FILE`: PyTorchJobs to TrainJobs and back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.api.errors import YardError
from torchyard.cli.options import say
from torchyard.cli.output import Output, OutputOption, Quiet, Record, show_records

if TYPE_CHECKING:
    from torchyard.api.objects import Object
    from torchyard.core.trainjob.convert import Conversion


def convert(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Manifest with PyTorchJobs, or TrainJobs; - reads stdin.")
    ],
    output: OutputOption = Output.table,
    quiet: Quiet = False,
) -> None:
    """Print a PyTorchJob as a TrainJob, or a TrainJob as a PyTorchJob.

    Comments name what has no counterpart. Other objects of the file are printed as they are.

    Example: yard convert pytorchjob.yaml > trainjob.yaml
    """
    from torchyard.api.manifests import read

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise YardError(
            f"cannot read {file}: {error}", hint="name a manifest, or - for stdin", code="NotFound"
        ) from None
    objects = read(text, file)
    if not any(obj.get("kind") in ("PyTorchJob", "TrainJob") for obj in objects):
        raise YardError(
            f"{file} has no PyTorchJob and no TrainJob",
            hint="name a manifest of one of these kinds",
            code="BadManifest",
        )
    conversions, problems = _convert(objects)
    chosen = Output.name if quiet else output
    if chosen in (Output.json, Output.name):
        show_records(_records(conversions), chosen, columns={}, empty="")
    else:
        say(_documents(conversions).rstrip())
    if problems:
        raise YardError(f"not everything in {file} was converted: {'; '.join(problems)}", code="BadManifest")


def _convert(objects: list[Object]) -> tuple[list[Conversion], list[str]]:
    """The converted objects, and why others could not be converted."""
    from torchyard.api.trainjob.names import CLUSTER_RUNTIME_KIND, RUNTIME_KIND
    from torchyard.core.trainjob.convert import Conversion, to_pytorchjob, to_trainjob

    runtimes = [obj for obj in objects if obj["kind"] in (RUNTIME_KIND, CLUSTER_RUNTIME_KIND)]
    has_train_jobs = any(obj["kind"] == "TrainJob" for obj in objects)
    conversions: list[Conversion] = []
    for obj in objects:
        if obj["kind"] == "PyTorchJob":
            conversions.append(to_trainjob(obj))
        elif obj["kind"] == "TrainJob":
            conversions.append(to_pytorchjob(obj, runtimes))
        elif obj not in runtimes or not has_train_jobs:  # otherwise it is a part of the PyTorchJob
            conversions.append(Conversion([obj]))
    problems = [note for conversion in conversions if not conversion.objects for note in conversion.notes[-1:]]
    return conversions, problems


def _documents(conversions: list[Conversion]) -> str:
    import yaml

    documents = []
    for conversion in conversions:
        comments = "".join(f"# {note}\n" for note in conversion.notes)
        texts = [yaml.safe_dump(each, sort_keys=False, width=120) for each in conversion.objects]
        documents.append("---\n" + comments + "---\n".join(texts))
    return "".join(documents)


def _records(conversions: list[Conversion]) -> list[Record]:
    return [
        {"name": f"{obj['kind'].lower()}/{obj['metadata'].get('name', '')}", "object": obj, "notes": conversion.notes}
        for conversion in conversions
        for obj in conversion.objects
    ]
