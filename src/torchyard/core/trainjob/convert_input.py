"""Checks of what `convert` is given: a manifest that no server has seen."""

from __future__ import annotations

from typing import Any

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.pytorchjob import validation as pytorchjob
from torchyard.api.pytorchjob.crd import definition_object as pytorchjob_definition
from torchyard.api.trainjob import validation as trainjob
from torchyard.api.trainjob.crd import definition_object as trainjob_definition
from torchyard.api.trainjob.runtime_crd import definition_objects as runtime_definitions
from torchyard.core.trainjob.schema_check import object_schema, schema_problems


def checked_pytorchjob(manifest: Object) -> Object:
    """The job without nulls. Raises YardError if it is not valid."""
    job = _with_schema("PyTorchJob", manifest, pytorchjob_definition())
    _refuse("PyTorchJob", job, [str(err) for err in pytorchjob.validate(named(job))])
    return job


def checked_trainjob(manifest: Object) -> Object:
    """The job without nulls. `check_with_runtime` does the rest."""
    job = _with_schema("TrainJob", manifest, trainjob_definition())
    metadata = job["metadata"]
    if not metadata.get("name") and not metadata.get("generateName"):
        _refuse("TrainJob", job, ["metadata.name is required; or set metadata.generateName"])
    return job


def checked_runtime(manifest: Object) -> Object:
    runtime = _with_schema(manifest["kind"], manifest, runtime_definitions()[0])
    _refuse(manifest["kind"], runtime, [str(err) for err in trainjob.validate_runtime(runtime)])
    return runtime


def check_with_runtime(job: Object, runtime: Object) -> None:
    _refuse("TrainJob", job, [str(err) for err in trainjob.validate(job, runtime)])


def check_new_pytorchjob(job: Object) -> None:
    """A TrainJob may have names and numbers that a PyTorchJob may not have."""
    _refuse("the resulting PyTorchJob", job, [str(err) for err in pytorchjob.validate(named(job))])


def check_new_trainjob(job: Object, runtime: Object) -> None:
    job = named(job)
    job = {**job, "metadata": {"namespace": "", **job["metadata"]}}
    _refuse("the resulting TrainJob", job, [str(err) for err in trainjob.validate(job, runtime)])


def named(job: Object) -> Object:
    """With a name; that of `generateName` without its end if the server would choose one."""
    metadata = job["metadata"]
    if metadata.get("name") or not metadata.get("generateName"):
        return job
    return {**job, "metadata": {**metadata, "name": metadata["generateName"].rstrip("-.")}}


def _with_schema(kind: str, manifest: Object, definition: Object) -> Object:
    obj: Object = _without_nulls(manifest)
    obj.setdefault("metadata", {})
    problems = list(schema_problems(obj, object_schema(definition)))
    if not problems and not obj.get("spec"):
        problems = ["spec is required"]
    _refuse(kind, obj, problems)
    return obj


def _refuse(kind: str, obj: Object, problems: list[str]) -> None:
    if problems:
        metadata = obj["metadata"] if isinstance(obj["metadata"], dict) else {}
        name = metadata.get("name") or metadata.get("generateName") or "without a name"
        raise YardError(f"{kind} {name} is not valid: {'; '.join(problems)}", hint="correct the manifest")


def _without_nulls(value: Any) -> Any:
    """A field with null is absent, as in kubectl."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
