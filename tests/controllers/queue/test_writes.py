"""Writes to one workload follow each other, and the book keeps what was decided until the last of them is answered."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.waiting import first_answer

from torchyard.api.objects import Object
from torchyard.controllers.queue.refs import WORKLOADS
from torchyard.controllers.queue.stores import State
from torchyard.core.queue import lifecycle
from torchyard.core.queue.scheduler import Admit, cycle
from torchyard.kube.client import Client

KEY = ("default", "one")


def decided(state: State) -> Admit:
    (decision,) = cycle(state.book, state.now())
    assert isinstance(decision, Admit)
    return decision


def reserved(state: State, decision: Admit) -> Any:
    queue = state.book.pools[decision.queue].queue
    return lambda obj: lifecycle.reserve(obj, queue, decision.assignment, state.now())


def evicted(state: State) -> Any:
    return lambda obj: lifecycle.evict(obj, "Preempted", "by the test", state.now())


def true_conditions(obj: Object) -> set[str]:
    return {one["type"] for one in obj["status"]["conditions"] if one["status"] == "True"}


async def test_an_eviction_follows_the_admission_it_ends(state: State, client: Client) -> None:
    decision = decided(state)
    first, second = state.turn(KEY), state.turn(KEY)
    obj = decision.item.obj
    answers = await asyncio.gather(
        state.write_next(second, obj, evicted(state)), state.write_next(first, obj, reserved(state, decision))
    )
    assert None not in answers
    assert true_conditions(await client.get(WORKLOADS, "one", "default")) == {"QuotaReserved", "Admitted", "Evicted"}
    assert state.book.items[KEY].is_evicted
    assert not state.is_writing(KEY)


async def test_who_labelled_a_workload_still_owns_the_label_when_it_is_admitted(state: State, client: Client) -> None:
    labelled = await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")

    async def seen() -> bool:
        return state.workloads.has_seen(labelled)

    await first_answer(seen, "the label")
    decision = decided(state)
    written = await state.write_next(state.turn(KEY), decision.item.obj, reserved(state, decision))
    assert written is not None
    owned = [entry["fieldsV1"] for entry in written["metadata"]["managedFields"] if "subresource" not in entry]
    assert [fields["f:metadata"] for fields in owned] == [{"f:labels": {".": {}, "f:a": {}}}]


async def test_until_it_is_written_news_do_not_undo_what_was_decided(state: State, client: Client) -> None:
    decision = decided(state)
    turn = state.turn(KEY)
    labelled = await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")

    async def seen() -> bool:
        return state.workloads.has_seen(labelled)

    await first_answer(seen, "the label")
    assert state.book.items[KEY].place == "team"
    assert await state.write_next(turn, decision.item.obj, reserved(state, decision)) is None
    assert state.book.items[KEY].place == ""
    assert state.book.items[KEY].obj["metadata"]["labels"] == {"a": "b"}


async def test_what_follows_a_refused_write_is_not_written(state: State, client: Client) -> None:
    decision = decided(state)
    first, second = state.turn(KEY), state.turn(KEY)
    obj = decision.item.obj
    await client.patch(WORKLOADS, "one", {"metadata": {"labels": {"a": "b"}}}, "default")
    assert await state.write_next(first, obj, reserved(state, decision)) is None
    assert await state.write_next(second, obj, evicted(state)) is None
    assert not (await client.get(WORKLOADS, "one", "default")).get("status")
    assert not state.is_writing(KEY)


async def test_who_did_not_wait_for_a_turn_is_told_that_others_were_faster(state: State) -> None:
    decision = decided(state)
    turn = state.turn(KEY)
    assert await state.write(KEY, decision.item.obj, {}) is None
    assert await state.write_next(turn, decision.item.obj, reserved(state, decision)) is not None


async def test_what_was_deleted_meanwhile_does_not_come_back(state: State, client: Client) -> None:
    decision = decided(state)
    turn = state.turn(KEY)
    await client.delete(WORKLOADS, "one", "default")

    async def gone() -> bool:
        return state.workloads.get(*KEY) is None

    await first_answer(gone, "the deletion")
    assert await state.write_next(turn, decision.item.obj, reserved(state, decision)) is None
    assert KEY not in state.book.items
