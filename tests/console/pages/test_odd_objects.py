"""Objects without what their kind usually has, and odd responses: no page fails, and the other objects are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.console.pages.conftest import Console

CREATED = "2026-01-01T00:00:00Z"
TRAINING = "/job/default/pytorchjobs.kubeflow.org/training"
# What a server of another version, another controller or a careless client may have stored.
ODD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "nulls": {"spec": None, "status": None},
    "empty": {"spec": {}, "status": {}},
    "other types": {"spec": 7, "status": "running"},
    "lists": {"spec": [], "status": []},
    "nulls in lists": {
        "spec": {
            "containers": [None],
            "volumes": [None],
            "resourceGroups": [None],
            "accessModes": None,
            "podSets": [None],
        },
        "status": {
            **{"conditions": [None], "containerStatuses": [None], "images": [None], "flavorsUsage": [None]},
            **{"flavorsReservation": [None], "admission": {"podSetAssignments": [None]}, "capacity": None},
        },
    },
    "numbers that are none": {
        "spec": {"capacity": {"storage": "many"}, "priority": "high", "parallelism": "x", "replicas": -3},
        "status": {"allocatable": {"cpu": "x", "memory": "-1", "nvidia.com/gpu": "1e999"}, "active": "a", "ready": {}},
    },
    "times that are none": {
        "spec": {"active": "perhaps"},
        "status": {
            "startTime": "yesterday",
            "completionTime": 12,
            "phase": {"a": 1},
            "conditions": [{"type": "Running"}],
        },
    },
}
PLACES = {
    "/jobs": ("pytorchjobs", "trainjobs", "jobsets", "jobs", "pods"),
    "/overview": ("nodes", "clusterqueues", "jobs"),
    "/queues": ("clusterqueues", "localqueues", "workloads"),
    "/nodes": ("nodes", "pods"),
    "/volumes": ("persistentvolumeclaims", "persistentvolumes", "pods"),
    "/images": ("nodes", "pods"),
}


def answer(page: Any, pattern: str, body: str) -> None:
    page.route(pattern, lambda route: route.fulfill(body=body, content_type="application/json"))


def _item(name: str, odd: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": CREATED}, **odd}


@pytest.mark.parametrize("route", PLACES)
def test_a_page_shows_the_others_beside_an_odd_object(console: Console, route: str) -> None:
    page = console.window()
    failed = []
    for resource in PLACES[route]:
        for form, odd in ODD.items():
            body = {"metadata": {"resourceVersion": "1"}, "items": [_item("odd", odd), _item("good", {})]}
            pattern = f"**/{resource}?*"
            answer(page, pattern, json.dumps(body))
            console.go(page, f"{route}?ns=default")
            page.reload()
            page.locator("h1").wait_for()
            page.locator("text=Loading…").first.wait_for(state="detached")
            page.locator("[role=status]", has_text="loading…").wait_for(state="detached")
            text = page.locator("main").inner_text()
            odd_words = [word for word in ("This page failed", "NaN", "[object") if word in text]
            if odd_words or console.errors:
                failed.append(f"{resource} with {form}: {console.errors} {text[-300:]}")
                console.errors.clear()
            page.unroute(pattern)
    assert failed == []


SAMPLES: dict[str, Any] = {
    "a list": [],
    "null": None,
    "no series": {"lostBefore": None},
    "series of another type": {"series": {"a": 1}, "lostBefore": "never"},
    "a series without points": {"series": [{"name": "loss", "replica": "master-0", "unit": ""}]},
    "points that are none": {
        "series": [{"name": "loss", "replica": "a", "unit": "", "points": [None, [1], ["x", "y"]]}]
    },
    "a name that is none": {"series": [{"name": None, "replica": 7, "unit": None, "points": [[1, 2], [2, 3]]}]},
    "text": "<html>a proxy says no</html>",
}


@pytest.mark.parametrize("tab", ["summary", "metrics"])
def test_samples_of_another_form_do_not_hide_the_job(console: Console, tab: str) -> None:
    page = console.window()
    failed = []
    for form, body in SAMPLES.items():
        text = body if isinstance(body, str) else json.dumps(body)
        answer(page, "**/samples/**", text)
        console.go(page, f"{TRAINING}?tab={tab}")
        with page.expect_response("**/samples/**"):
            page.reload()
        page.locator("h1", has_text="training").wait_for()
        page.evaluate("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")
        if "This page failed" in page.locator("main").inner_text() or console.errors:
            failed.append(f"{form}: {console.errors} {page.locator('main').inner_text()[:200]}")
            console.errors.clear()
        page.unroute("**/samples/**")
    assert failed == []


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"items": None},
        {"items": [None]},
        {"items": [{}]},
        {"items": [{"name": "a", "replicas": None}]},
        "x",
    ],
    ids=str,
)
def test_a_history_of_another_form_is_no_empty_window(console: Console, body: Any) -> None:
    page = console.window()
    text = body if isinstance(body, str) else json.dumps(body)
    answer(page, "**/console/history", text)
    console.go(page, "/history")
    page.locator("h1", has_text="History").wait_for()
    page.locator("text=Loading…").first.wait_for(state="detached")
    assert "This page failed" not in page.locator("main").inner_text()
