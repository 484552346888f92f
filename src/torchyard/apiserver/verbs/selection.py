"""Which records a list, watch or deletecollection selects: namespace, label selector, field selector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard.api.objects import Object
from torchyard.api.selectors import FieldSelector, LabelSelector, Term, check_fields, parse_fields, parse_labels
from torchyard.api.strategy import Strategy
from torchyard.apiserver.registry.catalog import collection_key
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.watch import Filter


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
    selectable = _selectable(resource.strategy)
    if not fields.everything:
        check_fields(
            fields,
            resource.kind,
            selectable({}),
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
    return Selection(prefix, _filter(labels, fields, selectable))


def _filter(
    labels: LabelSelector, fields: FieldSelector, selectable: Callable[[Object], dict[str, str]]
) -> Filter | None:
    if fields.everything:
        if labels.everything:
            return None
        return lambda record: labels.matches(record.labels)
    if labels.everything:
        return lambda record: fields.matches(record.selectable(selectable))

    def both(record: Record) -> bool:
        return labels.matches(record.labels) and fields.matches(record.selectable(selectable))

    return both


def _selectable(strategy: Strategy) -> Callable[[Object], dict[str, str]]:
    def fields(obj: Object) -> dict[str, str]:
        metadata = obj.get("metadata") or {}
        names = {"metadata.name": metadata.get("name", ""), "metadata.namespace": metadata.get("namespace", "")}
        return names | strategy.selectable(obj)

    return fields
