"""Elastic TrainJobs: the annotations that say with how many nodes a training continues, and with which rendezvous.

With torchrun's rendezvous (`c10d`) the largest number is the number of pods. With Torchyard's coordinator (`torchyard`)
a job begins with `numNodes` pods and may be resized within its limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torchyard.api import field_errors
from torchyard.api.field_errors import FieldError
from torchyard.api.objects import Object
from torchyard.api.queue.names import QUEUE_NAME
from torchyard.api.torchrun import C10D, TORCHYARD
from torchyard.api.trainjob import messages, names

_ELASTIC, _BACKEND, _RESIZED = (
    f"metadata.annotations[{name}]" for name in (names.ELASTIC, names.RDZV_BACKEND, names.RESIZED)
)
_range = re.compile(r"([1-9][0-9]{0,5}):([1-9][0-9]{0,5})").fullmatch
_number = re.compile(r"[1-9][0-9]{0,5}").fullmatch


@dataclass(frozen=True, slots=True)
class ElasticNodes:
    """The smallest and the largest number of nodes of a job, and its rendezvous."""

    least: int
    most: int
    backend: str = C10D

    @property
    def uses_coordinator(self) -> bool:
        return self.backend == TORCHYARD


def elastic_nodes(job: Object, runtime: Object) -> ElasticNodes | None:
    """What the annotations of the job say, otherwise those of its runtime; None for a job that is not elastic."""
    for obj in (job, runtime):
        written = annotation(obj, names.ELASTIC)
        if written is not None:
            limits = elastic_range(written)
            return None if limits is None else ElasticNodes(*limits, _backend(job, runtime))
    return None


def elastic_range(text: str) -> tuple[int, int] | None:
    """The numbers of nodes of the annotation; None if it is not valid."""
    match = _range(text)
    if match is None or int(match[1]) > int(match[2]):
        return None
    return int(match[1]), int(match[2])


def resized_nodes(job: Object) -> int | None:
    """The number of nodes that the annotation for running jobs asks for."""
    written = annotation(job, names.RESIZED)
    return int(written) if written is not None and _number(written) else None


def annotation(obj: Object, name: str) -> str | None:
    text: str | None = (obj["metadata"].get("annotations") or {}).get(name)
    return text


def _backend(job: Object, runtime: Object) -> str:
    return annotation(job, names.RDZV_BACKEND) or annotation(runtime, names.RDZV_BACKEND) or C10D


def runtime_errors(runtime: Object, policy: Object) -> Iterator[FieldError]:
    written, backend = annotation(runtime, names.ELASTIC), annotation(runtime, names.RDZV_BACKEND)
    if written is not None:
        yield from _range_errors(written, policy, backend or C10D)
    if backend is not None:
        yield from _backend_errors(backend, is_elastic=written is not None)


def job_errors(job: Object, runtime: Object, policy: Object) -> Iterator[FieldError]:
    trainer: Object = job["spec"].get("trainer") or {}
    nodes: int = {"numNodes": 1, **policy, **trainer}["numNodes"]
    written, backend = annotation(job, names.ELASTIC), _backend(job, runtime)
    of_runtime = annotation(runtime, names.ELASTIC)
    if annotation(job, names.RDZV_BACKEND) is not None:
        yield from _backend_errors(backend, is_elastic=written is not None or of_runtime is not None)
    if written is not None:
        yield from _range_errors(written, policy, backend)
    elastic = elastic_nodes(job, runtime)
    if elastic is not None:
        yield from _count_errors(elastic, nodes, policy, written)
    yield from _resize_errors(job, elastic, nodes)


def _count_errors(elastic: ElasticNodes, nodes: int, policy: Object, written: str | None) -> Iterator[FieldError]:
    least, most = elastic.least, elastic.most
    if written is not None and not elastic.uses_coordinator:
        # A job has as many pods as nodes, so that torchrun's maximum is this number.
        if most != nodes:
            yield field_errors.invalid(_ELASTIC, written, messages.elastic_maximum(least, most, nodes))
    elif not least <= nodes <= most and (elastic.uses_coordinator or names.TORCH in policy):
        owner = "runtime" if written is None else "job"
        yield field_errors.invalid("spec.trainer.numNodes", nodes, messages.elastic_count(least, most, owner))


def _resize_errors(job: Object, elastic: ElasticNodes | None, nodes: int) -> Iterator[FieldError]:
    written = annotation(job, names.RESIZED)
    if written is None:
        return
    if elastic is None or not elastic.uses_coordinator:
        yield field_errors.forbidden(_RESIZED, messages.RESIZE_NEEDS_COORDINATOR)
        return
    count, most = resized_nodes(job), elastic.most
    if QUEUE_NAME in (job["metadata"].get("labels") or {}):
        most = min(most, nodes)  # the quota is that of numNodes
    if count is None or not elastic.least <= count <= most:
        yield field_errors.invalid(_RESIZED, written, messages.resize_range(elastic.least, most, elastic.most))


def _range_errors(written: str, policy: Object, backend: str) -> Iterator[FieldError]:
    if elastic_range(written) is None:
        yield field_errors.invalid(_ELASTIC, written, messages.ELASTIC_FORMAT)
    is_plain = not any(name in policy for name in names.POLICIES)
    if names.TORCH not in policy and not (is_plain and backend == TORCHYARD):
        yield field_errors.forbidden(_ELASTIC, messages.ELASTIC_POLICY)


def _backend_errors(backend: str, *, is_elastic: bool) -> Iterator[FieldError]:
    if backend not in (C10D, TORCHYARD):
        yield field_errors.not_supported(_BACKEND, backend, [C10D, TORCHYARD])
    elif not is_elastic:
        yield field_errors.required(_ELASTIC, messages.BACKEND_NEEDS_RANGE)
