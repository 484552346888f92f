"""Writes to one workload follow each other, and the store keeps what was decided until the last of them is answered."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.waiting import first_answer

from torchyard.api.objects import Object
from torchyard.controllers.queue.gvr import WORKLOADS
from torchyard.controllers.queue.stores import QueueStore
from torchyard.core.queue import lifecycle
from torchyard.core.queue.scheduler import Admit, schedule
from torchyard.kube.client import Client

KEY = ("default", "one")


def decided(store: QueueStore) -> Admit:
    (decision,) = schedule(store.state, store.now())
    assert isinstance(decision, Admit)
    return decision


def reserved(store: QueueStore, decision: Admit) -> Any:
    queue = store.state.cache.cluster_queues[decision.cluster_queue].spec
    return lambda obj: lifecycle.reserve_quota(obj, queue, decision.assignment, store.now())


def evicted(store: QueueStore) -> Any:
    return lambda obj: lifecycle.evict(obj, "Preempted", "by the test", store.now())


def true_conditions(obj: Object) -> set[str]:
    return {one["type"] for one in obj["status"]["conditions"] if one["status"] == "True"}


async def test_an_eviction_follows_the_admission_it_ends(store: QueueStore, client: Client) -> None:
    decision = decided(store)
    first, second = store.writer.enqueue(KEY), store.writer.enqueue(KEY)
    obj = decision.info.obj
    answers = await asyncio.gather(
        store.writer.write_queued(second, obj, evicted(store)),
        store.writer.write_queued(first, obj, reserved(store, decision)),
    )
    assert None not in answers
    assert true_conditions(await client.get(WORKLOADS, "one", "default")) == {"QuotaReserved", "Admitted", "Evicted"}
    assert store.state.cache.workloads[KEY].is_evicted
    assert not store.writer.is_writing(KEY)


async def test_who_labelled_a_workload_still_owns_the_label_when_it_is_admitted(
    store: QueueStore, client: Client
) -> None:
    labelled = await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")

    async def seen() -> bool:
        return store.workloads.has_seen(labelled)

    await first_answer(seen, "the label")
    decision = decided(store)
    written = await store.writer.write_queued(store.writer.enqueue(KEY), decision.info.obj, reserved(store, decision))
    assert written is not None
    owned = [entry["fieldsV1"] for entry in written["metadata"]["managedFields"] if "subresource" not in entry]
    assert [fields["f:metadata"] for fields in owned] == [{"f:labels": {".": {}, "f:a": {}}}]


async def test_until_it_is_written_news_do_not_undo_what_was_decided(store: QueueStore, client: Client) -> None:
    decision = decided(store)
    turn = store.writer.enqueue(KEY)
    labelled = await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")

    async def seen() -> bool:
        return store.workloads.has_seen(labelled)

    await first_answer(seen, "the label")
    assert store.state.cache.workloads[KEY].reserved_in == "team"
    assert await store.writer.write_queued(turn, decision.info.obj, reserved(store, decision)) is None
    assert store.state.cache.workloads[KEY].reserved_in == ""
    assert store.state.cache.workloads[KEY].obj["metadata"]["labels"] == {"a": "b"}


async def test_what_follows_a_refused_write_is_not_written(store: QueueStore, client: Client) -> None:
    decision = decided(store)
    first, second = store.writer.enqueue(KEY), store.writer.enqueue(KEY)
    obj = decision.info.obj
    await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")
    assert await store.writer.write_queued(first, obj, reserved(store, decision)) is None
    assert await store.writer.write_queued(second, obj, evicted(store)) is None
    assert not (await client.get(WORKLOADS, "one", "default")).get("status")
    assert not store.writer.is_writing(KEY)


async def test_who_did_not_wait_for_a_turn_is_told_that_others_were_faster(store: QueueStore) -> None:
    decision = decided(store)
    turn = store.writer.enqueue(KEY)
    assert await store.writer.write_status(KEY, decision.info.obj, {}) is None
    assert await store.writer.write_queued(turn, decision.info.obj, reserved(store, decision)) is not None


async def test_what_was_deleted_meanwhile_does_not_come_back(store: QueueStore, client: Client) -> None:
    decision = decided(store)
    turn = store.writer.enqueue(KEY)
    await client.delete(WORKLOADS, "one", "default")

    async def gone() -> bool:
        return store.workloads.get(*KEY) is None

    await first_answer(gone, "the deletion")
    assert await store.writer.write_queued(turn, decision.info.obj, reserved(store, decision)) is None
    assert KEY not in store.state.cache.workloads
