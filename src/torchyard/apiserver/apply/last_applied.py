"""Migration from client-side to server-side apply: `kubectl.kubernetes.io/last-applied-configuration`.

Upstream honours the annotation only for kubectl's field manager: fields that are still as kubectl applied them
client-side are not a conflict, and the annotation is kept up to date as long as it exists.
"""

from __future__ import annotations

import json

from torchyard.api.objects import Object
from torchyard.api.schema.types import Type
from torchyard.apiserver.apply.compare import compare
from torchyard.apiserver.apply.fieldset import FieldSet, difference
from torchyard.apiserver.apply.to_fieldset import applied_fields
from torchyard.apiserver.apply.validate import schema_mismatch

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"
# The size limit of all annotations of an object together.
MAX_ANNOTATIONS = 256 * 1024


def unchanged_fields(live: Object, api_version: str, type: Type) -> FieldSet:
    """The fields of the live object that equal those in the annotation; empty if it is missing or invalid."""
    try:
        applied = json.loads((live["metadata"].get("annotations") or {}).get(ANNOTATION, ""))
    except ValueError:
        return {}
    if not isinstance(applied, dict) or applied.get("apiVersion") != api_version or schema_mismatch(applied, type):
        return {}
    change = compare(applied, live, type)
    return difference(difference(applied_fields(applied, type), change.set_now), change.removed)


def refresh(result: Object, applied: Object) -> None:
    """Update the annotation of `result` to the applied configuration, if it has one."""
    annotations = result["metadata"].get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return
    metadata = dict(applied.get("metadata") or {})
    if metadata.get("annotations"):
        metadata["annotations"] = {key: text for key, text in metadata["annotations"].items() if key != ANNOTATION}
    text = (
        json.dumps({**applied, "metadata": metadata}, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    )
    updated = {**annotations, ANNOTATION: text}
    if sum(len(key.encode()) + len(value.encode()) for key, value in updated.items()) > MAX_ANNOTATIONS:
        del updated[ANNOTATION]
    result["metadata"] = {**result["metadata"], "annotations": updated}
