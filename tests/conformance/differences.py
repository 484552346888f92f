"""Intended differences between our server and the real one, each with its reason.

A test that meets one of them asks `expected(server, key)`, so that it judges both servers and the table stays true.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.kubernetes import Server


class Difference(NamedTuple):
    real: Any
    ours: Any
    why: str


DIFFERENCES = {
    "create-with-resource-version": Difference(
        500, 400, "the real server answers a plain client error with 500; ours never answers 5xx to bad input"
    ),
    "delete-options-of-a-wrong-type": Difference(
        500, 400, "the real server lets a decoding error escape as 500; ours never answers 5xx to bad input"
    ),
    "watch-from-no-number": Difference(
        500, 400, "the real server lets a parsing error escape as 500; ours never answers 5xx to bad input"
    ),
    "bad-strategic-patch": Difference(
        500, 400, "the real server lets an error of its patch library escape as 500; ours says the request is bad"
    ),
    "apply-of-an-untyped-object": Difference(
        500, 400, "the real server lets an error of its merge library escape as 500; ours says the request is bad"
    ),
    "aggregated-discovery-versions": Difference(
        ("v2",), ("v2", "v2beta1"), "kubectl 1.27 to 1.29 ask for v2beta1 only, which the newest server has dropped"
    ),
}


def expected(server: Server, key: str) -> Any:
    """The response of this server where the two differ."""
    difference = DIFFERENCES[key]
    return difference.real if server.real else difference.ours
