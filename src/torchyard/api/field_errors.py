"""Errors of single fields, with kube-apiserver's messages (upstream's field.Error).

A validator returns a list of errors; an empty list means valid. The field is the path as a user writes it:
`spec.containers[0].name`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from torchyard.api.quoting import quote

# A body of three megabytes can have a hundred thousand errors. No client shows so many; the first ones suffice.
MAX_ERRORS = 1000
# How many items of a list the errors of each item show.
MAX_ITEMS_SHOWN = 100


class FieldError(NamedTuple):
    reason: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message

    def cause(self) -> dict[str, str]:
        cause = {"reason": self.reason, "message": self.message}
        if self.field:
            cause["field"] = self.field
        return cause


def format_value(value: Any) -> str:
    """Format a value for a message: strings as Go quotes them, everything else as JSON."""
    if isinstance(value, str):
        return quote(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _with_detail(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, _with_detail("Required value", detail))


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, _with_detail(f"Invalid value: {format_value(value)}", detail))


def wrong_type(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, _with_detail(f"Invalid value: {format_value(value)}", detail))


def not_supported(field: str, value: Any, allowed: Iterable[str]) -> FieldError:
    values = ", ".join(format_value(supported) for supported in allowed)
    head = f"Unsupported value: {format_value(value)}"
    return FieldError("FieldValueNotSupported", field, _with_detail(head, f"supported values: {values}" * bool(values)))


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, _with_detail("Forbidden", detail))


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {format_value(value)}")


def not_found(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueNotFound", field, f"Not found: {format_value(value)}")


def too_long(field: str, limit: int) -> FieldError:
    plural = "byte" if limit == 1 else "bytes"
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} {plural}")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    plural = "item" if limit == 1 else "items"
    return FieldError("FieldValueTooMany", field, f"Too many: {actual}: must have at most {limit} {plural}")
