"""The resources that queues are about."""

from __future__ import annotations

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import names
from torchyard.api.queue.names import Kind


def _ref(kind: Kind) -> GroupVersionResource:
    return GroupVersionResource(names.GROUP, names.STORED, kind.plural, kind.namespaced)


FLAVORS = _ref(names.FLAVOR)
CLUSTER_QUEUES = _ref(names.CLUSTER_QUEUE)
LOCAL_QUEUES = _ref(names.LOCAL_QUEUE)
WORKLOADS = _ref(names.WORKLOAD)
PRIORITY_CLASSES = _ref(names.PRIORITY_CLASS)
COHORTS = _ref(names.COHORT)
CHECKS = _ref(names.CHECK)
POD_PRIORITY_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
PYTORCHJOBS = GroupVersionResource(pytorchjob.GROUP, pytorchjob.VERSION, pytorchjob.PLURAL)
