"""create, for pods that are alike: the first one is processed in full, the others are instantiated from its result.

A controller creates thousands of pods that differ only in their names, the values of their labels and the values of
their environment variables. Everything the server does to a new pod, from decoding to validation, has the same result
for all of them, as long as the objects that admission reads stay the same. Pods for which this does not hold are never
cached.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, NamedTuple

import orjson

from torchyard.api.names import generate_name, label_value_problems, subdomain_problems
from torchyard.api.objects import Object
from torchyard.api.queue.names import QUEUE_NAME
from torchyard.api.schema.strict import may_have_duplicates
from torchyard.api.times import to_rfc3339
from torchyard.apiserver.access.admission.service_account import VOLUME_PREFIX
from torchyard.apiserver.registry.registry import AdmissionInputs, Registry
from torchyard.apiserver.request.context import RequestContext
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.verbs.create import admit_new, store_new
from torchyard.apiserver.verbs.metadata import new_uid
from torchyard.apiserver.wire.body import JSON, read_object

# The cache is emptied when it has so many templates. Larger pods are not cached.
MAX_TEMPLATES = 256
MAX_POD_BYTES = 16 << 10

# Placeholders have numbers, behind a random text that no client can guess and send.
_PLACEHOLDER = secrets.token_hex(16)
_placeholder = re.compile(f'"{_PLACEHOLDER}([0-9]+)"'.encode())
_TIME, _VOLUME, _FIRST_ENV_VALUE = 0, 1, 2
# What the server makes of these fields depends on the pod's labels, its name or the time.
_UNCACHEABLE_FIELDS = ("affinity", "topologySpreadConstraints", "schedulingGates")


class TemplateKey(NamedTuple):
    """What pods that are alike have in common."""

    namespace: str
    field_manager: str
    validation: str
    document: bytes  # the pod as it was sent, with placeholders


class SubmittedPod(NamedTuple):
    """A pod as a client sent it: what it shares with others, and what it does not."""

    key: TemplateKey
    name: str  # empty: the server generates it
    labels: dict[str, str] | None
    env_values: list[str]


class PodTemplateCache:
    """Creates pods. Registered as the `TemplateCache` of pods."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._templates: dict[TemplateKey, CachedTemplate] = {}

    async def create(self, ctx: RequestContext, body: bytes) -> Record:
        """Create a pod from JSON."""
        registry, submitted = self._registry, parse_pod(ctx, body)
        inputs = registry.admission.inputs(registry, ctx.resource)
        template = self._templates.get(submitted.key) if submitted is not None else None
        if submitted is not None and template is not None and template.inputs == inputs:
            volume = generate_name(VOLUME_PREFIX, registry.random)
            pod = template.instantiate(submitted, now=to_rfc3339(ctx.now), volume=volume)
            if not submitted.name:
                pod["metadata"]["name"] = generate_name(pod["metadata"]["generateName"], registry.random)
            return await store_new(registry, ctx, pod, is_generated=not submitted.name)
        pod, is_generated = await admit_new(registry, ctx, await ctx.compute(read_object, ctx, body, JSON))
        if submitted is not None and inputs is not None and not ctx.warnings and not ctx.dry_run:
            self._add(submitted, pod, inputs)
        return await store_new(registry, ctx, pod, is_generated=is_generated)

    def _add(self, submitted: SubmittedPod, pod: Object, inputs: AdmissionInputs) -> None:
        if not _is_cacheable(pod["spec"]) or VOLUME_PREFIX.encode() in submitted.key.document:
            return
        template = CachedTemplate(pod, inputs)
        if (template.labels, template.env_values) == (submitted.labels, submitted.env_values):
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[submitted.key] = template


def _is_cacheable(spec: Object) -> bool:
    """Whether the stored pod depends on nothing but its spec."""
    return not any(spec.get(name) for name in _UNCACHEABLE_FIELDS) and not any(
        "ephemeral" in volume for volume in spec.get("volumes") or ()
    )


def parse_pod(ctx: RequestContext, body: bytes) -> SubmittedPod | None:
    """A pod in JSON; None for a body that is not a pod, or that the cache does not handle."""
    if len(body) > MAX_POD_BYTES:
        return None
    try:
        pod = orjson.loads(body)
        metadata = pod["metadata"]
        name, labels = metadata.get("name"), metadata.get("labels")
        if may_have_duplicates(body, pod) or not _are_valid(name, labels):
            return None
        if name is not None:
            metadata["name"] = _PLACEHOLDER
        if labels is not None:
            # the value of the queue-name label decides whether the pod may start, so it is part of the key
            metadata["labels"] = [*labels, labels.get(QUEUE_NAME)]
        env_values = _replace_env_values(pod["spec"])
        key = TemplateKey(ctx.namespace, ctx.field_manager, ctx.validation, orjson.dumps(pod))
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError):
        return None
    return SubmittedPod(key, name or "", labels, env_values)


def _are_valid(name: Any, labels: Any) -> bool:
    """Name and labels differ from pod to pod, so they are validated for each."""
    if name is not None and (name.__class__ is not str or subdomain_problems(name)):
        return False
    if labels is None:
        return True
    return labels.__class__ is dict and not any(
        value.__class__ is not str or label_value_problems(value) for value in labels.values()
    )


def _replace_env_values(spec: Object) -> list[str]:
    """Put placeholders for the literal values of environment variables into a spec; returns the values."""
    values: list[str] = []
    for container in spec["containers"]:
        for variable in container.get("env") or ():
            value = variable.get("value")
            if value.__class__ is str and value and "$(" not in value:
                variable["value"] = f"{_PLACEHOLDER}{_FIRST_ENV_VALUE + len(values)}"
                values.append(value)
    return values


class CachedTemplate:
    """A stored pod with placeholders, and the admission inputs that it depends on."""

    def __init__(self, pod: Object, inputs: AdmissionInputs) -> None:
        self.inputs = inputs
        self._metadata = {**pod["metadata"]}
        self.labels = self._metadata.get("labels")
        managed = [{**entry, "time": f"{_PLACEHOLDER}{_TIME}"} for entry in self._metadata.get("managedFields", ())]
        spec = orjson.loads(orjson.dumps(pod["spec"]))
        self.env_values = _replace_env_values(spec)
        for named in (*(spec.get("volumes") or ()), *_volume_mounts(spec)):
            if named["name"].startswith(VOLUME_PREFIX):
                named["name"] = f"{_PLACEHOLDER}{_VOLUME}"
        self._spec, self._managed = _JsonTemplate(spec), _JsonTemplate(managed)
        self._pod = {**pod, "status": orjson.Fragment(orjson.dumps(pod["status"]))}

    def instantiate(self, submitted: SubmittedPod, *, now: str, volume: str) -> Object:
        """The submitted pod as it is stored. The parts that no later step reads are encoded already."""
        values = [orjson.dumps(value) for value in (now, volume, *submitted.env_values)]
        metadata = self._metadata.copy()
        metadata["uid"] = new_uid()
        metadata["creationTimestamp"] = now
        if "managedFields" in metadata:
            metadata["managedFields"] = orjson.Fragment(self._managed.render(values))
        if submitted.name:
            metadata["name"] = submitted.name
        if submitted.labels is not None:
            metadata["labels"] = submitted.labels
        return {**self._pod, "metadata": metadata, "spec": orjson.Fragment(self._spec.render(values))}


def _volume_mounts(spec: Object) -> list[Object]:
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    return [mount for container in containers for mount in container.get("volumeMounts") or ()]


class _JsonTemplate:
    """JSON text with placeholders."""

    def __init__(self, value: Any) -> None:
        self._parts = _placeholder.split(orjson.dumps(value))  # every second part is the number of a placeholder
        self._numbers = [int(number) for number in self._parts[1::2]]

    def render(self, values: list[bytes]) -> bytes:
        parts = self._parts.copy()
        parts[1::2] = [values[number] for number in self._numbers]
        return b"".join(parts)
