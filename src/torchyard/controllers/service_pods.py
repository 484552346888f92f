"""Which services select which pods, without a scan over either.

A job of a thousand replicas has a thousand services: the cost of one pod's change must not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torchyard.api.gvr import PODS, SERVICES
from torchyard.api.objects import Object
from torchyard.api.pod.phases import is_ready
from torchyard.kube.informer import Key, key_of
from torchyard.kube.informer_factory import InformerFactory
from torchyard.kube.workqueue import WorkQueue

# Seconds of delay per pod: a pass over a service with many pods is expensive, so it happens less often.
_PAUSE_PER_POD = 0.001
_LONGEST_PAUSE = 1.0


class ServicePods:
    def __init__(self, informers: InformerFactory) -> None:
        self.services = informers.for_resource(SERVICES, indexes={"selector": _selector})
        self.pods = informers.for_resource(PODS, indexes={"label": label_keys})
        # The sets of label keys that selectors use. There are few, whatever the number of services.
        self._selector_keys: set[tuple[str, ...]] = set()
        self.services.on_change(lambda _change, obj, _before: self._selector_keys.add(tuple(sorted(_selector_of(obj)))))

    def feed(self, queue: WorkQueue[Key]) -> None:
        """Queue a service's key when the service, or the relevant part of a pod behind it, changes."""
        self.services.on_change(lambda _change, obj, _before: queue.add(key_of(obj)))
        self.pods.on_change(lambda change, pod, before: self._pod_changed(queue.add_after, change, pod, before))

    def pods_of(self, service: Object) -> list[Object]:
        """Pods with all labels of the service's selector."""
        pairs = list(self._pairs(service))
        if not pairs:
            return []
        rarest = min(pairs, key=lambda pair: self.pods.count("label", pair))
        selector = _selector_of(service).items()
        return [pod for pod in self.pods.by("label", rarest) if selector <= _labels_of(pod).items()]

    def services_of(self, pod: Object) -> Iterator[Object]:
        """Services whose selector matches the pod."""
        namespace, labels = pod["metadata"]["namespace"], _labels_of(pod)
        for shape in self._selector_keys:
            if shape and all(name in labels for name in shape):
                yield from self.services.by(
                    "selector", _selector_key(namespace, {name: labels[name] for name in shape})
                )

    def _pairs(self, service: Object) -> Iterator[str]:
        namespace = service["metadata"]["namespace"]
        return (_label_key(namespace, name, value) for name, value in _selector_of(service).items())

    def _pod_changed(self, add: Callable[[Key, float], None], change: str, pod: Object, before: Object | None) -> None:
        if change == "MODIFIED" and before is not None and _endpoint_state(pod) == _endpoint_state(before):
            return
        services = {
            key_of(selecting): selecting
            for state in (pod, before)
            if state is not None
            for selecting in self.services_of(state)
        }
        for key, service in services.items():
            backends = min((self.pods.count("label", pair) for pair in self._pairs(service)), default=0)
            add(key, min(backends * _PAUSE_PER_POD, _LONGEST_PAUSE) if backends > 1 else 0)


def _selector_of(service: Object) -> dict[str, str]:
    return service["spec"].get("selector") or {}


def _labels_of(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _label_key(namespace: str, name: str, value: str) -> str:
    return f"{namespace}/{name}={value}"


def _selector_key(namespace: str, labels: dict[str, str]) -> str:
    return f"{namespace}/{','.join(f'{name}={labels[name]}' for name in sorted(labels))}"


def _selector(service: Object) -> tuple[str, ...]:
    selector = _selector_of(service)
    return (_selector_key(service["metadata"]["namespace"], selector),) if selector else ()


def label_keys(pod: Object) -> list[str]:
    """The labels of a pod as `namespace/name=value`: the index `label`."""
    namespace = pod["metadata"]["namespace"]
    return [_label_key(namespace, name, value) for name, value in _labels_of(pod).items()]


def _endpoint_state(pod: Object) -> tuple[Any, ...]:
    """The part of a pod that endpoints show; other changes are irrelevant here."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    return (
        metadata["uid"],
        metadata.get("labels"),
        bool(metadata.get("deletionTimestamp")),
        spec.get("nodeName"),
        status.get("podIP"),
        status.get("phase"),
        is_ready(pod),
    )
