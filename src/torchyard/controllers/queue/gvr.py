"""The resources of the queue kinds, and those that the queues read."""

from __future__ import annotations

from torchyard.api.group_version import GroupVersionResource
from torchyard.api.jobset import names as jobset
from torchyard.api.pytorchjob import names as pytorchjob
from torchyard.api.queue import names
from torchyard.api.queue.names import Kind
from torchyard.api.trainjob import names as trainjob


def _gvr(kind: Kind) -> GroupVersionResource:
    return GroupVersionResource(names.GROUP, names.STORED, kind.plural, kind.namespaced)


FLAVORS = _gvr(names.FLAVOR)
CLUSTER_QUEUES = _gvr(names.CLUSTER_QUEUE)
LOCAL_QUEUES = _gvr(names.LOCAL_QUEUE)
WORKLOADS = _gvr(names.WORKLOAD)
PRIORITY_CLASSES = _gvr(names.PRIORITY_CLASS)
COHORTS = _gvr(names.COHORT)
CHECKS = _gvr(names.CHECK)
POD_PRIORITY_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
JOBSETS = GroupVersionResource(jobset.GROUP, jobset.VERSION, jobset.PLURAL)
TRAINJOBS = GroupVersionResource(trainjob.GROUP, trainjob.VERSION, trainjob.PLURAL)
PYTORCHJOBS = GroupVersionResource(pytorchjob.GROUP, pytorchjob.VERSION, pytorchjob.PLURAL)
