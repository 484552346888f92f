"""The runtime as it was when the job was created, in a ConfigMap: later changes do not change the job.

Users can edit a ConfigMap, so that what is read from it is checked as the server checks a runtime.
"""

from __future__ import annotations

from typing import Any

import orjson
import yaml

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.trainjob import messages, names
from torchyard.api.trainjob.runtime_crd import definition_objects
from torchyard.core.trainjob.schema_check import object_schema, schema_problems

_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")
_MAX_DEPTH = 128


def make_snapshot(job: Object, runtime: Object) -> Object:
    """The ConfigMap. Unlike upstream's it leaves out the fields that the server manages."""
    reference = names.runtime_reference(job)
    metadata = {key: value for key, value in runtime["metadata"].items() if key not in _SERVER_FIELDS}
    content = {
        "apiVersion": names.API_VERSION,
        "kind": reference["kind"],
        "metadata": metadata,
        "spec": runtime["spec"],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.snapshot_name(job["metadata"]["name"]),
            "namespace": job["metadata"]["namespace"],
            "labels": {names.SNAPSHOT_LABEL: "true"},
            "ownerReferences": [names.owner_reference(job)],
        },
        "data": {names.SNAPSHOT_KEY: orjson.dumps(content).decode()},
    }


def runtime_of(snapshot: Object, job: Object) -> Object:
    """The runtime in a snapshot. Raises YardError if it is not a snapshot of this job and its runtime."""
    metadata = snapshot["metadata"]
    if not any(owner["uid"] == job["metadata"]["uid"] for owner in metadata.get("ownerReferences") or ()):
        raise YardError(messages.foreign_snapshot(metadata["name"]))
    runtime = _parse((snapshot.get("data") or {}).get(names.SNAPSHOT_KEY, ""), metadata["name"])
    reference = names.runtime_reference(job)
    if (
        not isinstance(runtime, dict)
        or runtime.get("kind") != reference["kind"]
        or not isinstance(runtime.get("metadata"), dict)
        or runtime["metadata"].get("name") != reference["name"]
        or not isinstance(runtime.get("spec"), dict)
    ):
        raise YardError(messages.other_runtime_in_snapshot(metadata["name"]))
    if problem := next(schema_problems(runtime, object_schema(definition_objects()[0])), ""):
        raise YardError(messages.bad_snapshot(metadata["name"], problem))
    return runtime


def _parse(text: str, name: str) -> Any:
    """JSON, or YAML as upstream writes it. An alias of YAML can stand for any amount of content, so there are none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    depth = 0
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):
                raise YardError(messages.bad_snapshot(name, "YAML aliases are not allowed"))
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _MAX_DEPTH:
                raise YardError(messages.bad_snapshot(name, f"it is nested deeper than {_MAX_DEPTH} levels"))
        return yaml.load(text, Loader=loader)  # noqa: S506
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise YardError(messages.bad_snapshot(name, f"it is neither JSON nor YAML: {error}")) from None
