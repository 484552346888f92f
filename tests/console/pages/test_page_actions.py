"""What can be done on each page besides the actions of a job: choose, mark, search, zoom, follow, open."""

from __future__ import annotations

import re
from typing import Any

from tests.console.pages.conftest import Console
from tests.console.pages.jobs import JOBS, PYTORCHJOBS, container, job, phase, pytorchjob
from tests.support.kubernetes import Server
from tests.support.waiting import eventually

# Resolves when the wheel has stopped to move a list.
SCROLLED = """list => new Promise((done) => {
    let before = -1;
    const look = () => {
        if (list.scrollTop === before) return done();
        before = list.scrollTop;
        setTimeout(look, 200);
    };
    look();
})"""
TRAINING = "/job/default/pytorchjobs.kubeflow.org/training"
SLEEP = "import time; time.sleep(600)"


def test_columns_are_chosen_and_remembered(console: Console) -> None:
    page = console.open("/jobs")
    page.get_by_label("Sort by Queue").wait_for()
    page.locator("summary", has_text="Columns").click()
    page.locator(".menu-items label", has_text="Queue").locator("input").uncheck()
    page.get_by_label("Sort by Queue").wait_for(state="detached")
    page.reload()
    page.get_by_label("Sort by Name", exact=True).wait_for()
    assert page.get_by_label("Sort by Queue").count() == 0
    page.locator("summary", has_text="Columns").click()
    page.locator(".menu-items label", has_text="Queue").locator("input").check()
    page.get_by_label("Sort by Queue").wait_for()
    page.evaluate("localStorage.clear()")


def test_kind_group_and_namespace_are_chosen(console: Console) -> None:
    page = console.open("/jobs")
    page.get_by_role("combobox", name="Kind").select_option("PyTorchJob")
    page.locator(".job-row", has_text="too-large").wait_for(state="detached")
    page.locator(".job-row", has_text="training").first.wait_for()
    page.get_by_label("Group by").select_option("team")
    page.locator(".group-row", has_text="nlp").wait_for()
    page.get_by_role("button", name="failed").click()
    page.locator(".group-row", has_text="vision").wait_for(state="detached")
    page.locator("header.top select").select_option("kube-system")
    page.locator("text=No job matches the filter.").or_(page.locator("text=There are no jobs yet.")).wait_for()
    assert {"kind=PyTorchJob", "group=team", "phase=failed", "ns=kube-system"} <= set(
        page.url.partition("?")[2].split("&")
    )
    page.locator("nav a.page", has_text="Volumes").click()
    page.locator("h1", has_text="Volumes").wait_for()
    assert "ns=kube-system" in page.url, "the pages keep the namespace"


def test_jobs_are_marked_by_key_and_click_and_compared(console: Console) -> None:
    page = console.open("/jobs?kind=PyTorchJob&sort=name")
    page.locator(".job-row", has_text="training").first.wait_for()
    page.keyboard.press("j")
    page.locator(".job-row.selected").wait_for()
    page.keyboard.press("x")
    page.locator("text=mark another to compare").wait_for()
    page.locator(".job-row", has_text="training").first.click(modifiers=["Shift"])
    page.get_by_role("button", name="clear").click()
    assert page.locator(".job-row", has_text="☑").count() == 0
    for name in ("broken", "training"):
        page.locator(".job-row", has_text=name).first.click(modifiers=["Shift"])
    page.locator("a", has_text="Compare 2").click()
    page.locator("th", has_text="broken").wait_for()
    arguments = page.locator("tr", has_text="arguments")
    arguments.locator("text=out of memory").wait_for()
    page.locator("tr", has_text="Worker: replicas").wait_for()
    figure = page.locator("figure", has_text="loss")
    figure.locator("canvas").wait_for()
    assert figure.locator(".legend span").all_inner_texts() == ["broken", "training"]
    page.locator("th a", has_text="training").click()
    page.locator("h1", has_text="training").wait_for()


def test_the_theme_is_chosen_and_remembered(console: Console) -> None:
    page = console.open("/overview")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_label("Theme: as the system").click()
    page.get_by_label("Theme: light").click()
    page.get_by_label("Theme: dark").wait_for()
    dark = page.evaluate(background)
    assert dark != light
    page.reload()
    page.get_by_label("Theme: dark").wait_for()
    assert page.evaluate(background) == dark
    page.get_by_label("Theme: dark").click()
    page.get_by_label("Theme: as the system").wait_for()
    assert page.evaluate(background) == light


def test_numbers_lead_to_the_pages(console: Console) -> None:
    page = console.open("/jobs")
    page.locator("h1", has_text="Jobs").wait_for()
    for number, title in enumerate(("Overview", "Jobs", "Queues", "Nodes", "Volumes", "Images", "History"), 1):
        page.keyboard.press(str(number))
        page.locator("h1", has_text=title).wait_for()
        page.locator("nav a[aria-current=page]", has_text=title).wait_for()


def test_the_overview_counts_jobs_and_leads_to_them(console: Console) -> None:
    page = console.open("/overview")
    page.locator("a.count.failed b", has_text=re.compile("^[1-9]")).wait_for()
    page.locator("section", has_text="Failed last").locator("a", has_text="broken").wait_for()
    page.locator("section", has_text="Queues").locator(".meter").first.wait_for()
    page.locator("section", has_text="Nodes").locator("[role=meter][aria-label^='cpu: ']").wait_for()
    page.locator("a.count.failed").click()
    page.locator(".job-row", has_text="broken").wait_for()
    assert "phase=failed" in page.url
    page.go_back()
    page.locator("section", has_text="Running and waiting").get_by_role("link", name="training", exact=True).click()
    page.locator("h1", has_text="training").wait_for()


def test_a_log_is_searched_with_an_expression_shows_times_and_follows(console: Console) -> None:
    page = console.open(f"{TRAINING}?tab=logs")
    page.locator(".line", has_text="step=").first.wait_for()
    page.get_by_role("button", name=".*").click()
    page.get_by_label("Search the log").fill(r"^rank [0] step=[12] ")
    page.locator(".line", has_text="rank 1 ").first.wait_for(state="detached")
    assert page.locator(".line").count() == 2
    page.get_by_label("Search the log").fill("(")  # not an expression yet
    page.locator("main").wait_for()
    page.get_by_label("Search the log").fill("")
    page.get_by_role("button", name="time").click()
    page.locator(".line .time", has_text=re.compile(r"^\d\d:\d\d:\d\d")).first.wait_for()

    follow = page.get_by_role("button", name="follow")
    assert follow.get_attribute("aria-pressed") == "true"
    page.locator("text=/^[4-9][0-9] lines|^[0-9]{3,} lines/").wait_for()  # more than the window shows
    page.locator(".vlist").hover()
    page.mouse.wheel(0, -400)
    page.locator("button[aria-pressed=false]", has_text="follow").wait_for()
    page.locator(".vlist").evaluate(SCROLLED)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("f")
    page.locator("button[aria-pressed=true]", has_text="follow").wait_for()
    at_end = "each => each.scrollHeight - each.scrollTop - each.clientHeight < 40"
    page.wait_for_function(f"({at_end})(document.querySelector('.vlist'))")


def test_curves_are_smoothed_logarithmic_by_step_and_zoomed(console: Console) -> None:
    points = [[1_700_000_000 + 10 * step, 1 / (step + 1)] for step in range(100)]
    steps = [[1_700_000_000 + 10 * step, step] for step in range(100)]
    series = [
        {"name": "loss", "replica": "master-0", "unit": "", "points": points},
        {"name": "step", "replica": "master-0", "unit": "", "points": steps},
    ]
    page = console.window()
    page.route("**/samples/**", lambda route: route.fulfill(json={"series": series, "lostBefore": 1_700_000_000}))
    console.go(page, f"{TRAINING}?tab=metrics")
    page.locator("text=are not kept any more").wait_for()
    figure = page.locator("figure[aria-label^='loss']")
    plot = figure.locator(".u-over")

    def size() -> dict[str, float]:
        """Of the plot, which a change of the axes draws anew."""
        eventually(lambda: plot.bounding_box() is not None, "the curve is drawn")
        box: dict[str, float] = plot.bounding_box()
        return box

    def at(share: float) -> str:
        plot.hover(position={"x": size()["width"] * share, "y": 20})
        figure.locator(".readout", has_text="·").wait_for()
        return str(figure.locator(".readout").inner_text())

    before = at(0.9)
    box = size()
    page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40, steps=5)
    page.mouse.up()
    assert at(0.9) < before, "the right end is an earlier time now"
    plot.dblclick()
    assert at(0.9) == before
    section = page.locator("section[aria-label=Metrics]")
    section.get_by_role("button", name="by step").click()
    eventually(lambda: not re.match(r"\d\d:\d\d", at(0.5)), "the axis has steps")
    section.get_by_role("button", name="by step").click()
    eventually(lambda: bool(re.match(r"\d\d:\d\d", at(0.02))), "the axis has times again")
    plain = at(0.02)
    section.get_by_role("button", name="logarithmic").click()
    page.locator("button[aria-pressed=true]", has_text="logarithmic").wait_for()
    section.locator("input[type=range]").fill("0.95")
    assert at(0.02).split(" · ")[0] == plain.split(" · ")[0]
    assert at(0.5).split(" · ")[1] != f"{1 / 51:.4g}", "smoothed"


def test_the_yaml_is_copied_and_shows_managed_fields_when_asked(console: Console) -> None:
    page = console.open(f"{TRAINING}?tab=yaml")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    yaml = page.locator(".yaml")
    yaml.locator("text=kind: PyTorchJob").wait_for()
    assert "managedFields" not in yaml.inner_text()
    page.get_by_role("button", name="Copy").click()
    page.locator(".toasts", has_text="Copied").wait_for()
    assert "kind: PyTorchJob" in page.evaluate("navigator.clipboard.readText()")
    page.get_by_label("managed fields").check()
    yaml.locator("text=managedFields").wait_for()


def test_trackers_named_in_the_environment_are_links(console: Console, plane: Server) -> None:
    body = pytorchjob("tracked", SLEEP)
    (main,) = body["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    main["env"] = [
        {"name": "TENSORBOARD_URL", "value": "http://tensorboard.example/#scalars"},
        {"name": "MLFLOW_TRACKING_URI", "value": "https://mlflow.example/experiments/1"},
        {"name": "WANDB_BASE_URL", "value": "javascript:alert(1)//https://wandb.example"},
    ]
    assert plane.admin.post(PYTORCHJOBS, body).status == 201
    page = console.open("/job/default/pytorchjobs.kubeflow.org/tracked")
    board = page.locator("a", has_text="TensorBoard")
    board.wait_for()
    assert board.get_attribute("href") == "http://tensorboard.example/#scalars"
    assert page.locator("a", has_text="MLflow").get_attribute("href") == "https://mlflow.example/experiments/1"
    assert {"noopener", "noreferrer"} <= set(board.get_attribute("rel").split())
    assert page.locator("a", has_text="Weights").count() == 0, "not a link to a web page"
    assert plane.admin.delete(f"{PYTORCHJOBS}/tracked").status == 200


def test_a_deleted_job_is_found_in_the_history_with_its_manifest(console: Console, plane: Server) -> None:
    assert plane.admin.post(PYTORCHJOBS, pytorchjob("forgotten", "raise SystemExit(3)")).status == 201
    eventually(lambda: phase(plane, "forgotten") == "Failed", "the job fails")
    page = console.open("/history")
    page.get_by_label("Search the history").fill("forgotten")
    row = page.locator("tr", has_text="forgotten")
    row.locator("a").wait_for()
    assert plane.admin.delete(f"{PYTORCHJOBS}/forgotten").status == 200
    row.locator("text=deleted").wait_for()
    assert row.locator("td").nth(4).inner_text() == "3"
    row.get_by_role("button", name="forgotten").click()
    dialog = page.locator("dialog")
    dialog.locator("text=exit code 3").wait_for()
    dialog.locator(".yaml", has_text="kind: PyTorchJob").wait_for()
    dialog.locator("code", has_text="yard logs forgotten -n default").wait_for()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_label("Search the history").fill("no such job")
    page.locator("text=No ended job matches").wait_for()


def test_nodes_volumes_and_images_name_who_uses_them(console: Console, plane: Server) -> None:
    claim = {
        "metadata": {"name": "shared-data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert plane.admin.post("/api/v1/namespaces/default/persistentvolumeclaims", claim).status == 201
    body = job("uses-volume", SLEEP)
    spec = body["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared-data"}}]
    spec["terminationGracePeriodSeconds"] = 0
    spec["containers"] = [container(SLEEP, volumeMounts=[{"name": "data", "mountPath": "/data"}])]
    assert plane.admin.post(JOBS, body).status == 201

    page = console.open("/volumes")
    row = page.locator("tr", has_text="shared-data").first
    row.locator(".state", has_text="Bound").wait_for()
    row.locator("td", has_text="uses-volume-").wait_for()
    page.locator("section", has_text="PersistentVolumes").locator("tr", has_text="default/shared-data").wait_for()

    console.go(page, "/nodes")
    pod = page.locator("tr", has_text="uses-volume-")
    pod.wait_for()
    page.locator("h3", has_text="Used").wait_for()
    pod.locator("a").click()
    page.locator(".job-row", has_text="uses-volume").wait_for()

    console.go(page, "/images")
    image = page.locator("tr", has_text="python:3.11")
    image.locator("a", has_text="default/training").wait_for()
    image.locator("a", has_text="default/training").click()
    page.locator(".job-row", has_text="training").first.wait_for()

    console.go(page, TRAINING)
    page.locator("td a[href^='#/nodes']").first.click()
    page.locator("a", has_text="Show all").click()
    page.locator("h1", has_text="Nodes").wait_for()
    assert "node=" not in page.url
    plane.admin.delete(f"{JOBS}/uses-volume", {"propagationPolicy": "Background"})


def test_a_log_of_one_replica_is_opened_from_the_summary(console: Console) -> None:
    page = console.open(TRAINING)
    page.locator("td a", has_text="worker-0").click()
    page.locator(".line", has_text="rank 1 step=").first.wait_for()
    assert page.get_by_label("Replica").input_value() == "worker-0"
    page.keyboard.press("Escape")
    page.locator("h1", has_text="Jobs").wait_for()


def test_dialogs_are_left_by_escape_and_cancel_without_an_action(console: Console) -> None:
    page = console.open(TRAINING)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.method) if "/k8s/apis/kubeflow" in request.url else None)
    for name in ("Stop", "Rerun", "Delete"):
        page.get_by_role("button", name=name, exact=True).click()
        page.locator("dialog").wait_for()
        page.keyboard.press("Escape")
        page.locator("dialog").wait_for(state="detached")
        page.get_by_role("button", name=name, exact=True).click()
        page.locator("dialog").get_by_role("button", name="Cancel").click()
        page.locator("dialog").wait_for(state="detached")
    assert set(requests) <= {"GET"}


def test_the_whole_list_is_worked_by_keys_alone(console: Console) -> None:
    """From the first key to an action that asks, without a mouse."""
    page = console.open("/jobs?sort=name&kind=PyTorchJob")
    page.locator(".job-row", has_text="training").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("training")
    page.locator(".job-row", has_text="broken").wait_for(state="detached")
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.locator(".job-row.selected", has_text="training").wait_for()
    page.keyboard.press("Enter")
    page.locator("h1", has_text="training").wait_for()
    button = page.get_by_role("button", name="Stop", exact=True)
    button.wait_for()
    for _ in range(60):
        if button.evaluate("each => each === document.activeElement"):
            break
        page.keyboard.press("Tab")
    outline: Any = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "the focus is visible"
    page.keyboard.press("Enter")
    page.locator("dialog", has_text="Stop training?").wait_for()
    page.keyboard.press("j")  # keys of the page below do nothing
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert button.evaluate("each => each === document.activeElement"), "the focus returns to the button"


def test_on_a_phone_the_current_tab_and_page_are_in_sight(console: Console) -> None:
    page = console.window(width=360)
    for route, selector in ((f"{TRAINING}?tab=yaml", "nav.tabs"), ("/history", "nav.nav")):
        console.go(page, route)
        current = page.locator(f"{selector} [aria-current=page]")
        current.wait_for()
        box = current.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360


def test_on_a_phone_a_message_is_below_its_row_and_in_sight(console: Console) -> None:
    page = console.window(width=360)
    for route, text in ((f"{TRAINING}?tab=events", "pytorch"), ("/queues", "it can never fit")):
        console.go(page, route)
        message = page.locator("td.wide", has_text=text).first
        message.wait_for()
        box = message.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
