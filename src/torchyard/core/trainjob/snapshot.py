"""The runtime as it was when the job was created, in a ConfigMap: later changes do not change the job."""

from __future__ import annotations

from typing import Any

import yaml

from torchyard.api.errors import YardError
from torchyard.api.objects import Object
from torchyard.api.trainjob import messages, names

_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")


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
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.snapshot_name(job["metadata"]["name"]),
            "namespace": job["metadata"]["namespace"],
            "ownerReferences": [names.owner_reference(job)],
        },
        "data": {names.SNAPSHOT_KEY: yaml.dump(content, Dumper=dumper)},
    }


def runtime_of(snapshot: Object, job: Object) -> Object:
    """The runtime in a snapshot. Raises YardError if it is not a snapshot of this job and its runtime."""
    metadata = snapshot["metadata"]
    if not any(owner["uid"] == job["metadata"]["uid"] for owner in metadata.get("ownerReferences") or ()):
        raise YardError(messages.foreign_snapshot(metadata["name"]))
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        runtime = yaml.load((snapshot.get("data") or {}).get(names.SNAPSHOT_KEY, ""), Loader=loader)  # noqa: S506
    except yaml.YAMLError:
        runtime = None
    reference = names.runtime_reference(job)
    if (
        not isinstance(runtime, dict)
        or runtime.get("kind") != reference["kind"]
        or (runtime.get("metadata") or {}).get("name") != reference["name"]
        or not isinstance(runtime.get("spec"), dict)
    ):
        raise YardError(messages.other_runtime_in_snapshot(metadata["name"]))
    return runtime
