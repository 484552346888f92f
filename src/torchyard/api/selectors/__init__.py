"""Which objects are meant: label selectors (as text and as objects) and field selectors.

A selector is compiled once into a predicate and used for thousands of objects; `equalities` tells a cache which index
can narrow the search first. The grammar and the words of refusal are the real API server's.
"""

from torchyard.api.selectors.fields import ANY_FIELDS, FieldSelector, Term, check_fields, parse_fields
from torchyard.api.selectors.grammar import Requirement
from torchyard.api.selectors.labels import (
    EVERYTHING,
    NOTHING,
    LabelSelector,
    from_map,
    from_object,
    parse_labels,
    validate_object,
)

__all__ = [
    "ANY_FIELDS",
    "EVERYTHING",
    "NOTHING",
    "FieldSelector",
    "LabelSelector",
    "Requirement",
    "Term",
    "check_fields",
    "from_map",
    "from_object",
    "parse_fields",
    "parse_labels",
    "validate_object",
]
