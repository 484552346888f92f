"""The usage of a quota."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from torchyard.api.objects import Object
from torchyard.core.quota.status import counted_resources, quota_status

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def quota(hard: dict[str, str], **spec: Any) -> Object:
    return {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": hard, **spec}}


def pod(cpu: str, **status: Any) -> Object:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers}, "status": status}


@pytest.mark.parametrize(
    ("limit", "resource"),
    [
        ("pods", ("", "pods")),
        ("requests.nvidia.com/gpu", ("", "pods")),
        ("limits.memory", ("", "pods")),
        ("secrets", ("", "secrets")),
        ("services.nodeports", ("", "services")),
        ("requests.storage", ("", "persistentvolumeclaims")),
        ("fast.storageclass.storage.k8s.io/requests.storage", ("", "persistentvolumeclaims")),
        ("count/jobs.batch", ("batch", "jobs")),
        ("count/pytorchjobs.kubeflow.org", ("kubeflow.org", "pytorchjobs")),
        ("count/secrets", ("", "secrets")),
    ],
)
def test_each_limit_names_the_resource_to_count(limit: str, resource: tuple[str, str]) -> None:
    assert counted_resources(quota({limit: "1"})) == {resource}


def test_usage_is_summed_over_all_counted_objects() -> None:
    objects = {
        ("", "pods"): [pod("1"), pod("500m"), pod("7", phase="Succeeded")],
        ("", "secrets"): [{"metadata": {"name": "s"}}],
        ("batch", "jobs"): [{"metadata": {"name": "j"}}, {"metadata": {"name": "k"}}],
    }
    hard = {"pods": "4", "cpu": "2", "count/pods": "9", "secrets": "1", "services": "3", "count/jobs.batch": "5"}
    assert quota_status(quota(hard), objects, NOW) == {
        "hard": hard,
        "used": {
            "pods": "2",
            "cpu": "1500m",
            "count/pods": "3",
            "secrets": "1",
            "services": "0",
            "count/jobs.batch": "2",
        },
    }


def test_only_pods_in_the_scopes_are_counted() -> None:
    status = quota_status(
        quota({"pods": "4"}, scopes=["BestEffort"]),
        {("", "pods"): [pod("1"), pod("0"), {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}}]},
        NOW,
    )
    assert status["used"] == {"pods": "2"}
