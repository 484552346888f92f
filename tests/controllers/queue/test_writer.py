"""Writes to one workload follow each other, and the store keeps what was decided until the last of them is answered."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.waiting import first_answer

from torchyard.api.objects import Object
from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue import lifecycle
from torchyard.core.queue.decisions import Admit
from torchyard.core.queue.scheduler import schedule
from torchyard.kube.client import Client

KEY = ("default", "one")


def schedule_admission(store: QueueStore) -> Admit:
    (decision,) = schedule(store.state, store.now())
    assert isinstance(decision, Admit)
    return decision


def reserve_quota(store: QueueStore, decision: Admit) -> Any:
    spec = store.state.cache.cluster_queues[decision.cluster_queue].spec
    return lambda obj: lifecycle.reserve_quota(obj, spec, decision.assignment, store.now())


def evict(store: QueueStore) -> Any:
    return lambda obj: lifecycle.evict(obj, "Preempted", "by the test", store.now())


def true_conditions(obj: Object) -> set[str]:
    return {condition["type"] for condition in obj["status"]["conditions"] if condition["status"] == "True"}


async def test_eviction_is_written_after_the_admission(store: QueueStore, client: Client) -> None:
    decision = schedule_admission(store)
    first, second = store.writer.enqueue(KEY), store.writer.enqueue(KEY)
    obj = decision.info.obj
    results = await asyncio.gather(
        store.writer.write_queued(second, obj, evict(store)),
        store.writer.write_queued(first, obj, reserve_quota(store, decision)),
    )
    assert None not in results
    assert true_conditions(await client.get(WORKLOADS, "one", "default")) == {"QuotaReserved", "Admitted", "Evicted"}
    assert store.state.cache.workloads[KEY].is_evicted
    assert not store.writer.is_writing(KEY)


async def test_admission_keeps_field_ownership_of_labels(store: QueueStore, client: Client) -> None:
    labelled = await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")

    async def seen() -> bool:
        return store.workloads.has_seen(labelled)

    await first_answer(seen, "the label")
    decision = schedule_admission(store)
    written = await store.writer.write_queued(
        store.writer.enqueue(KEY), decision.info.obj, reserve_quota(store, decision)
    )
    assert written is not None
    owned = [entry["fieldsV1"] for entry in written["metadata"]["managedFields"] if "subresource" not in entry]
    assert [fields["f:metadata"] for fields in owned] == [{"f:labels": {".": {}, "f:a": {}}}]


async def test_watch_does_not_undo_an_assumed_admission(store: QueueStore, client: Client) -> None:
    decision = schedule_admission(store)
    write = store.writer.enqueue(KEY)
    labelled = await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")

    async def seen() -> bool:
        return store.workloads.has_seen(labelled)

    await first_answer(seen, "the label")
    assert store.state.cache.workloads[KEY].reserved_in == "team"
    assert await store.writer.write_queued(write, decision.info.obj, reserve_quota(store, decision)) is None
    assert store.state.cache.workloads[KEY].reserved_in == ""
    assert store.state.cache.workloads[KEY].obj["metadata"]["labels"] == {"a": "b"}


async def test_write_after_a_rejected_write_is_skipped(store: QueueStore, client: Client) -> None:
    decision = schedule_admission(store)
    first, second = store.writer.enqueue(KEY), store.writer.enqueue(KEY)
    obj = decision.info.obj
    await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")
    assert await store.writer.write_queued(first, obj, reserve_quota(store, decision)) is None
    assert await store.writer.write_queued(second, obj, evict(store)) is None
    assert not (await client.get(WORKLOADS, "one", "default")).get("status")
    assert not store.writer.is_writing(KEY)


async def test_unqueued_write_is_refused_while_another_is_queued(store: QueueStore) -> None:
    decision = schedule_admission(store)
    write = store.writer.enqueue(KEY)
    assert await store.writer.write_status(KEY, decision.info.obj, {}) is None
    assert await store.writer.write_queued(write, decision.info.obj, reserve_quota(store, decision)) is not None


async def test_deleted_workload_is_not_written(store: QueueStore, client: Client) -> None:
    decision = schedule_admission(store)
    write = store.writer.enqueue(KEY)
    await client.delete(WORKLOADS, "one", "default")

    async def is_deleted() -> bool:
        return store.workloads.get(*KEY) is None

    await first_answer(is_deleted, "the deletion")
    assert await store.writer.write_queued(write, decision.info.obj, reserve_quota(store, decision)) is None
    assert KEY not in store.state.cache.workloads
