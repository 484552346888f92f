"""A draft is given away at most once, and only if it is exclusive."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchyard.api.objects import Object
from torchyard.apiserver.store.cache import Record
from torchyard.apiserver.store.draft import Draft
from torchyard.apiserver.store.errors import RevisionConflict
from torchyard.apiserver.store.store import Store
from torchyard.apiserver.store.watch import StoreEvent

KEY = "/boats/a/x"


def boat() -> Object:
    return {"metadata": {"name": "x"}, "status": {"knots": [1]}}


def test_an_exclusive_draft_is_given_away_once() -> None:
    draft = Draft(boat(), status_normalized=True)
    assert draft.give_away() is draft.obj
    assert draft.give_away() is None


def test_any_other_draft_is_never_given_away() -> None:
    assert Draft(boat()).give_away() is None


@pytest.mark.parametrize("is_exclusive", [True, False])
async def test_only_the_first_listener_gets_the_written_object_itself(tmp_path: Path, *, is_exclusive: bool) -> None:
    store = Store(tmp_path / "store.db")
    obj, taken = boat(), list[Object]()

    def take(event: StoreEvent) -> None:
        taken.append(event.record.take())

    store.listen("/boats/", take)
    store.listen("/boats/", take)
    record = await store.put(KEY, Draft(obj, status_normalized=is_exclusive), expected=0)
    await store.close()
    assert [copy is obj for copy in taken] == [is_exclusive, False]
    assert taken[0] == taken[1] == record.object()


async def test_after_the_publication_there_are_only_copies(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    obj = boat()
    record = await store.put(KEY, Draft(obj, status_normalized=True), expected=0)
    await store.close()
    assert record.take() is not obj
    assert record.take() == record.object()


async def test_a_draft_that_lost_the_race_is_not_published(tmp_path: Path) -> None:
    store, records = Store(tmp_path / "store.db"), list[Record]()

    def listen(event: StoreEvent) -> None:
        records.append(event.record)

    await store.put(KEY, Draft(boat()), expected=0)
    store.listen("/boats/", listen)
    draft = Draft(boat(), status_normalized=True)
    with pytest.raises(RevisionConflict):
        await store.put(KEY, draft, expected=0)
    await store.close()
    assert [record.rev for record in records] == [1]
    assert draft.give_away() is draft.obj
