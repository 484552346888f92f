"""Quotas over time: what is promised counts, what is finished or gone does not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.apiserver.access.memory_lister import MemoryLister

from torchyard.api.errors import StatusError
from torchyard.api.objects import Object
from torchyard.api.quota.usage import usage_of
from torchyard.apiserver.access.admission.attributes import AdmissionAttributes, Operation
from torchyard.apiserver.access.admission.chain import BuiltInAdmission
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.access.lister import CachingLister
from torchyard.apiserver.access.rbac import Authorizer

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def new_object(kind: str, name: str, **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "team"}, **more}


def quota(**hard: str) -> Object:
    return new_object("ResourceQuota", "q", spec={"hard": hard})


def pod(name: str, cpu: str = "1", phase: str = "Running") -> Object:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return new_object("Pod", name, spec={"containers": containers}, status={"phase": phase})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(clock: Clock) -> BuiltInAdmission:
    return BuiltInAdmission(Authorizer(MemoryLister()), now=lambda: NOW, monotonic=clock)


def charge(
    admission: BuiltInAdmission,
    memory: MemoryLister,
    obj: Object,
    *,
    old: Object | None = None,
    dry_run: bool = False,
    resource: str = "pods",
) -> bool:
    """Whether a write is admitted."""
    operation: Operation = "CREATE" if old is None else "UPDATE"
    name = obj["metadata"]["name"]
    attributes = AdmissionAttributes(
        operation, "", resource, "team", name, User("u"), memory, obj=obj, old=old, dry_run=dry_run
    )
    try:
        admission.charge(attributes)
    except StatusError as error:
        assert (error.status, "exceeded quota" in error.message) == (403, True)
        return False
    return True


def test_concurrent_creates_cannot_exceed_a_quota(admission: BuiltInAdmission) -> None:
    memory = MemoryLister(quota(pods="3"))
    assert [charge(admission, memory, pod(f"p{number}")) for number in range(5)] == [True] * 3 + [False] * 2


def test_a_reserved_object_counts_once_after_it_is_stored(admission: BuiltInAdmission) -> None:
    memory = MemoryLister(quota(pods="2"))
    for name in ("a", "b"):
        assert charge(admission, memory, pod(name))
        memory.put(pod(name))
    assert not charge(admission, memory, pod("c"))
    memory.remove(pod("a"))
    assert charge(admission, memory, pod("c"))


def test_the_reservation_of_a_failed_create_expires(admission: BuiltInAdmission, clock: Clock) -> None:
    memory = MemoryLister(quota(pods="1"))
    assert charge(admission, memory, pod("a"))
    assert not charge(admission, memory, pod("b"))
    clock.seconds += 11
    assert charge(admission, memory, pod("b"))


def test_a_dry_run_makes_no_reservation(admission: BuiltInAdmission) -> None:
    memory = MemoryLister(quota(pods="1"))
    assert charge(admission, memory, pod("a"), dry_run=True)
    assert charge(admission, memory, pod("b"))


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({"status": {"phase": "Succeeded"}}, True),
        ({"status": {"phase": "Failed"}}, True),
        ({"status": {"phase": "Pending"}}, False),
    ],
)
def test_finished_pods_use_only_the_object_count(admission: BuiltInAdmission, changes: Object, free: bool) -> None:
    stored = {**pod("a"), **changes}
    assert charge(admission, MemoryLister(quota(**{"requests.cpu": "1"}), stored), pod("b")) is free
    assert not charge(admission, MemoryLister(quota(**{"count/pods": "1"}), stored), pod("b"))


def test_a_pod_past_its_grace_period_uses_no_quota(admission: BuiltInAdmission) -> None:
    ended = pod("a")
    ended["metadata"] |= {"deletionTimestamp": "2029-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30}
    assert charge(admission, MemoryLister(quota(pods="1"), ended), pod("b"))


def test_an_update_is_charged_the_difference(admission: BuiltInAdmission) -> None:
    def service(*ports: int) -> Object:
        return new_object("Service", "s", spec={"type": "NodePort", "ports": [{"port": port} for port in ports]})

    memory = MemoryLister(quota(**{"services.nodeports": "2"}), service(1))
    assert charge(admission, memory, service(1, 2), old=service(1), resource="services")
    assert not charge(admission, memory, service(1, 2, 3), old=service(1), resource="services")
    assert charge(admission, memory, service(), old=service(1), resource="services")


def test_the_charged_usage_is_returned(admission: BuiltInAdmission) -> None:
    memory = MemoryLister(quota(pods="3", secrets="1", **{"requests.cpu": "4"}), pod("a"))
    attributes = AdmissionAttributes("CREATE", "", "pods", "team", "b", User("u"), memory, obj=pod("b", "500m"))
    assert admission.charge(attributes) == {"q": {"pods": "2", "requests.cpu": "1500m"}}


def test_other_namespaces_do_not_count(admission: BuiltInAdmission) -> None:
    elsewhere = pod("a")
    elsewhere["metadata"]["namespace"] = "other"
    assert charge(admission, MemoryLister(quota(pods="1"), elsewhere), pod("b"))


def test_a_caching_lister_reads_again_only_after_a_change() -> None:
    memory = MemoryLister(quota(pods="1"))
    lookup = CachingLister(memory)
    assert [list(lookup.list("", "resourcequotas", "team")) for _ in range(3)] == [[quota(pods="1")]] * 3
    assert memory.reads == 1
    memory.put(quota(pods="2"))
    assert list(lookup.list("", "resourcequotas", "team")) == [quota(pods="2")]
    assert lookup.get("", "resourcequotas", "team", "q") == quota(pods="2")
    assert lookup.get("", "resourcequotas", "team", "missing") is None


def test_a_pod_with_the_longest_grace_period_uses_resources_until_it_is_removed() -> None:
    terminating = pod("p")
    terminating["metadata"] |= {"deletionTimestamp": "9999-12-31T23:59:59Z", "deletionGracePeriodSeconds": 2**63 - 1}
    assert usage_of("", "pods", terminating, NOW)["pods"].nano == 10**9
