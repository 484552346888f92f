"""create, of pods that are alike: the first is made in full, the others are drawn with a stencil cut from it.

A controller makes thousands of pods that differ in their names, in the values of their labels and in those of their
variables, and in nothing else. Whatever the server does to a new pod, from decoding to validation, comes out the same
for all of them while what admission goes by stays the same. Where it would not, nothing is cut.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, NamedTuple

import orjson

from torchyard.api.names import generate_name, label_value_problems, subdomain_problems
from torchyard.api.objects import Object
from torchyard.api.queue.names import QUEUE_NAME
from torchyard.api.schema.strict import may_repeat
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.access.admission.service_account import VOLUME_PREFIX
from torchyard.apiserver.registry.registry import Basis, Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.verbs.create import completed, saved
from torchyard.apiserver.verbs.metadata import new_uid
from torchyard.apiserver.wire.body import JSON, read_object

# Namespace, field manager, how strictly fields are checked, and what pods that are alike have in common.
Key = tuple[str, str, str, bytes]

# So many stencils are kept before all are thrown away, and of pods no larger than this.
MOST = 256
LARGEST = 16 << 10

# What stands in a hole until it is filled: nothing that a client could guess and send. Holes have numbers.
_MARK = secrets.token_hex(16)
_hole = re.compile(f'"{_MARK}([0-9]+)"'.encode())
_TIME, _VOLUME, _FIRST_VARIABLE = 0, 1, 2
# What the server makes of these depends on the pod's labels, its name or the time.
_NEVER_CUT = ("affinity", "topologySpreadConstraints", "schedulingGates")


class PodTemplateCache:
    """What became of pods, by what they have in common with others."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[Key, PodTemplate] = {}

    async def create(self, ctx: RequestContext, body: bytes) -> Record:
        """Create a pod from JSON."""
        registry, sent = self._registry, outline(ctx, body)
        basis = registry.admission.basis(registry)
        stencil = self._known.get(sent.key) if sent is not None else None
        if sent is not None and stencil is not None and stencil.basis == basis:
            pod = stencil.drawn(sent, now=to_rfc3339(ctx.now), volume=generate_name(VOLUME_PREFIX, registry.random))
            if not sent.name:
                pod["metadata"]["name"] = generate_name(pod["metadata"]["generateName"], registry.random)
            return await saved(registry, ctx, pod, generated=not sent.name)
        pod, generated = await completed(registry, ctx, read_object(ctx, body, JSON))
        if sent is not None and basis is not None and not ctx.warnings and not ctx.dry_run:
            self._cut(sent, pod, basis)
        return await saved(registry, ctx, pod, generated=generated)

    def _cut(self, sent: TemplateKey, pod: Object, basis: Basis) -> None:
        if _is_special(pod["spec"]) or VOLUME_PREFIX.encode() in sent.key[-1]:
            return
        stencil = PodTemplate(pod, basis)
        if (stencil.labels, stencil.variables) == (sent.labels, sent.variables):
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[sent.key] = stencil


def _is_special(spec: Object) -> bool:
    """Whether what becomes of a spec depends on more than the spec."""
    return any(spec.get(name) for name in _NEVER_CUT) or any("ephemeral" in one for one in spec.get("volumes") or ())


class TemplateKey(NamedTuple):
    """A new pod as it was sent: what it shares with those that are alike, and what is its own."""

    key: Key
    name: str  # empty: one is to be generated
    labels: dict[str, str] | None
    variables: list[str]


def outline(ctx: RequestContext, body: bytes) -> TemplateKey | None:
    """The outline of a pod in JSON; None for a body that is none, or that takes a closer look."""
    if len(body) > LARGEST:
        return None
    try:
        pod = orjson.loads(body)
        metadata = pod["metadata"]
        name, labels = metadata.get("name"), metadata.get("labels")
        if may_repeat(body, pod) or not _is_plain(name, labels):
            return None
        if name is not None:
            metadata["name"] = _MARK
        if labels is not None:
            # a queue's name is more than a label: it decides whether the pod may start
            metadata["labels"] = [*labels, labels.get(QUEUE_NAME)]
        variables = _emptied(pod["spec"])
        key = (ctx.namespace, ctx.field_manager, ctx.validation, orjson.dumps(pod))
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError):
        return None
    return TemplateKey(key, name or "", labels, variables)


def _is_plain(name: Any, labels: Any) -> bool:
    """Whether name and labels are of the right types and valid: the first pod's say nothing about another's."""
    if name is not None and (name.__class__ is not str or subdomain_problems(name)):
        return False
    if labels is None:
        return True
    return labels.__class__ is dict and not any(
        value.__class__ is not str or label_value_problems(value) for value in labels.values()
    )


def _emptied(spec: Object) -> list[str]:
    """Take the values of variables out of a spec, those that mean nothing to the server."""
    values: list[str] = []
    for container in spec["containers"]:
        for variable in container.get("env") or ():
            value = variable.get("value")
            if value.__class__ is str and value and "$(" not in value:
                variable["value"] = f"{_MARK}{_FIRST_VARIABLE + len(values)}"
                values.append(value)
    return values


class PodTemplate:
    """A pod with holes."""

    def __init__(self, pod: Object, basis: Basis) -> None:
        self.basis = basis
        self._metadata = {**pod["metadata"]}
        self.labels = self._metadata.get("labels")
        managed = [{**one, "time": f"{_MARK}{_TIME}"} for one in self._metadata.get("managedFields", ())]
        spec = orjson.loads(orjson.dumps(pod["spec"]))
        self.variables = _emptied(spec)
        for place in (*(spec.get("volumes") or ()), *_mounts(spec)):
            if place["name"].startswith(VOLUME_PREFIX):
                place["name"] = f"{_MARK}{_VOLUME}"
        self._spec, self._managed = _Text(spec), _Text(managed)
        self._pod = {**pod, "status": orjson.Fragment(orjson.dumps(pod["status"]))}

    def drawn(self, sent: TemplateKey, *, now: str, volume: str) -> Object:
        """The pod that was sent, as it is stored. Its parts that nobody looks at are text already."""
        values = [orjson.dumps(one) for one in (now, volume, *sent.variables)]
        metadata = self._metadata.copy()
        metadata["uid"] = new_uid()
        metadata["creationTimestamp"] = now
        if "managedFields" in metadata:
            metadata["managedFields"] = orjson.Fragment(self._managed.filled(values))
        if sent.name:
            metadata["name"] = sent.name
        if sent.labels is not None:
            metadata["labels"] = sent.labels
        return {**self._pod, "metadata": metadata, "spec": orjson.Fragment(self._spec.filled(values))}


def _mounts(spec: Object) -> list[Object]:
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    return [mount for container in containers for mount in container.get("volumeMounts") or ()]


class _Text:
    """JSON with holes."""

    def __init__(self, value: Any) -> None:
        self._pieces = _hole.split(orjson.dumps(value))  # every second one is the number of a hole
        self._holes = [int(number) for number in self._pieces[1::2]]

    def filled(self, values: list[bytes]) -> bytes:
        pieces = self._pieces.copy()
        pieces[1::2] = [values[hole] for hole in self._holes]
        return b"".join(pieces)
