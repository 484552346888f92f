"""A job that is started and stopped again is restored exactly, for any template and any admission."""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard.api.objects import Object
from torchyard.api.queue import names
from torchyard.apiserver.patch.merge_patch import apply_merge_patch
from torchyard.core.queue.integrations import (
    BatchJobIntegration,
    CannotStart,
    JobIntegration,
    PodSetInfo,
    PyTorchJobIntegration,
)

KEYS = st.sampled_from(["kind", "zone", "disk"])
TEXTS = st.dictionaries(KEYS, st.sampled_from(["a", "b"]), max_size=3)
TOLERATIONS = st.lists(st.sampled_from([{"key": "gpu", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}]))


@st.composite
def templates(draw: st.DrawFn) -> Object:
    """Templates with fields that are set or omitted."""
    template: Object = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    for name, values in (("nodeSelector", TEXTS), ("tolerations", TOLERATIONS)):
        value = draw(st.none() | values)
        if value:
            template["spec"][name] = value
    metadata = {name: value for name in ("labels", "annotations") if (value := draw(TEXTS))}
    if metadata:
        template["metadata"] = metadata
    return template


INFOS = st.builds(
    PodSetInfo,
    name=st.just("main"),
    count=st.integers(1, 4),
    node_selector=TEXTS,
    tolerations=TOLERATIONS,
    labels=TEXTS.map(lambda labels: {f"kueue.x-k8s.io/{key}": value for key, value in labels.items()}),
    annotations=TEXTS,
)


def start_and_stop(integration: JobIntegration, job: Object, infos: list[PodSetInfo]) -> Object | None:
    """The job after a start and a stop; None if it cannot be started with these infos."""
    pod_sets = copy.deepcopy(integration.pod_sets(job))
    try:
        started = apply_merge_patch(copy.deepcopy(job), integration.start(job, infos))
    except CannotStart:
        return None
    assert not integration.is_suspended(started)
    stopped: Object = apply_merge_patch(started, integration.suspend(started))
    patch = integration.restore(stopped, pod_sets)
    if patch is not None:
        stopped = apply_merge_patch(stopped, patch)
        assert integration.restore(stopped, pod_sets) is None, "a second restore changes nothing"
    return stopped


@settings(max_examples=150)
@given(templates(), INFOS, st.integers(1, 4), st.booleans(), st.booleans())
def test_batch_job_is_restored_exactly(
    template: Object, info: PodSetInfo, parallelism: int, partial: bool, synced: bool
) -> None:
    annotations = {names.MIN_PARALLELISM: "1"} if partial and parallelism > 1 else {}
    if synced:
        annotations[names.SYNC_COMPLETIONS] = "true"
    spec = {"suspend": True, "parallelism": parallelism, "completions": parallelism, "template": template}
    job: Object = {"metadata": {"name": "j", "annotations": annotations}, "spec": spec}
    count = min(info.count, parallelism) if names.MIN_PARALLELISM in annotations else parallelism
    after = start_and_stop(BatchJobIntegration(), job, [PodSetInfo(**{**vars(info), "count": count})])
    assert after is None or after == job


@settings(max_examples=150)
@given(templates(), templates(), INFOS, INFOS, st.integers(1, 4), st.booleans())
def test_pytorchjob_is_restored_exactly(
    master: Object, worker: Object, first: PodSetInfo, second: PodSetInfo, replicas: int, elastic: bool
) -> None:
    specs = {"Master": {"replicas": 1, "template": master}, "Worker": {"replicas": replicas, "template": worker}}
    spec: Object = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": specs}
    if elastic:
        spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4}
    job: Object = {"metadata": {"name": "j", "namespace": "default"}, "spec": spec}
    count = min(second.count, replicas) if elastic else replicas
    infos = [
        PodSetInfo(**{**vars(first), "name": "master", "count": 1}),
        PodSetInfo(**{**vars(second), "name": "worker", "count": count}),
    ]
    after = start_and_stop(PyTorchJobIntegration(), job, infos)
    assert after is None or after == job
