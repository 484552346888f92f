"""Events about queues with fields that have no effect, because fair sharing is not enabled."""

from __future__ import annotations

from torchyard.api.objects import Object
from torchyard.api.queue import names, queue_messages
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue.ignored_fields import ignored_fields
from torchyard.core.queue.settings import QueueSettings
from torchyard.kube.informer import Informer


class IgnoredFieldReporter:
    def __init__(self, store: QueueStore, settings: QueueSettings) -> None:
        self._settings = settings
        self.recorder = store.new_recorder(queue_messages.COMPONENT_QUEUES)
        for informer, kind in (
            (store.cluster_queues, names.CLUSTER_QUEUE.kind),
            (store.cohorts, names.COHORT.kind),
            (store.local_queues, names.LOCAL_QUEUE.kind),
        ):
            self._follow(informer, kind)

    def _follow(self, informer: Informer, kind: str) -> None:
        def report(change: str, obj: Object, before: Object | None) -> None:
            spec = obj.get("spec") or {}
            if change == "DELETED" or (before is not None and (before.get("spec") or {}) == spec):
                return
            reference = {**obj, "apiVersion": names.API_VERSION, "kind": kind}
            for message in ignored_fields(kind, spec, self._settings):
                self.recorder.event(reference, "Warning", queue_messages.EVENT_FIELD_IGNORED, message, once=True)

        informer.on_change(report)
