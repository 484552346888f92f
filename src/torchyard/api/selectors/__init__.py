"""Label selectors (texts and objects) and field selectors, with upstream's grammar and messages.

A selector is compiled once into a predicate and applied to thousands of objects; a cache uses `equalities` to choose an
index.

Modules in reading order:

- `labels`: compiled label selectors
- `grammar`: the parser of label selectors
- `fields`: field selectors
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
