"""ConversionReview: what a conversion webhook is asked, and whether its answer is one. Messages are upstream's."""

from __future__ import annotations

from typing import Any

import orjson

from torchyard.api.names import label_value_problems, qualified_name_problems
from torchyard.api.objects import Object
from torchyard.api.quoting import quote

GROUP = "apiextensions.k8s.io"
KIND = "ConversionReview"
VERSIONS = ("v1", "v1beta1")
_GO_TYPES = {bool: "bool", int: "int64", float: "float64", list: "[]interface {}", dict: "map[string]interface {}"}
_NOT_AN_OBJECT = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


class ConversionError(Exception):
    """A conversion that failed; the message is the client's."""


def review_version(webhook: Object) -> str:
    """The first version of ConversionReview that both sides know; validation ensures that there is one."""
    return next(str(version) for version in webhook.get("conversionReviewVersions") or () if version in VERSIONS)


def review(version: str, uid: str, desired: str, objects: list[Object]) -> bytes:
    return orjson.dumps(
        {
            "kind": KIND,
            "apiVersion": f"{GROUP}/{version}",
            "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
            "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
        }
    )


def converted_objects(body: bytes, version: str, uid: str, desired: str, objects: list[Object]) -> list[Object]:
    """The objects of an answer, with the metadata that a webhook cannot change. Raises ConversionError."""
    source = f"{objects[0].get('apiVersion')}, Kind={objects[0].get('kind')}"
    try:
        converted = _response_objects(body, version, uid)
    except ConversionError as error:
        raise ConversionError(f"conversion webhook for {source} failed: {error}") from None
    if len(converted) != len(objects):
        raise ConversionError(
            f"conversion webhook for {source} returned {len(converted)} objects, expected {len(objects)}"
        )
    for index, (obj, original) in enumerate(zip(converted, objects, strict=True)):
        _check_type(obj, original, desired, f"conversion webhook for {source} returned invalid object at index {index}")
        _check_identity(obj, original, f"conversion webhook for {source} returned invalid object")
        _restore_metadata(obj, original, f"conversion webhook for {source} returned invalid metadata")
    return converted


def _response_objects(body: bytes, version: str, uid: str) -> list[Object]:
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError:
        review = ""
    if not isinstance(review, dict):
        kind = "string" if isinstance(review, str) else _GO_TYPES.get(type(review), "null")
        raise ConversionError(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type"
            f" {_NOT_AN_OBJECT}"
        )
    kind, api_version = review.get("kind") or "", review.get("apiVersion") or ""
    if (kind, api_version) != (KIND, f"{GROUP}/{version}"):
        known = kind == KIND and api_version in [f"{GROUP}/{name}" for name in VERSIONS]
        if known:
            raise ConversionError(
                f"expected webhook response of {GROUP}/{version}, Kind={KIND}, got {api_version}, Kind={kind}"
            )
        raise ConversionError(
            f"no kind {quote(str(kind))} is registered for version {quote(str(api_version))}"
            ' in scheme "pkg/runtime/scheme.go:110"'
        )
    response = review.get("response")
    if not isinstance(response, dict):
        raise ConversionError("no response provided")
    if response.get("uid") != uid:
        raise ConversionError(f"expected response.uid={quote(uid)}, got {quote(str(response.get('uid') or ''))}")
    result = response.get("result")
    status = (result.get("status") if isinstance(result, dict) else "") or ""
    if status != "Success":
        message = result.get("message") if isinstance(result, dict) else ""
        raise ConversionError(str(message or f"response.result.status was '{status}', not 'Success'"))
    objects = response.get("convertedObjects")
    return objects if isinstance(objects, list) else []


def _check_type(obj: Any, original: Object, desired: str, prefix: str) -> None:
    if obj is None:
        raise ConversionError("unexpected end of JSON input")
    if not isinstance(obj, dict):
        kind = {str: "string", bool: "bool", list: "array"}.get(type(obj), "number")
        raise ConversionError(f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
    received = str(obj.get("apiVersion") or "")
    if received != desired:
        raise ConversionError(f"{prefix}: invalid groupVersion (expected {desired}, received {received})")
    if obj.get("kind") != original.get("kind"):
        kinds = f"expected {original.get('kind')}, received {obj.get('kind') or ''}"
        raise ConversionError(f"{prefix}: invalid kind ({kinds})")


def _check_identity(obj: Object, original: Object, prefix: str) -> None:
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for field, label in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        expected, received = original["metadata"].get(field) or "", metadata.get(field) or ""
        if expected != received:
            raise ConversionError(f"{prefix}: must have the same {label}: {expected} != {received}")


def _restore_metadata(obj: Object, original: Object, prefix: str) -> None:
    """A webhook changes labels and annotations; the rest of the metadata stays."""
    metadata = dict(original["metadata"])
    for field in ("labels", "annotations"):
        values = obj["metadata"].get(field)
        metadata.pop(field, None)
        if not values:
            continue
        if not isinstance(values, dict):
            go_type = _GO_TYPES.get(type(values), "string")
            raise ConversionError(f"{prefix}: metadata.{field} must be a map, but is {go_type} in converted object")
        for key, value in values.items():
            if not isinstance(value, str):
                go_type = _GO_TYPES.get(type(value), "<nil>")
                raise ConversionError(
                    f"{prefix}: metadata.{field}[{key}] must be a string, but is {go_type} in converted object"
                )
        _check_keys(field, values, prefix)
        metadata[field] = values
    obj["metadata"] = metadata


def _check_keys(field: str, values: dict[str, str], prefix: str) -> None:
    for key, value in values.items():
        name, problems = key, qualified_name_problems(key.lower() if field == "annotations" else key)
        if not problems and field == "labels":
            name, problems = value, label_value_problems(value)
        if problems:
            raise ConversionError(f"{prefix}: metadata.{field}: Invalid value: {quote(name)}: {problems[0]}")
