"""JSON Patch (RFC 6902) as kube-apiserver applies it. The document is not changed; the result may share its parts.

Upstream's library is more lenient than the RFC, and clients rely on that: a negative index counts from the end of a
list, `replace` of a missing member adds it, `copy` of a missing member copies null, a missing `value` is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from torchyard.api.errors import StatusError, bad_request
from torchyard.api.go_format import json_type
from torchyard.api.patch.patch_errors import unprocessable

MAX_OPERATIONS = 10_000
# How many bytes all `copy` operations of one patch may add: the server's limit on a request's body.
MAX_COPIED = 3 * 1024 * 1024

PatchOperation = dict[str, Any]
_is_index = re.compile(r"[+-]?[0-9]{1,18}").fullmatch


class _OperationError(Exception):
    """An operation that cannot be applied to the document."""


def check_operations(operations: Any, *, lenient: bool = False) -> list[PatchOperation]:
    """The operations of a decoded patch; raises a 400 or 413 if they are invalid.

    `lenient` is fieldValidation=Ignore: upstream then decodes into other Go types, whose names are in the messages.
    """
    prefix, patch_type, operation_type = (
        ("json: cannot unmarshal", "jsonpatch.Patch", "jsonpatch.Operation")
        if lenient
        else ("error decoding patch: json: cannot unmarshal", "[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
    )
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise bad_request(f"{prefix} {json_type(operations)} into Go value of type {patch_type}")
    for operation in operations:
        if operation is None:
            continue
        if not isinstance(operation, dict):
            raise bad_request(f"{prefix} {json_type(operation)} into Go value of type {operation_type}")
        for name in () if lenient else ("op", "path", "from"):
            value = operation.get(name)
            if value is not None and not isinstance(value, str):
                raise bad_request(f"{prefix} {json_type(value)} into Go struct field jsonPatchOp.{name} of type string")
    if len(operations) > MAX_OPERATIONS:
        message = (
            f"Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, "
            f"got {len(operations)}"
        )
        raise StatusError(413, "RequestEntityTooLarge", message)
    return [operation or {} for operation in operations]


def unknown_members(operations: list[PatchOperation]) -> list[str]:
    """`unknown field "[0].x"` for each unknown member of an operation."""
    return [
        f'unknown field "[{index}].{name}"'
        for index, operation in enumerate(operations)
        for name in operation
        if name not in ("op", "path", "from", "value")
    ]


def apply_json_patch(document: Any, operations: list[PatchOperation]) -> Any:
    """The document after all operations; 422 when one cannot be applied."""
    document_state = _PatchedDocument(document)
    try:
        for operation in operations:
            document_state.apply_operation(operation)
    except _OperationError:
        raise unprocessable() from None
    return document_state.root


class _PatchedDocument:
    """The state of one application. A container is copied before its first change; the document stays unchanged."""

    def __init__(self, document: Any) -> None:
        self.root = _copy(document)
        self._owned_containers: dict[int, Any] = {id(self.root): self.root}
        self._copied_bytes = 0

    def apply_operation(self, operation: PatchOperation) -> None:
        do = _OPERATIONS.get(operation.get("op", ""))
        if do is None:
            raise _OperationError
        do(self, operation)

    def add(self, operation: PatchOperation) -> None:
        self._add(operation.get("path"), operation.get("value"))

    def remove(self, operation: PatchOperation) -> None:
        self._remove(operation.get("path"))

    def replace(self, operation: PatchOperation) -> None:
        if operation.get("path") == "" and "value" in operation:
            self._replace_all(operation["value"])
            return
        parent, key = self._parent(operation.get("path"))
        value = operation.get("value")
        if isinstance(parent, dict):
            parent[key] = value
        else:
            parent[_position(key, len(parent))] = value

    def _replace_all(self, value: Any) -> None:
        """As upstream, which drops the error: a value that is neither an object nor a list changes nothing."""
        if isinstance(value, dict | list):
            self.root = _copy(value)
            self._owned_containers[id(self.root)] = self.root

    def move(self, operation: PatchOperation) -> None:
        value = self._get(operation.get("from"))
        self._remove(operation.get("from"))
        self._add(operation.get("path"), value)

    def copy(self, operation: PatchOperation) -> None:
        text = orjson.dumps(self._get(operation.get("from")))
        self._copied_bytes += len(text)
        if self._copied_bytes > MAX_COPIED:
            raise _OperationError
        self._add(operation.get("path"), orjson.loads(text))

    def test(self, operation: PatchOperation) -> None:
        if not _json_equal(self._get(operation.get("path")), operation.get("value")):
            raise _OperationError

    def _add(self, path: Any, value: Any) -> None:
        parent, key = self._parent(path)
        if isinstance(parent, dict):
            parent[key] = value
        elif key == "-":
            parent.append(value)
        else:
            parent.insert(_position(key, len(parent) + 1), value)

    def _remove(self, path: Any) -> None:
        parent, key = self._parent(path)
        if isinstance(parent, list):
            del parent[_position(key, len(parent))]
        elif key in parent:
            del parent[key]
        else:
            raise _OperationError

    def _get(self, path: Any) -> Any:
        parent, key = self._parent(path)
        if isinstance(parent, list):
            return parent[_position(key, len(parent))]
        return parent.get(key)

    def _parent(self, path: Any) -> tuple[Any, str]:
        """The container of a path's last step, safe to change, and the last step."""
        if not isinstance(path, str) or "/" not in path:
            raise _OperationError
        _, *steps, last = path.split("/")
        container = self.root
        for step in steps:
            key = _unescaped(step)
            position: Any = _position(key, len(container)) if isinstance(container, list) else key
            try:
                inner = container[position]
            except KeyError:
                raise _OperationError from None
            if not isinstance(inner, dict | list):
                raise _OperationError
            if id(inner) not in self._owned_containers:
                inner = container[position] = _copy(inner)
                self._owned_containers[id(inner)] = inner
            container = inner
        return container, _unescaped(last)


_OPERATIONS: dict[str, Callable[[_PatchedDocument, PatchOperation], None]] = {
    "add": _PatchedDocument.add,
    "remove": _PatchedDocument.remove,
    "replace": _PatchedDocument.replace,
    "move": _PatchedDocument.move,
    "copy": _PatchedDocument.copy,
    "test": _PatchedDocument.test,
}


def _copy(container: Any) -> Any:
    return container.copy() if isinstance(container, dict | list) else container


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _position(key: str, length: int) -> int:
    if not _is_index(key):
        raise _OperationError
    position = int(key)
    if not -length <= position < length:
        raise _OperationError
    return position + length if position < 0 else position


def _json_equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: unlike in Python, 1 is neither true nor 1.0."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_json_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_json_equal, left, right))
    return type(left) is type(right) and bool(left == right)
