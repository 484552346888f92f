"""What a manifest changes in a job that exists, and whether its pods can go on with it."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import yaml

from torchyard.api.objects import Object
from torchyard.core.run.state import run_state

# The controller of PyTorchJobs acts on these while the pods run. Everything else is read when a pod is created.
_IN_PLACE = re.compile(
    r"pytorchReplicaSpecs\.[^.]+\.replicas|runPolicy\..*|elasticPolicy\.(?:minReplicas|maxReplicas|metrics\b.*)"
)


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The paths of the leaves that differ between two JSON values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from changed_paths(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changed_paths(before, after, f"{path}[{index}]")
    elif old != new:
        yield path


def needs_new_pods(existing: Object, changed: Object) -> bool:
    """Whether the pods of a job that runs keep what `changed` replaces.

    The server itself refuses such a change of a Job or a Pod. A suspended job has no pods.
    """
    if existing["kind"] != "PyTorchJob" or run_state(existing).state == "Suspended":
        return False
    return any(not _IN_PLACE.fullmatch(path) for path in changed_paths(existing["spec"], changed["spec"]))


def overlay(existing: Any, manifest: Any) -> Any:
    """The existing value with everything that a manifest sets. Lists are replaced, as for a merge patch."""
    if isinstance(existing, dict) and isinstance(manifest, dict):
        return existing | {key: overlay(existing.get(key), value) for key, value in manifest.items()}
    if isinstance(existing, list) and isinstance(manifest, list) and len(existing) == len(manifest):
        return [overlay(before, after) for before, after in zip(existing, manifest, strict=True)]
    return manifest


def content_diff(existing: Object, changed: Object) -> str:
    """A unified diff of two objects as YAML, without their metadata and status; empty if they are equal."""
    before, after = (yaml.safe_dump(_content(obj), sort_keys=True).splitlines() for obj in (existing, changed))
    return "\n".join(difflib.unified_diff(before, after, "on the cluster", "in the manifest", lineterm=""))


def _content(obj: Object) -> Object:
    content = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata", "status")}
    if content.get("binaryData"):  # nobody can read it
        digests = {key: _digest(str(value)) for key, value in content["binaryData"].items()}
        content["binaryData"] = digests
    return content


def _digest(value: str) -> str:
    return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"
