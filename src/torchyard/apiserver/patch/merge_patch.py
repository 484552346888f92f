"""JSON Merge Patch (RFC 7386) as kube-apiserver applies it. Inputs are not changed; results may share their parts."""

from __future__ import annotations

from typing import Any


def apply_merge_patch(target: Any, patch: Any, *, has_nulls: bool = True) -> Any:
    """`target` with `patch` merged in: a null deletes, objects merge, everything else replaces.

    `has_nulls`: whether the patch may contain nulls; most have none and need no search.
    """
    if not isinstance(target, dict):
        return _without_null_fields(patch) if has_nulls else patch
    if not isinstance(patch, dict):
        return patch
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value, has_nulls=has_nulls)
    return result


def _without_null_fields(value: Any) -> Any:
    # Upstream's library also removes nulls inside the lists of a new value; the RFC leaves lists as they are.
    if isinstance(value, dict):
        return {key: _without_null_fields(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_null_fields(inner) for inner in value]
    return value
