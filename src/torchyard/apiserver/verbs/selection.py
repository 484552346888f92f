"""Which records a list, watch or deletecollection selects: namespace, label selector, field selector."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from torchyard.api.objects import Object
from torchyard.api.selectors import FieldSelector, LabelSelector, Term, check_fields, parse_fields, parse_labels
from torchyard.api.selectors.grammar import DOES_NOT_EXIST, NOT_EQUALS, NOT_IN
from torchyard.api.strategy import Strategy
from torchyard.apiserver.registry.catalog import collection_key
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.watch import Filter

# Fields whose value is a string of the object: without that string in its bytes it need not be decoded. A node follows
# its pods in this way, and most pods are not its own. In custom objects other fields may be numbers.
_METADATA_FIELDS = frozenset(("metadata.name", "metadata.namespace"))
_STRING_FIELDS = _METADATA_FIELDS | {"spec.nodeName"}
_FULFILLED_WITHOUT_LABEL = (NOT_EQUALS, NOT_IN, DOES_NOT_EXIST)


@dataclass(frozen=True, slots=True)
class Selection:
    """`prefix` narrows by namespace and name, `matches` by the rest (None: everything below the prefix)."""

    prefix: str
    matches: Filter | None


def select(ctx: RequestContext) -> Selection:
    """Read the selectors of a request; 400 for an invalid one."""
    resource = ctx.resource
    labels = parse_labels(ctx.query.get("labelSelector"))
    fields = parse_fields(ctx.query.get("fieldSelector"))
    if not fields.everything:
        check_fields(
            fields,
            resource.kind,
            selectable_fields(resource.strategy, {}),
            custom=resource.custom is not None,
            namespaced=resource.namespaced,
        )
    if ctx.name:  # the deprecated form: a watch of one object by its path
        fields = FieldSelector((*fields.terms, Term("metadata.name", "=", ctx.name)))
    prefix = collection_key(resource)
    if resource.namespaced:
        namespace = ctx.namespace or fields.equalities.get("metadata.namespace", "")
        if namespace:
            prefix = f"{prefix}{namespace}/{fields.equalities.get('metadata.name', '')}"
    else:
        prefix = f"{prefix}/{fields.equalities.get('metadata.name', '')}"
    string_fields = _METADATA_FIELDS if resource.custom is not None else _STRING_FIELDS
    return Selection(prefix, _filter(labels, fields, resource.strategy, string_fields))


def _filter(
    labels: LabelSelector,
    fields: FieldSelector,
    strategy: Strategy,
    string_fields: frozenset[str],
) -> Filter | None:
    matches_labels = _label_filter(labels)
    if fields.everything:
        return matches_labels
    texts = tuple(
        orjson.dumps(value)
        for field, value in fields.equalities.items()
        if value and value.isascii() and field in string_fields
    )

    def matches_fields(record: Record) -> bool:
        if not all(text in record.data for text in texts):
            return False
        return fields.matches(record.selectable(strategy, selectable_fields))

    if matches_labels is None:
        return matches_fields
    return lambda record: matches_labels(record) and matches_fields(record)


def _label_filter(labels: LabelSelector) -> Filter | None:
    """An object without the key of a required label in its bytes need not be decoded either."""
    if labels.everything:
        return None
    keys = tuple(
        orjson.dumps(requirement.key)
        for requirement in labels.requirements
        if requirement.operator not in _FULFILLED_WITHOUT_LABEL
    )
    if len(keys) == 1:  # what informers use; every write of the resource pays for it
        (required,) = keys
        return lambda record: required in record.data and labels.matches(record.labels)
    return lambda record: all(key in record.data for key in keys) and labels.matches(record.labels)


def selectable_fields(strategy: Strategy, obj: Object) -> dict[str, str]:
    """The fields of an object that a selector may name, and their values."""
    metadata = obj.get("metadata") or {}
    names = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
    return names | strategy.selectable(obj)
