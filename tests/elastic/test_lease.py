"""The lease becomes longer while workers are only slow, and returns to what was configured."""

from __future__ import annotations

from torchyard.elastic.coordinator.lease import SHORTEN_AFTER, Lease


def expel(lease: Lease, name: str, pid: int, now: float) -> bool:
    """Expel a worker that comes back."""
    lease.expelled(name, pid)
    return lease.joined(name, pid, now)


def test_a_process_that_comes_back_extends_the_lease() -> None:
    lease = Lease(1.0)
    assert expel(lease, "a", 7, now=0.0)
    assert lease.seconds == 2.0
    assert not lease.joined("a", 7, 1.0), "it was expelled once"


def test_a_replacement_of_the_same_name_does_not_extend_the_lease() -> None:
    lease = Lease(1.0)
    lease.expelled("a", 7)
    assert not lease.joined("a", 8, 0.0)
    assert not lease.joined("b", 9, 0.0)
    assert lease.seconds == 1.0


def test_the_lease_is_extended_eightfold_at_most() -> None:
    lease = Lease(0.5)
    assert [expel(lease, "a", 1, now) for now in range(5)] == [True, True, True, False, False]
    assert lease.seconds == 4.0


def test_the_lease_returns_in_steps_and_never_below_what_was_configured() -> None:
    lease = Lease(1.0)
    expel(lease, "a", 1, 0.0)
    expel(lease, "a", 1, 0.0)
    lease.shorten(SHORTEN_AFTER)
    assert lease.seconds == 4.0
    for number, seconds in ((1, 2.0), (2, 1.0), (3, 1.0)):
        lease.shorten(number * (SHORTEN_AFTER + 1))
        assert lease.seconds == seconds
