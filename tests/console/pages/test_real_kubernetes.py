"""The pages at a real kube-apiserver, which has no kinds of ours, no queues, no metrics and no server part of ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.console.pages.conftest import Console, run_console, sign_in
from tests.console.pages.jobs import JOBS, job
from tests.support.kubernetes import Server
from tests.support.waiting import eventually


@pytest.mark.cluster
def test_the_pages_work_on_a_cluster_without_torchyard(chromium: Any, kube: Server, tmp_path: Path) -> None:
    assert kube.admin.post(JOBS, job("on-a-cluster", "print(1)")).status == 201
    with run_console(kube.kubeconfig, tmp_path) as link:
        console = Console(link.partition("#")[0], sign_in(chromium, link))
        page = console.open("/jobs")
        page.locator(".job-row", has_text="on-a-cluster").click()
        page.locator(".why", has_text="Job on-a-cluster is Pending").wait_for()
        page.get_by_role("button", name="Stop").click()
        page.locator("dialog").get_by_role("button", name="Stop").click()
        page.locator(".page-head .state", has_text="Suspended").wait_for()
        assert kube.admin.get(f"{JOBS}/on-a-cluster").json["spec"]["suspend"] is True
        page.get_by_role("button", name="Resume").click()
        page.locator(".page-head .state", has_text="Pending").wait_for()
        page.get_by_role("button", name="Rerun").click()
        page.locator("dialog").get_by_role("button", name="Run").click()
        page.locator("h1", has_text="on-a-cluster-").wait_for()
        console.go(page, "/queues")
        page.locator("text=This cluster does not serve kueue.x-k8s.io.").wait_for()
        console.go(page, "/history")
        page.locator("text=This server keeps no history").wait_for()
        for route in ("/overview", "/nodes", "/volumes", "/images"):
            console.go(page, route)
            page.locator("text=Loading…").first.wait_for(state="detached")
            assert page.locator("[role=alert]").count() == 0
        console.go(page, "/job/default/jobs.batch/on-a-cluster")
        page.get_by_role("button", name="Delete").click()
        page.locator("dialog").get_by_role("button", name="Delete").click()
        eventually(partial(_is_deleted, kube), "the deletion of the job")
        console.close()
        assert console.errors == []


def _is_deleted(server: Server) -> bool:
    return server.admin.get(f"{JOBS}/on-a-cluster").status == 404
