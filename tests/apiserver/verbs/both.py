"""One object on our server and on a real one: every write must have the same outcome on both."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from hypothesis import reject
from tests.apiserver.verbs import kinds
from tests.apiserver.verbs.real import comparable, record, same
from tests.support.http import APPLY, Answer, Client

from torchyard.api.objects import Object
from torchyard.api.resources import Resource

_names = (f"both-{number}" for number in itertools.count())


class Both:
    """An object of a kind on both servers, with the same way to write to it as `Compared`."""

    def __init__(self, ours: Client, theirs: Client, resource: Resource) -> None:
        self.clients = (ours, theirs)
        self.resource = resource
        self.name = next(_names)
        self.lives: list[Object] = [{}, {}]

    @property
    def live(self) -> Object:
        return self.lives[1]

    def create(self, obj: Object, manager: str) -> None:
        obj = {**obj, "metadata": {**obj["metadata"], "name": self.name}}
        query = {"fieldManager": manager}
        self._compare([client.post(kinds.path(self.resource), obj, query=query) for client in self.clients])

    def update(self, changes: Object, manager: str, subresource: str = "") -> None:
        answers = []
        for client, live in zip(self.clients, self.lives, strict=True):
            sent = copy.deepcopy({**live, **changes})
            sent["metadata"] = {**live["metadata"], **changes.get("metadata", {})}
            answers.append(client.put(self._path(subresource), sent, query={"fieldManager": manager}))
        self._compare(answers)

    def patch(self, type: str, body: Any, manager: str, subresource: str = "") -> None:
        self._patch(type, body, {"fieldManager": manager}, subresource)

    def apply(self, contents: Object, manager: str, subresource: str = "", *, force: bool = False) -> None:
        gvk = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        applied = {**gvk, **contents, "metadata": {**contents.get("metadata", {}), "name": self.name}}
        self._patch(APPLY, applied, {"fieldManager": manager, "force": str(force).lower()}, subresource)

    def _patch(self, type: str, body: Any, query: Object, subresource: str) -> None:
        self._compare([client.patch(self._path(subresource), body, type, query=query) for client in self.clients])

    def _path(self, subresource: str) -> str:
        return kinds.path(self.resource, self.name, subresource)

    def _compare(self, answers: list[Answer]) -> None:
        ours, theirs = answers
        if '"null\\"' in theirs.text and theirs.status == 422:
            # An apply that empties a custom object leaves a null, which a real server then refuses and ours drops.
            reject()
        # Ours never answers 5xx to bad input.
        assert ours.status == (400 if theirs.status == 500 else theirs.status), (ours, theirs)
        if theirs.status < 400:
            same(record(ours.json), record(theirs.json))
            same(comparable(ours.json), comparable(theirs.json))
            same(ours.json.get("status"), theirs.json.get("status"))
            same(ours.json["metadata"].get("generation"), theirs.json["metadata"].get("generation"))
            self.lives = [answer.json for answer in answers]
        elif theirs.status != 422:
            assert ours.message == theirs.message
            assert sorted(map(str, ours.causes)) == sorted(map(str, theirs.causes))
