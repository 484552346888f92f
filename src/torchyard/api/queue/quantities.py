"""Quantities of resources, with error messages that say what to write instead."""

from __future__ import annotations

from torchyard.api import compute_resources, field_errors, quantity
from torchyard.api import names as any_names
from torchyard.api.field_errors import FieldError
from torchyard.api.quantity import Quantity, QuantityError

# Units that are common elsewhere, and the Kubernetes suffix for each.
_UNITS = {"KB": "k", "MB": "M", "GB": "G", "TB": "T", "KIB": "Ki", "MIB": "Mi", "GIB": "Gi", "TIB": "Ti", "B": ""}


def parse_quantity(resource: str, text: str | int, field: str, errs: list[FieldError]) -> Quantity | None:
    """The quantity of a resource; None, with an error that says what to write instead, if it is not valid."""
    try:
        if not is_plain(text):
            raise QuantityError(str(text))
        amount = quantity.parse(text)
    except QuantityError:
        errs.append(field_errors.invalid(field, text, f"is not a valid quantity; {_suggestion(resource, str(text))}"))
        return None
    if amount.nano < 0:
        errs.append(field_errors.invalid(field, text, any_names.NOT_NEGATIVE))
        return None
    if not amount.whole and compute_resources.is_integer_resource(resource):
        errs.append(
            field_errors.invalid(
                field, text, f"must be an integer, because {resource} cannot be divided; use {amount.value}"
            )
        )
        return None
    return amount


def is_plain(text: object) -> bool:
    """Whether Kueue's schema takes it for a quantity: no fraction of a JSON number, no space."""
    return isinstance(text, int) or (isinstance(text, str) and text == text.strip())


def _suggestion(resource: str, text: str) -> str:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text[len(digits) :].strip().upper()
    if digits and unit in _UNITS:
        return f"use {digits.strip()}{_UNITS[unit]}"
    examples = {"cpu": "4 or 500m", "memory": "64Gi"}
    return f"use for example {examples.get(resource, '8')}"
