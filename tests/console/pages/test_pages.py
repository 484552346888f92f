"""Every page opens, is live, fits a phone and is accessible."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.console.pages import fixed_cluster
from tests.console.pages.conftest import Console
from tests.console.pages.jobs import JOBS, job
from tests.support.effort import FULL
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

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


ODD_LINKS = [
    "/jobs?sort=constructor&group=__proto__",
    "/jobs?sort=-nothing&group=toString&kind=Bogus&phase=bogus&q=%25%E0%A4%A",
    "/compare?jobs=%25E0%25A4%25A,a/b/c,default/pytorchjobs.kubeflow.org/training,default/pytorchjobs.kubeflow.org/training",
    "/job/%E0%A4%A/pytorchjobs.kubeflow.org/%00",
    f"{TRAINING}?tab=bogus",
    f"{TRAINING}?tab=logs&rank=bogus&at=error",
    "/nodes?node=gone",
    "/constructor",
    "//",
]


@pytest.mark.parametrize("route", ODD_LINKS)
def test_an_odd_link_opens_a_page(console: Console, route: str) -> None:
    """No link, however someone shortened or changed it, leaves an empty window; errors of the page fail the test."""
    page = console.open(route)
    page.locator("main").wait_for()
    page.locator("text=Loading…").first.wait_for(state="detached")
    assert page.locator("main").inner_text().strip()
    assert page.locator("text=This page failed").count() == 0


def test_runs_of_one_name_are_compared_with_their_own_values(console: Console) -> None:
    def samples(route: Any) -> None:
        value = 1 if "/default/" in route.request.url else 2
        series = [{"name": "loss", "replica": "master-0", "unit": "", "points": [[1_700_000_000, value]]}]
        route.fulfill(json={"series": series, "lostBefore": None})

    def jobs(route: Any) -> None:
        namespace = "other" if "/namespaces/other/" in route.request.url else "default"
        memory = "1Gi" if namespace == "other" else "2Gi"
        worker = {"name": "pytorch", "image": "i", "resources": {"limits": {"memory": memory}}}
        containers = {"Master": {"name": "pytorch", "image": "i"}, "Worker": worker}
        replicas = {role: {"template": {"spec": {"containers": [each]}}} for role, each in containers.items()}
        metadata = {
            "name": "same",
            "namespace": namespace,
            "uid": namespace,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        item = {"metadata": metadata, "spec": {"pytorchReplicaSpecs": replicas}}
        route.fulfill(json={"metadata": {"resourceVersion": "1"}, "items": [item]})

    page = console.window()
    page.route("**/samples/**", samples)
    page.route("**/pytorchjobs?*", jobs)
    resource = "pytorchjobs.kubeflow.org"
    console.go(page, f"/compare?jobs=default/{resource}/same,other/{resource}/same")
    for title in ("default/same", "other/same"):
        page.locator("th", has_text=title).wait_for()

    def cells(title: str) -> list[str]:
        texts: list[str] = page.locator("tr", has_text=title).locator("td").all_inner_texts()
        return texts

    eventually(lambda: cells("last loss") == ["last loss", "1", "2"], "the values of both runs")
    eventually(lambda: cells("Worker: limits memory") == ["Worker: limits memory", "2Gi", "1Gi"], "their differences")


def test_a_chart_shows_the_values_at_the_cursor(console: Console) -> None:
    points = [[1_700_000_000 + 10 * step, step / 100] for step in range(100)]
    series = [
        {"name": "loss", "replica": replica, "unit": "", "points": points} for replica in ("master-0", "worker-0")
    ]
    page = console.window()
    page.route("**/samples/**", lambda route: route.fulfill(json={"series": series, "lostBefore": None}))
    console.go(page, f"{TRAINING}?tab=metrics")
    figure = page.locator("figure", has_text="loss")
    figure.locator(".u-over").hover(position={"x": 40, "y": 20})
    readout = figure.locator(".readout", has_text="worker-0")
    readout.wait_for()
    assert re.fullmatch(r"\d\d:\d\d:\d\d · master-0 (0\.\d+) · worker-0 \1", readout.inner_text())


def test_one_odd_object_does_not_hide_the_others(console: Console) -> None:
    metadata = {"namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    good, odd = ({**metadata, "name": name, "uid": name} for name in ("good", "odd"))
    page = console.window()
    body = {
        "metadata": {"resourceVersion": "1"},
        "items": [{"metadata": odd, "status": {"conditions": 7}}, {"metadata": good}],
    }
    page.route("**/apis/batch/v1/jobs?*", lambda route: route.fulfill(json=body))
    console.go(page, "/jobs?kind=Job")
    page.locator(".job-row", has_text="good").wait_for()
    page.locator("[role=alert]", has_text="Job default/odd cannot be shown").wait_for()


def test_what_may_not_be_read_is_not_called_empty(console: Console) -> None:
    """A user of one namespace, and one who may read jobs but not their pods."""

    def refuse(route: Any) -> None:
        body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "you cannot list it"}
        route.fulfill(status=403, json=body)

    page = console.window()
    for resource in (
        "namespaces",
        "nodes",
        "clusterqueues",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "events",
    ):
        page.route(f"**/{resource}?*", refuse)
    console.go(page, "/nodes")
    page.wait_for_url("**ns=default")  # the namespace of the user, where all may not be listed
    for route in ("/nodes", "/volumes", "/images", "/queues"):
        console.go(page, route)
        page.locator("[role=alert]", has_text="you cannot list it").first.wait_for()
        text = page.locator("main").inner_text()
        assert "Loading…" not in text, route
        assert "There are no" not in text, route
    console.go(page, "/overview")
    page.locator("section", has_text="Nodes").locator("text=you cannot list it").wait_for()
    page.locator("section", has_text="Queues").locator("text=you cannot list it").wait_for()
    console.go(page, TRAINING)
    page.locator("[role=alert]", has_text="Not shown: Pods, Events: you cannot list it").wait_for()
    page.locator("text=Pods could not be read.").wait_for()
    assert "is its controller running" not in page.locator("main").inner_text()


def test_a_server_that_is_gone_is_named(console: Console) -> None:
    page = console.open("/history")
    page.locator("h1", has_text="History").wait_for()
    console.go(page, "/jobs")
    page.locator(".job-row").first.wait_for()
    for path in ("k8s", "history", "streams"):
        page.route(f"**/console/{path}**", lambda route: route.abort())
        page.route(f"**/console/{path}/**", lambda route: route.abort())
    page.evaluate("location.hash = '/history'")
    page.locator("[role=alert]", has_text="The server of the console does not respond.").wait_for()
    page.locator("text=The history could not be read.").wait_for()
    page.evaluate("location.hash = '/nodes'")
    page.locator("[role=alert]", has_text="The server does not respond; trying again.").wait_for()


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


def test_a_job_of_five_hundred_replicas_is_shown_and_its_logs_are_read_in_turn(console: Console) -> None:
    """A response carries 128 watches and logs: a request for more would end all of them."""
    opened: list[int] = []

    def note(request: Any) -> None:
        if "/streams" in request.url:
            opened.append((request.post_data or "").count("/log?"))

    page = console.window()
    page.on("request", note)
    fixed_cluster.serve(page, has_logs=True, replicas=500)
    console.go(page, "/job/default/pytorchjobs.kubeflow.org/train-0?tab=logs")
    page.get_by_label("Replica").select_option("worker-450")
    page.locator(".line .who", has_text="worker-450").first.wait_for()
    page.keyboard.press("s")
    page.locator("tbody tr", has_text="worker-498").wait_for()
    assert page.locator("tbody tr").count() == 500
    assert 0 < max(opened) <= 64


def test_metrics_that_are_not_numbers_are_named_and_one_of_many_is_found(console: Console) -> None:
    points = [[1_700_000_000 + step, step] for step in range(20)]
    values = {"loss": None, "huge": 1e308, "tiny": 5e-324, **{f"layer.{number}.norm": 1 for number in range(100)}}
    series = [
        {"name": name, "replica": "", "unit": "", "points": [*points, [1_700_000_020, value]]}
        for name, value in values.items()
    ]
    page = console.window()
    fixed_cluster.serve(page, has_logs=False)
    page.route("**/samples/**", lambda route: route.fulfill(json={"series": series, "lostBefore": None}))
    console.go(page, "/job/default/pytorchjobs.kubeflow.org/train-0?tab=metrics")
    metrics = page.locator("section[aria-label=Metrics]")
    metrics.locator("figcaption", has_text=re.compile("^loss ?NaN$")).wait_for()
    metrics.locator("[role=status]", has_text="more").wait_for()
    page.get_by_role("button", name="logarithmic").click()
    page.get_by_label("Search metrics").fill("layer.98")
    metrics.locator("figcaption", has_text="layer.98.norm").wait_for()
    assert metrics.locator("figure").count() == 1
    page.get_by_label("Search metrics").fill("no such")
    page.locator("text=No metric matches.").wait_for()


def test_holding_a_job_that_runs_asks_first(console: Console) -> None:
    """Its pods are deleted. Holding one that waits loses nothing, and asks nothing."""
    metadata = {"namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    owner = {"kind": "Job", "name": "holds-quota", "uid": "j", "controller": True}
    workload = {
        "metadata": {**metadata, "name": "w", "uid": "w", "ownerReferences": [owner]},
        "spec": {"queueName": "default", "active": True},
        "status": {
            "conditions": [{"type": "Admitted", "status": "True"}],
            "admission": {"clusterQueue": "default"},
        },
    }
    patched: list[Any] = []

    def answer(route: Any) -> None:
        if route.request.method == "PATCH":
            patched.append(json.loads(route.request.post_data))
            route.fulfill(json=workload)
        else:
            route.fulfill(json={"metadata": {"resourceVersion": "1"}, "items": [workload]})

    page = console.window()
    page.route(re.compile("/kueue.x-k8s.io/v1beta2/(namespaces/default/)?workloads"), answer)
    console.go(page, "/queues")
    page.locator("tr", has_text="holds-quota").get_by_role("button", name="Hold").click()
    dialog = page.locator("dialog")
    dialog.locator("text=what they have not saved is lost").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="detached")
    assert patched == []
    page.locator("tr", has_text="holds-quota").get_by_role("button", name="Hold").click()
    dialog.get_by_role("button", name="Hold").click()
    page.locator("text=holds-quota is on hold").wait_for()
    assert patched == [{"spec": {"active": False}}]
