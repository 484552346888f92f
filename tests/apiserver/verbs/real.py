"""One object on a real server, and what our functions make of every write to it."""

from __future__ import annotations

import copy
import difflib
import itertools
import json
from collections.abc import Callable
from typing import Any

from tests.apiserver.verbs import kinds
from tests.support.http import APPLY, Answer, Client

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.resources import Resource
from torchyard.api.schema.decode import DecodeError, decode
from torchyard.apiserver.apply.endpoint import endpoint_of
from torchyard.apiserver.apply.managed_fields import apply, record_update
from torchyard.apiserver.patch.parse import read_patch

# Later than whatever the real server wrote, as the write that is compared always is.
NOW = "2999-01-01T00:00:00Z"
# What the server sets whatever was asked, and the record, which is compared by itself.
_SET_BY_SERVER = ("resourceVersion", "generation", "uid", "creationTimestamp", "namespace", "managedFields")
_names = (f"compared-{number}" for number in itertools.count())


class Compared:
    """An object of a kind on the real server. Every write asserts that our functions have the same result."""

    def __init__(self, client: Client, resource: Resource) -> None:
        assert resource.type is not None
        self.client = client
        self.resource = resource
        self.type = resource.type
        self.name = next(_names)
        self.live: Object = {}
        self.refused = 0

    def create(self, obj: Object, manager: str) -> None:
        """Create the object, unless the kind's own validation forbids it."""
        obj = {**obj, "metadata": {**obj["metadata"], "name": self.name}}
        answer = self.client.post(kinds.path(self.resource), obj, query={"fieldManager": manager})
        if answer.status == 422:
            return
        assert answer.status == 201, answer

        def ours(_: Object) -> Object:
            new = self._decoded(obj)
            record_update(endpoint_of(self.resource), None, new, manager=manager, now=NOW)
            return new

        self._compare(answer, ours, "")

    def update(self, changes: Object, manager: str, subresource: str = "") -> None:
        sent = copy.deepcopy({**self.live, **changes})
        sent["metadata"] = {**self.live["metadata"], **changes.get("metadata", {})}
        answer = self.client.put(self._path(subresource), sent, query={"fieldManager": manager})
        self._compare(answer, lambda live: self._recorded(live, sent, manager, subresource), subresource)

    def patch(self, type: str, body: Any, manager: str, subresource: str = "") -> None:
        text = json.dumps(body).encode()
        answer = self.client.patch(self._path(subresource), text, type, query={"fieldManager": manager})

        def ours(live: Object) -> Object:
            patched = read_patch(type, text).apply_to(live, self.type)
            return self._recorded(live, patched, manager, subresource)

        self._compare(answer, ours, subresource)

    def apply(self, contents: Object, manager: str, subresource: str = "", *, force: bool = False) -> None:
        gvk = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        applied = {**gvk, **contents, "metadata": {**contents.get("metadata", {}), "name": self.name}}
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        answer = self.client.patch(self._path(subresource), applied, APPLY, query=query)

        def ours(live: Object) -> Object:
            before = copy.deepcopy(applied)
            result = apply(
                endpoint_of(self.resource, subresource), live or None, applied, manager=manager, now=NOW, force=force
            )
            assert applied == before, "apply changed what was applied"
            return self._decoded(result)

        self._compare(answer, ours, subresource)

    def _path(self, subresource: str) -> str:
        return kinds.path(self.resource, self.name, subresource)

    def _decoded(self, obj: Object) -> Object:
        obj = copy.deepcopy(obj)
        if self.resource.custom is None:
            obj, _ = decode(obj, self.type)
        return kinds.settled(self.resource, obj)

    def _recorded(self, live: Object, new: Object, manager: str, subresource: str) -> Object:
        new = self._decoded(new)
        record_update(endpoint_of(self.resource, subresource), live, new, manager=manager, now=NOW)
        return new

    def _compare(self, answer: Answer, ours: Callable[[Object], Object], subresource: str) -> None:
        live = copy.deepcopy(self.live)
        if answer.status >= 400:
            self.refused += 1
            self._compare_refusals(answer, ours, live)
        else:
            predicted = ours(live)
            same(record(predicted), record(answer.json))
            if subresource:
                same(predicted.get("status"), answer.json.get("status"))
            else:
                same(comparable(predicted), comparable(answer.json))
        assert live == self.live, "an input was changed"
        if answer.status < 400:
            self.live = answer.json

    def _compare_refusals(self, answer: Answer, ours: Callable[[Object], Object], live: Object) -> None:
        """An error of patching or applying must be ours too; validation comes later and is not compared here."""
        validation = answer.status == 422 and answer.json["details"]
        try:
            ours(live)
        except DecodeError:
            assert validation, answer
        except StatusError as refusal:
            assert validation or refusal.message == answer.message
            assert validation or sorted(map(str, (refusal.details or {}).get("causes", []))) == sorted(
                map(str, answer.causes)
            )
        else:
            assert validation, answer


def same(ours: Any, theirs: Any) -> None:
    remaining, right = (json.dumps(item, indent=1, sort_keys=True).splitlines() for item in (ours, theirs))
    assert ours == theirs, "\n".join(["", *difflib.unified_diff(remaining, right, "ours", "theirs", lineterm="", n=12)])


def comparable(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SET_BY_SERVER}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": metadata}


def record(obj: Object) -> dict[str, Object]:
    """The managed fields without their times and order."""
    entries = obj["metadata"].get("managedFields", [])
    result = {
        " ".join(str(entry.get(part, "")) for part in ("manager", "operation", "apiVersion", "subresource")): entry[
            "fieldsV1"
        ]
        for entry in entries
    }
    assert len(result) == len(entries)
    return result
