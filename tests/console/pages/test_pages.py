"""Every page opens, is live, fits a phone and is accessible."""

from __future__ import annotations

import json

import pytest
from tests.console.pages.conftest import Console
from tests.console.pages.jobs import JOBS, job
from tests.support.effort import FULL
from tests.support.kubernetes import Server

TRAINING = "/job/default/pytorchjobs.kubeflow.org/training"
PAGES = {
    "/overview": "Overview",
    "/jobs": "Jobs",
    TRAINING: "training",
    f"{TRAINING}?tab=logs": "training",
    f"{TRAINING}?tab=metrics": "training",
    f"{TRAINING}?tab=events": "training",
    f"{TRAINING}?tab=yaml": "training",
    "/job/default/jobs.batch/elastic?tab=elastic": "elastic",
    "/queues": "Queues",
    "/nodes": "Nodes",
    "/volumes": "Volumes",
    "/images": "Images",
    "/history": "History",
    "/compare?jobs=default/pytorchjobs.kubeflow.org/training,default/pytorchjobs.kubeflow.org/broken": "Compare",
}


def test_every_page_fits_a_phone_and_has_no_serious_axe_findings(console: Console, axe: str) -> None:
    findings: dict[str, list[str]] = {}
    for dark in (False, True):
        page = console.window(width=360, dark=dark)
        for route, title in list(PAGES.items())[:: 4 if dark and not FULL else 1]:
            console.go(page, route)
            page.locator("h1", has_text=title).wait_for()
            page.locator("text=Loading…").first.wait_for(state="detached")
            overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if overflow > 0:
                findings.setdefault(route, []).append(f"{overflow} pixels too wide")
            page.evaluate(axe)
            violations = page.evaluate("axe.run().then(result => result.violations)")
            findings.setdefault(route, []).extend(
                f"{each['id']}: {each['nodes'][0]['html'][:200]}"
                for each in violations
                if each["impact"] in ("serious", "critical")
            )
    assert {route: each for route, each in findings.items() if each} == {}


def test_no_page_asks_another_server(console: Console) -> None:
    page = console.window()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for route in PAGES:
        console.go(page, route)
        page.wait_for_selector("h1")
    assert asked
    assert [url for url in asked if not url.startswith(console.base)] == []


def test_jobs_appear_and_disappear_while_the_list_is_open(console: Console, plane: Server) -> None:
    page = console.open("/jobs")
    page.locator(".job-row", has_text="training").first.wait_for()
    assert plane.admin.post(JOBS, job("appears", "print(1)")).status == 201
    page.locator(".job-row", has_text="appears").wait_for()
    plane.admin.delete(f"{JOBS}/appears", {"propagationPolicy": "Background"})
    page.locator(".job-row", has_text="appears").wait_for(state="detached")


def test_the_list_filters_searches_sorts_and_groups_by_the_url(console: Console) -> None:
    page = console.open("/jobs?phase=failed")
    page.locator(".job-row", has_text="broken").wait_for()
    assert page.locator(".job-row").count() == 1
    console.go(page, "/jobs?q=team%3Dvision")
    page.locator(".job-row", has_text="training").first.wait_for()
    assert page.locator(".job-row").count() == 1
    console.go(page, "/jobs?sort=name&group=team")
    page.locator(".group-row", has_text="vision").wait_for()
    page.get_by_label("Sort by Kind").click()
    assert "sort=kind" in page.url
    page.get_by_label("Search jobs").fill("no-such-job")
    page.locator("text=No job matches the filter.").wait_for()


def test_keys_move_open_search_and_help(console: Console) -> None:
    page = console.open("/jobs?sort=name")
    page.locator(".job-row", has_text="broken").wait_for()
    page.keyboard.press("j")
    page.locator(".job-row.selected").wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Search jobs"
    page.keyboard.type("broken")
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    page.locator("h1", has_text="broken").wait_for()
    assert "tab=logs" in page.url
    page.keyboard.press("y")
    page.locator(".yaml", has_text="kind: PyTorchJob").wait_for()
    page.keyboard.press("?")
    page.locator("dialog", has_text="Keyboard").wait_for()


def test_a_job_shows_ranks_metrics_events_and_why(console: Console) -> None:
    page = console.open(TRAINING)
    page.locator("td", has_text="worker-0").wait_for()
    page.locator(".timeline li.past", has_text="First step").wait_for()
    page.locator("figure", has_text="loss").locator("canvas").wait_for()
    console.go(page, f"{TRAINING}?tab=events")
    page.locator("td", has_text="Scheduled").first.wait_for()
    console.go(page, "/job/default/pytorchjobs.kubeflow.org/broken")
    page.locator(".why", has_text="first to fail: broken-master-0, exit code 1").wait_for()
    page.locator("text=Go to the first error").click()
    page.locator(".line.hit", has_text="Traceback").wait_for()


def test_an_elastic_job_shows_recoveries_with_their_phases_records_and_checkpoints(console: Console) -> None:
    page = console.open("/job/default/jobs.batch/elastic")
    page.locator("nav.tabs a", has_text="Elastic").click()
    page.locator("text=2 worlds, 1 worker lost, 1 checkpoint, 1,280 records committed.").wait_for()
    recovery = page.locator("tr", has_text="1 workers from step 40")
    recovery.locator("text=worker-1 died <b>").wait_for()
    recovery.locator("text=detect 12 ms · leave 1.0 ms · form the group 20 ms").wait_for()
    recovery.locator("text=1.05 s").wait_for()
    page.locator("tr", has_text="step 50 is durable at /ckpt/step-50").wait_for()
    assert page.locator("canvas").count() == 2
    page = console.open(TRAINING)
    page.locator("h1", has_text="training").wait_for()
    assert page.locator("nav.tabs a", has_text="Elastic").count() == 0


def test_logs_of_ranks_are_merged_filtered_and_searched(console: Console) -> None:
    page = console.open(f"{TRAINING}?tab=logs")
    page.locator(".line", has_text="rank 0 step=").first.wait_for()
    page.locator(".line", has_text="rank 1 step=").first.wait_for()
    page.get_by_label("Replica").select_option("worker-0")
    page.locator(".line", has_text="rank 0 ").first.wait_for(state="detached")
    page.get_by_label("Search the log").fill("step=3 ")
    page.locator(".line", has_text="rank 1 step=3 ").wait_for()
    assert page.locator(".line").count() == 1


def test_a_waiting_job_says_why_and_can_be_held_and_resumed(console: Console, plane: Server) -> None:
    page = console.open("/queues")
    row = page.locator("tr", has_text="too-large")
    row.locator("text=it can never fit").wait_for()
    row.get_by_role("button", name="Hold").click()
    row.get_by_role("button", name="Resume").click()
    row.get_by_role("button", name="Hold").wait_for()
    row.get_by_role("button", name="Move").click()
    page.locator("dialog").get_by_label("LocalQueue").select_option("default-user-queue")
    page.locator("dialog").get_by_role("button", name="Move").click()
    page.locator("tr", has_text="default/default-user-queue").first.wait_for()
    labels = plane.admin.get(f"{JOBS}/too-large").json["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "default-user-queue"


def test_ten_thousand_jobs_draw_only_what_is_in_sight(console: Console) -> None:
    metadata = {"namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    items = [{"metadata": {**metadata, "name": f"job-{n}", "uid": str(n)}, "spec": {}} for n in range(10_000)]
    page = console.window()
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items})
    page.route("**/apis/batch/v1/jobs?*", lambda route: route.fulfill(body=body, content_type="application/json"))
    console.go(page, "/jobs?kind=Job&sort=name")
    page.locator("text=10001 of").or_(page.locator("text=10000 of")).first.wait_for()
    assert page.locator(".job-row").count() < 100
    page.evaluate("document.querySelector('.vlist').scrollTop = 1e9")
    page.locator(".job-row", has_text="job-9999").wait_for()
    page.get_by_label("Search jobs").fill("job-4242")
    page.locator(".job-row", has_text="job-4242").wait_for()


@pytest.mark.parametrize("route", ["/no-such-page", "/job/default/pytorchjobs.kubeflow.org/gone", "/job/x/y/z"])
def test_links_to_what_does_not_exist_say_so(console: Console, route: str) -> None:
    page = console.open(route)
    page.locator(".empty", has_text="There is no").wait_for()


def test_a_replica_shows_how_much_of_its_gpus_it_uses(console: Console) -> None:
    series = [
        {"name": name, "replica": "master-0", "unit": unit, "points": [[1_700_000_000, value], [1_700_000_010, value]]}
        for name, unit, value in (("gpu", "gpus", 0.75), ("gpu_memory", "bytes", 4 << 30), ("cpu", "cores", 0.5))
    ]
    page = console.window()
    page.route("**/samples/**", lambda route: route.fulfill(json={"series": series, "lostBefore": None}))
    console.go(page, "/job/default/pytorchjobs.kubeflow.org/training")
    cell = page.locator("tr", has_text="master-0").locator("text=0.75 of 0")
    cell.wait_for()
    assert "GPU memory" in cell.get_attribute("title")
    page.keyboard.press("m")
    for name in ("gpu", "gpu_memory"):
        page.locator("section[aria-label=Use] .card", has_text=name).locator("canvas").first.wait_for()
