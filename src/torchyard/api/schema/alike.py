"""Pods that are alike: the replicas of a job differ in the values of their environment and, in their spec, in nothing.

What is found out about one spec (how it decodes, which fields it sets) holds for all that are alike, and a pod's is the
longest of all that is written often. `Blanked` takes the values out, so that such specs have the same bytes, and puts
them back.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import orjson

SPEC = "io.k8s.api.core.v1.PodSpec"
# So many kinds of pods are remembered before all are forgotten.
MOST = 256

_BLANK = "x"
T = TypeVar("T")


class Blanked:
    """A spec without the values of its containers' variables. It may be of any shape: a client sent it."""

    __slots__ = ("_values", "key")

    def __init__(self, spec: Any) -> None:
        self._values: list[str] = []
        for variable in _variables(spec):
            value = variable.get("value")
            if value.__class__ is str and value:  # an empty one is left out when decoded
                self._values.append(value)
                variable["value"] = _BLANK
        try:
            self.key: bytes | None = orjson.dumps(spec)
        except TypeError:  # numbers too large for JSON's writer, or too deep
            self.key = None

    def fill(self, spec: Any) -> None:
        """Put the values into the spec they were taken from, or into one that is alike."""
        values = iter(self._values)
        for variable in _variables(spec):
            if variable.get("value") == _BLANK:
                variable["value"] = next(values)


class Memo(Generic[T]):
    """What was found out about specs, by their bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, T] = {}

    def get(self, blanked: Blanked) -> T | None:
        return self._known.get(blanked.key) if blanked.key is not None else None

    def put(self, blanked: Blanked, found: T) -> None:
        if blanked.key is not None:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[blanked.key] = found


def _variables(spec: Any) -> list[dict[str, Any]]:
    containers = spec.get("containers") if spec.__class__ is dict else None
    found: list[dict[str, Any]] = []
    for container in containers if containers.__class__ is list else ():
        variables = container.get("env") if container.__class__ is dict else None
        if variables.__class__ is list:
            found += [variable for variable in variables if variable.__class__ is dict]
    return found
