"""Stop, resume, rerun and delete, by the buttons of a job's page; and signing in."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from tests.console.pages.conftest import Console, run_console, sign_in
from tests.console.pages.jobs import PYTORCHJOBS, pytorchjob
from tests.support.kubernetes import Server
from tests.support.waiting import eventually


def test_a_job_is_stopped_resumed_run_again_and_deleted(console: Console, plane: Server) -> None:
    assert plane.admin.post(PYTORCHJOBS, pytorchjob("acted-on", "import time; time.sleep(600)")).status == 201
    page = console.open("/job/default/pytorchjobs.kubeflow.org/acted-on")
    page.locator(".state", has_text="Running").first.wait_for()
    page.get_by_role("button", name="Stop").click()
    page.locator("dialog").get_by_role("button", name="Stop").click()
    page.locator(".state", has_text="Suspended").first.wait_for()
    page.get_by_role("button", name="Resume").click()
    page.locator(".page-head .state", has_text="Running").wait_for()

    page.get_by_role("button", name="Rerun").click()
    manifest = page.get_by_label("Manifest")
    manifest.fill(manifest.input_value().replace("sleep(600)", "sleep(601)"))
    page.locator("dialog").get_by_role("button", name="Run").click()
    page.locator("h1", has_text="acted-on-").wait_for()
    copies = [
        each for each in plane.admin.get(PYTORCHJOBS).json["items"] if each["metadata"]["name"].startswith("acted-on-")
    ]
    assert [each["metadata"]["annotations"]["torchyard.dev/rerun-of"] for each in copies] == ["acted-on"]
    assert "sleep(601)" in json.dumps(copies[0]["spec"])

    for name in (copies[0]["metadata"]["name"], "acted-on"):
        console.go(page, f"/job/default/pytorchjobs.kubeflow.org/{name}")
        page.locator("h1", has_text=name).wait_for()
        page.get_by_role("button", name="Delete").click()
        page.locator("dialog").get_by_role("button", name="Delete").click()
        page.locator("h1", has_text="Jobs").wait_for()
        eventually(partial(_is_gone, plane, name), f"the deletion of {name}")


def _is_gone(plane: Server, name: str) -> bool:
    return plane.admin.get(f"{PYTORCHJOBS}/{name}").status == 404


def test_an_error_of_the_server_is_shown_and_nothing_is_lost(console: Console) -> None:
    page = console.open("/job/default/pytorchjobs.kubeflow.org/broken")
    page.get_by_role("button", name="Rerun").click()
    page.get_by_label("Manifest").fill("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: Bad_Name}\n")
    page.locator("dialog").get_by_role("button", name="Run").click()
    page.locator("dialog [role=alert]", has_text="Bad_Name").wait_for()
    assert "Bad_Name" in page.get_by_label("Manifest").input_value()


def test_actions_that_are_not_allowed_are_disabled_with_the_reason(console: Console) -> None:
    def refuse(route: Any) -> None:
        route.fulfill(body=json.dumps({"status": {"allowed": False}}), content_type="application/json")

    page = console.window()
    page.route("**/selfsubjectaccessreviews", refuse)
    console.go(page, "/job/default/pytorchjobs.kubeflow.org/training")
    for name in ("Stop", "Rerun", "Delete"):
        page.locator(f"button:disabled:has-text('{name}')").wait_for()
        assert "You may not" in page.get_by_role("button", name=name).get_attribute("title")


def test_a_user_who_may_only_read_sees_everything_and_changes_nothing(
    chromium: Any, plane: Server, tmp_path: Path
) -> None:
    with run_console(reader_kubeconfig(plane, tmp_path), tmp_path) as link:
        console = Console(link.partition("#")[0], sign_in(chromium, link))
        page = console.open("/job/default/pytorchjobs.kubeflow.org/training")
        page.locator("text=master-0").first.wait_for()
        for name in ("Stop", "Rerun", "Delete"):
            page.locator(f"button:disabled:has-text('{name}')").wait_for()
        page.locator("button[title='You may not delete PyTorchJobs in this namespace.']").wait_for()
        console.go(page, "/job/default/pytorchjobs.kubeflow.org/training?tab=logs")
        page.locator("text=loss=").first.wait_for()
        refused = page.evaluate(
            """() => new Promise((resolve) => {
              const opening = indexedDB.open('torchyard-console', 1);
              opening.onsuccess = () => {
                const reading = opening.result.transaction('keys').objectStore('keys').get('proof');
                reading.onsuccess = () => crypto.subtle.exportKey('raw', reading.result).then(
                  () => resolve('exported'), (error) => resolve(error.name));
              };
            })"""
        )
        assert refused == "InvalidAccessError", "the key cannot be read out"
        page.reload()
        page.locator("text=loss=").first.wait_for()
        console.close()
        assert console.errors == []


def reader_kubeconfig(plane: Server, directory: Path) -> Path:
    """The kubeconfig of a service account that may read what there is, and nothing else."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    for path, body in (
        (accounts, {"metadata": {"name": "reader"}}),
        (f"{rbac}/clusterroles", {"metadata": {"name": "reader"}, "rules": rules}),
        (
            f"{rbac}/clusterrolebindings",
            {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": reference},
        ),
    ):
        assert plane.admin.post(path, body).status == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.admin.post(f"{accounts}/reader/token", request).json["status"]["token"]
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    file = directory / "reader.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


def test_without_a_session_the_page_says_what_to_run(console: Console, chromium: Any, link: str) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(console.base)
    page.locator("pre", has_text="yard console").wait_for()
    page.goto(link)  # its code has been used
    page.locator("pre", has_text="yard console").wait_for()
    context.close()
