"""The worker's end of the control stream: which world it enters when several are announced. No sockets."""

from __future__ import annotations

import threading

import pytest

from torchyard.elastic import wire
from torchyard.elastic.errors import Rejected
from torchyard.elastic.wire import NO_FENCE, Fence, StartRendezvous, StartWorld, StoreValue
from torchyard.elastic.world.coordinator_client import CoordinatorClient, Superseded, WorkerStopped, parse_address

AGREED, NEXT = Fence(1, 1), Fence(1, 2)
GO = StartWorld(AGREED, ("a", "b"), 7, "a", ("b",), restore=False)


def link(*heard: wire.Message) -> tuple[CoordinatorClient, list[str]]:
    """A link that has heard these messages, and what it cut because of them."""
    cuts: list[str] = []
    made = CoordinatorClient(("127.0.0.1", 1), lambda: wire.Hello("j", "t", "b"), on_urgent=lambda: cuts.append("cut"))
    for message in heard:
        made._hear(message)
    return made, cuts


def test_an_agreed_world_is_entered_though_the_next_is_planned_already() -> None:
    """Else workers that keep arriving keep a leaving one from ever handing over the state that only it holds."""
    held, cuts = link(
        StartRendezvous(AGREED, False, "a leaves"),
        GO,
        StoreValue(AGREED, "0", "eA=="),
        StartRendezvous(NEXT, False, "c joined"),
    )
    assert held.wait_go(AGREED) == GO
    held.wait_values(AGREED, ["0"], timeout=0)
    assert held.value(AGREED, "0") == b"x"
    assert held.wanted(AGREED) == StartRendezvous(NEXT, False, "c joined")
    assert not cuts


def test_an_agreed_world_that_lost_a_member_is_not_entered() -> None:
    held, cuts = link(StartRendezvous(AGREED, False, "a leaves"), GO, StartRendezvous(NEXT, True, "a died"))
    with pytest.raises(Superseded):
        held.wait_go(AGREED)
    with pytest.raises(Superseded):
        held.wait_values(AGREED, ["0"], timeout=0)
    assert cuts == ["cut"]


def test_a_world_that_was_not_agreed_on_yet_gives_way_to_the_next() -> None:
    held, _ = link(StartRendezvous(AGREED, False, "b joined"), StartRendezvous(NEXT, False, "c joined"))
    with pytest.raises(Superseded):
        held.wait_go(AGREED)


def test_an_older_announcement_changes_nothing() -> None:
    held, _ = link(StartRendezvous(NEXT, False, "c joined"), StartRendezvous(AGREED, False, "b joined"))
    assert held.wait_reform(NO_FENCE, 0) == StartRendezvous(NEXT, False, "c joined")
    assert held.wanted(NEXT) is None


def test_a_peer_that_never_publishes_is_told_by_name_of_what_is_missing() -> None:
    held, _ = link(StartRendezvous(AGREED, False, "b joined"), GO)
    with pytest.raises(TimeoutError, match="0/peer"):
        held.wait_values(AGREED, ["0/peer"], timeout=0)


@pytest.mark.parametrize("news", [StartRendezvous(NEXT, True, "a died"), wire.Stop("finished", "30 steps")])
def test_forming_with_a_peer_that_died_before_it_connected_is_given_up_at_once(news: wire.Message) -> None:
    held, _ = link(StartRendezvous(AGREED, False, "b joined"), GO)
    waiting, released = threading.Event(), threading.Event()

    def form() -> None:
        waiting.set()
        released.wait(600)

    def tell() -> None:
        waiting.wait()
        held._hear(news)

    threading.Thread(target=tell).start()
    with pytest.raises(Superseded):
        held.do_until_overtaken(AGREED, form, timeout=500)
    released.set()


def test_what_forming_gives_or_raises_is_handed_on() -> None:
    held, _ = link(StartRendezvous(AGREED, False, "b joined"), GO, StartRendezvous(NEXT, False, "c joined"))
    assert held.do_until_overtaken(AGREED, lambda: 5, timeout=500) == 5
    with pytest.raises(ValueError, match="no device"):
        held.do_until_overtaken(AGREED, lambda: int("no device"), timeout=500)
    released = threading.Event()
    with pytest.raises(TimeoutError, match="did not connect"):
        held.do_until_overtaken(AGREED, lambda: released.wait(600), timeout=0)
    released.set()


def test_the_end_of_the_job_ends_every_wait() -> None:
    held, _ = link(wire.Stop("finished", "30 steps"))
    with pytest.raises(WorkerStopped, match="30 steps"):
        held.wait_reform(NO_FENCE)


def test_an_expelled_worker_that_can_still_hear_it_goes_on_as_a_newcomer() -> None:
    held, _ = link(wire.Stop("expelled", "no sign of life"))
    assert held.stop is None


def test_a_refusal_is_told_with_its_advice() -> None:
    held, cuts = link(wire.Rejection("OtherJob", "not this one", "check the address"))
    with pytest.raises(Rejected) as caught:
        held.wait_reform(NO_FENCE)
    assert (caught.value.code, caught.value.hint, cuts) == ("OtherJob", "check the address", ["cut"])


def test_applied_steps_are_told_together_in_order_and_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    held, _ = link()
    told: list[wire.Message] = []
    monkeypatch.setattr(held, "_put_out", told.append)
    for step in (1, 2, 3):
        held.applied(AGREED, (step, 0.5, ""))
    held.send(wire.TrainingDone(3, "d"))
    held.applied(NEXT, (4, 0.4, ""))
    held.send(wire.Heartbeat(4, "outside"))
    rows = [
        (message.fence, row[0]) for message in told if isinstance(message, wire.StepsApplied) for row in message.rows
    ]
    assert rows == [(AGREED, 1), (AGREED, 2), (AGREED, 3), (NEXT, 4)]
    kinds = [type(message) for message in told]
    assert kinds[-3:] == [wire.TrainingDone, wire.StepsApplied, wire.Heartbeat]
    assert kinds.count(wire.StepsApplied) == 3, "the first at once, the next two together, the last of another world"


def test_a_new_coordinator_is_told_the_steps_of_the_present_world(monkeypatch: pytest.MonkeyPatch) -> None:
    held, _ = link()
    told: list[wire.Message] = []
    monkeypatch.setattr(held, "_put_out", told.append)
    for fence, step in ((AGREED, 1), (NEXT, 2), (NEXT, 3)):
        held.applied(fence, (step, None, ""))
    told.clear()
    held._send_kept_rows()
    held.send(wire.Heartbeat(3, "outside"))
    assert told == [wire.StepsApplied(NEXT, ((2, None, ""), (3, None, ""))), wire.Heartbeat(3, "outside")]


@pytest.mark.parametrize("text", ["nowhere", "host:", ":1", "host:port"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="not an address"):
        parse_address(text)
