"""When a ServiceCIDR is ready, and when it may go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from torchyard.api.times import to_rfc3339
from torchyard.core.service.service_cidr import FINALIZER, IN_USE_MESSAGE, decide, is_usable

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def cidr(*ranges: str, deleted: datetime | None = None, finalizers: tuple[str, ...] = (FINALIZER,)) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "x", "finalizers": list(finalizers)}
    if deleted is not None:
        metadata["deletionTimestamp"] = to_rfc3339(deleted)
    return {"metadata": metadata, "spec": {"cidrs": list(ranges)}}


def test_a_new_range_gets_its_finalizer_and_is_ready() -> None:
    decision = decide(cidr("10.1.0.0/24", finalizers=("a/b",)), [], [], NOW)
    assert decision.metadata is not None
    assert decision.metadata["metadata"]["finalizers"] == ["a/b", FINALIZER]
    decision = decide(cidr("10.1.0.0/24"), [], [], NOW)
    assert decision.status is not None
    assert is_usable(decision.status)
    assert decide(decision.status, [], [], NOW).status is None


def test_a_range_stays_while_an_address_is_in_no_other_one() -> None:
    going = cidr("10.1.0.0/24", "fd00::/112", deleted=NOW)
    for address in ("10.1.0.7", "fd00::1"):
        decision = decide(going, [cidr("10.2.0.0/24")], ["10.3.0.1", address], NOW)
        assert decision.status is not None
        assert decision.status["status"]["conditions"][0]["message"] == IN_USE_MESSAGE
        assert not is_usable(decision.status)
    assert decide(going, [cidr("10.1.0.0/16")], ["10.1.0.7"], NOW).status is None
    assert decide(going, [cidr("10.1.0.0/16", deleted=NOW)], ["10.1.0.7"], NOW).status is not None


def test_an_unused_range_goes_after_ten_seconds() -> None:
    going = cidr("10.1.0.0/24", deleted=NOW, finalizers=("a/b", FINALIZER))
    assert decide(going, [], [], NOW).requeue_after == 10
    decision = decide(going, [], [], NOW + timedelta(seconds=10))
    assert decision.metadata is not None
    assert decision.metadata["metadata"]["finalizers"] == ["a/b"]
    assert decide(cidr("10.1.0.0/24", deleted=NOW, finalizers=()), [], [], NOW).metadata is None
