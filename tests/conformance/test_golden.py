"""Generated objects and patches, sent to the real server and to ours: what they answer is the same, or listed here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.conformance.golden.compare import differences, shown
from tests.conformance.golden.kinds import WIDGET_DEFINITION, objects
from tests.conformance.golden.patches import Patch, patches
from tests.conformance.objects import Definitions, path
from tests.support.effort import rounds
from tests.support.http import Answer, Client
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

NAMESPACE = "golden"

# Places where our answer differs: a pattern of the line that tells of it, and the reason.
ON_PURPOSE: list[tuple[str, str]] = [
    (r"\.status: 500 there, 4\d\d here", "the real server lets an error of a library escape; ours never answers 5xx"),
    (
        r'f:rules.* there, nothing here|\.causes\[0\]\[0\]: "\.rules" there|managedFields: .*"f:rules": \{\}.* there',
        "an empty list of rules is owned there until it is stored as null; ours is null from the start",
    ),
    (r"\.object\.spec\.limits: null there, \[\] here", "an empty list of limits is stored as null there"),
    (
        r"f:deprecated\.daemonset\.template\.generation",
        "the counter of a daemon set's template is owned there by whoever wrote last; ours belongs to its creator",
    ),
    (
        r'\.causes: \[\["spec", "FieldValueForbidden", "Forbidden: updates to statefulset spec',
        "a change that is not allowed is told there before the faults of the new state; ours tells all at once",
    ),
    (
        r"ObjectMeta\.labels of type string|ObjectMeta\.metadata\.annotations of type",
        "of several values that do not fit their types, which one is told first depends on the order of a map there",
    ),
    (
        r'\.causes: \[\["spec\.clusterIPs", "FieldValueInvalid", .*does not match the current range',
        "an address out of range is told there before the object is validated; ours tells the faults of the object",
    ),
]


class Both:
    """The two servers, asked the same."""

    def __init__(self, real: Client, ours: Client) -> None:
        self.real, self.ours = real, ours
        self.found: list[str] = []
        self.requests = 0

    def ask(self, what: str, method: str, at: str, body: Any, **more: Any) -> Answer:
        real, ours = (client.request(method, at, body, **more) for client in (self.real, self.ours))
        self.requests += 1
        lines = differences(shown(real), shown(ours))
        if lines and not any(re.search(pattern, lines_of) for lines_of in lines for pattern, _ in ON_PURPOSE):
            request = f"{what} {method} {at} {more.get('query', '')}"
            self.found.append("\n    ".join([request, f"sent {body}", *lines]))
        return real


def exists(client: Client, at: str) -> bool:
    return client.get(at).status == 200


@pytest.fixture(scope="module")
def both(kube: Server, yard: Server) -> Iterator[Both]:
    """Both servers with the same namespace and the same custom resource."""
    pair = Both(kube.admin, yard.admin)
    definitions = [Definitions(client) for client in (pair.real, pair.ours)]
    for client, crds in zip((pair.real, pair.ours), definitions, strict=True):
        assert client.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == 201
        account = path("serviceaccounts", "default", namespace=NAMESPACE)
        eventually(partial(exists, client, account), "the service account")
        crds.create(WIDGET_DEFINITION)
    yield pair
    for crds in definitions:
        crds.remove()


def converse(both: Both, number: int, plural: str, obj: dict[str, Any], changes: list[Patch]) -> None:
    """Create, patch, read and delete one object on both servers."""
    name = f"o{number}"
    obj["metadata"]["name"] = name
    group = obj["apiVersion"]
    collection = path(plural, namespace=NAMESPACE, group=group)
    at = f"{collection}/{name}"
    label = f"#{number} {plural}"
    real = both.ask(label, "POST", collection, obj, query={"fieldManager": "creator"})
    for index, change in enumerate(changes):
        body = change.body
        if change.media_type == "application/apply-patch+yaml":
            body = {"apiVersion": group, "kind": obj["kind"]} | body
            body["metadata"] = {**body.get("metadata", {}), "name": f"{name}-applied" if real.status >= 300 else name}
            at = at if real.status < 300 else f"{collection}/{name}-applied"
        elif real.status >= 300:
            continue
        headers = {"Content-Type": change.media_type}
        both.ask(f"{label} patch {index}", "PATCH", at, body, query=change.query, headers=headers)
    for client in (both.real, both.ours):
        for one in (f"{collection}/{name}", f"{collection}/{name}-applied"):
            client.delete(one, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
            client.patch(one, {"metadata": {"finalizers": None}})


@pytest.mark.timeout(900)
def test_both_servers_answer_the_same(both: Both) -> None:
    for seed in range(rounds(300, 3000)):
        rng = Random(seed)
        plural, obj = objects(rng)
        converse(both, seed, plural, obj, patches(plural)(rng))
    told = "\n\n".join(both.found)
    assert not both.found, f"{len(both.found)} of {both.requests} answers differ:\n\n{told}"
