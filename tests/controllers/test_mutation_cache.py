"""A controller reads its own writes before its informer has seen them, and keeps them no longer than that."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.api.gvr import PODS
from torchyard.api.objects import Object
from torchyard.controllers.mutation_cache import MutationCache
from torchyard.kube.client import Client, WatchEvent
from torchyard.kube.informer import Informer, by_owner
from torchyard.kube.packed_informer import PackedInformer


class _FedInformer(Informer):
    """Takes its events from the test."""

    def feed(self, event_type: str, obj: Object) -> None:
        self._apply_all([WatchEvent(event_type, obj)])


class _FedPackedInformer(PackedInformer):
    feed = _FedInformer.feed


def pod(name: str, version: int, owner: str = "job") -> Object:
    references = [{"uid": owner, "controller": True}]
    return {
        "metadata": {"namespace": "n", "name": name, "resourceVersion": str(version), "ownerReferences": references}
    }


@pytest.fixture(params=[_FedInformer, _FedPackedInformer])
def informer(request: pytest.FixtureRequest) -> Any:
    transport: Any = None
    return request.param(Client(transport, manager="test"), PODS, indexes={"owner": by_owner})


def test_a_write_is_read_until_the_informer_has_a_newer_one(informer: Any) -> None:
    cache = MutationCache(informer)
    informer.feed("ADDED", pod("a", 1))
    cache.record(pod("a", 3))
    assert cache.get(("n", "a")) == pod("a", 3)
    informer.feed("MODIFIED", pod("a", 2))
    assert cache.get(("n", "a")) == pod("a", 3)
    informer.feed("MODIFIED", pod("a", 4))
    assert cache.get(("n", "a")) == pod("a", 4)
    informer.feed("DELETED", pod("a", 5))
    assert cache.get(("n", "a")) is None


def test_a_group_has_what_was_written_and_what_the_informer_has(informer: Any) -> None:
    cache = MutationCache(informer, "owner", by_owner)
    informer.feed("ADDED", pod("a", 1))
    cache.record(pod("b", 2))
    cache.record(pod("c", 3, "other"))
    assert cache.by_index("job") == [pod("a", 1), pod("b", 2)]
    assert cache.by_index("other") == [pod("c", 3, "other")]
    assert cache.by_index("none") == []


def test_a_write_that_the_informer_has_seen_is_not_recorded(informer: Any) -> None:
    cache = MutationCache(informer, "owner", by_owner)
    informer.feed("ADDED", pod("a", 1))
    informer.feed("DELETED", pod("a", 2))
    cache.record(pod("a", 1))
    assert cache.get(("n", "a")) is None
    assert cache.by_index("job") == []


def test_writes_are_forgotten_though_nobody_reads_them(informer: Any) -> None:
    cache = MutationCache(informer, "owner", by_owner)
    for number in range(10):
        cache.record(pod(f"p{number}", number + 1))
    assert cache.pending == 10
    for number in range(10):
        informer.feed("ADDED", pod(f"p{number}", number + 1))
    informer.feed("DELETED", pod("p0", 11))
    assert cache.pending == 0
    assert len(cache.by_index("job")) == 9
