"""The verdict of the pure functions on a case: the steps of the server's verbs, without the server."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

from tests.apiserver.crd import cases

from torchyard.api import errors
from torchyard.api.field_errors import FieldError
from torchyard.api.group_version import GroupVersionKind
from torchyard.api.names import validate_metadata
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.schema.builtin import type_of
from torchyard.api.schema.decode import decode
from torchyard.apiserver.crd.definition.status import accept_names
from torchyard.apiserver.crd.definition.strategy import DefinitionStrategy
from torchyard.apiserver.crd.resource import CustomStrategy, resources_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_CRD = GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


class Rejected(Exception):
    def __init__(self, code: int, reason: str, message: str, causes: list[Object]) -> None:
        super().__init__(message)
        self.verdict = cases.rejected(code, reason, message, causes)


def verdict(name: str, case: Object) -> Object:
    try:
        crd = establish(cases.definition(name, case))
    except Rejected as rejection:
        return {"definition": rejection.verdict}
    result: Object = {"definition": cases.established(crd)}
    writes = case.get("objects") or []
    if writes:
        loose = establish(cases.definition(name, case, loose=True)) if "loose" in case else None
        result["objects"] = [_written(crd, loose, write) for write in writes]
    return result


def establish(crd: Object) -> Object:
    """A definition as the server stores it."""
    kind = type_of(_CRD)
    assert kind is not None
    crd, _ = decode(copy.deepcopy(crd), kind)
    strategy = DefinitionStrategy()
    strategy.default(crd)
    strategy.prepare_create(crd)
    _check(validate_metadata(crd["metadata"], namespaced=False) + strategy.validate(crd))
    accept_names(crd, [], NOW)
    return crd


def serve(crd: Object) -> Resource:
    return resources_of(crd)[0]


def _check(errs: list[FieldError]) -> None:
    if errs:
        raise Rejected(422, "Invalid", "", [error.cause() for error in errs])


def _written(crd: Object, loose: Object | None, write: Object) -> list[Object]:
    results: list[Object] = []
    stored: Object | None = None
    for verb, content in cases.steps(write):
        definition = loose if loose is not None and verb == "create" else crd
        sent = cases.body(definition, content, stored)
        try:
            stored, warnings = store(serve(definition), sent, stored, verb)
        except Rejected as rejection:
            results.append(rejection.verdict)
            break
        results.append(cases.taken(201 if verb == "create" else 200, copy.deepcopy(stored), warnings))
    return results


def store(resource: Resource, sent: Object, old: Object | None, verb: str = "create") -> tuple[Object, list[str]]:
    """One write; the object as it would be stored, and the warnings."""
    strategy = resource.strategy
    assert isinstance(strategy, CustomStrategy)
    new = copy.deepcopy(sent)
    try:
        warnings = [f'299 - "unknown field \\"{path}\\""' for path in resource.custom.prune(new)]
    except errors.StatusError as error:
        raise Rejected(error.status, error.reason, error.message, []) from None
    strategy.default(new)
    if old is None:
        strategy.prepare_create(new)
        new["metadata"]["generation"] = 1
        errs = strategy.validate(new)
    elif verb == "status":
        strategy.prepare_status(new, old)
        errs = strategy.validate_status(new, old)
    else:
        strategy.prepare_update(new, old)
        new["metadata"]["generation"] = old["metadata"]["generation"] + strategy.is_new_generation(new, old)
        errs = strategy.validate_update(new, old)
    _check(errs)
    return new, warnings
