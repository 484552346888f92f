"""The pages at a real Kubernetes whose pods really run: logs, curves of what they print, and the Elastic tab."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.pages.conftest import Console, run_console, sign_in
from tests.console.pages.jobs import ELASTIC, FAIL, JOBS, TRAIN, job
from tests.support.images import install_busybox, install_python, pack
from tests.support.kubernetes import Server, from_kubeconfig
from tests.support.real_node import load_image, real_node
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
ELASTIC_JOB = "/job/default/jobs.batch/elastic"
TRAINING = "/job/default/jobs.batch/training"


@pytest.fixture(scope="module")
def cluster(driver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("real-node")
    with real_node(directory) as kubeconfig:
        tree, archive = directory / "python", directory / "python.tar"
        install_busybox(tree)
        install_python(tree, sys.executable, ())
        pack(tree, {"docker.io/library/python:3.11": ["python"]}, archive, env={"PYTHONUNBUFFERED": "1"})
        shutil.rmtree(tree)
        load_image(kubeconfig, archive)
        server = from_kubeconfig("cluster", kubeconfig, directory)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        eventually(lambda: server.admin.get(account).status == 200, "the service account")
        training = job("training", TRAIN.replace('"RANK"', '"JOB_COMPLETION_INDEX"'))
        training["spec"] |= {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
        for body in (training, job("broken", FAIL), job("elastic", ELASTIC)):
            assert server.admin.post(JOBS, body).status == 201
        yield server


@pytest.fixture
def pages(cluster: Server, chromium: Any, tmp_path: Path) -> Iterator[Console]:
    with run_console(cluster.kubeconfig, tmp_path) as link:
        console = Console(link.partition("#")[0], sign_in(chromium, link))
        yield console
        console.close()
        assert console.errors == []


def test_logs_curves_and_actions_of_pods_that_really_run(pages: Console, cluster: Server) -> None:
    page = pages.open(TRAINING)
    page.set_default_timeout(120_000)
    page.locator(".page-head .state", has_text="Running").wait_for()
    page.locator("figure[aria-label^='loss']").locator("canvas").wait_for()
    page.locator(".timeline li.past", has_text="First step").wait_for()
    page.keyboard.press("l")
    page.locator(".line", has_text="rank 0 step=").first.wait_for()
    page.locator(".line", has_text="rank 1 step=").first.wait_for()
    page.keyboard.press("e")
    page.locator("td", has_text="SuccessfulCreate").first.wait_for()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("dialog").get_by_role("button", name="Stop").click()
    page.locator(".page-head .state", has_text="Suspended").wait_for()
    page.get_by_role("button", name="Resume").click()
    page.locator(".page-head .state", has_text="Running").wait_for()

    pages.go(page, "/job/default/jobs.batch/broken")
    page.locator(".why", has_text=re.compile("first to fail: broken-.*, exit code 1")).wait_for()
    page.locator("text=Go to the first error").click()
    page.locator(".line.hit", has_text="Traceback").wait_for()
    pages.go(page, "/nodes")
    page.locator("tr", has_text="training-0-").wait_for()
    pages.go(page, "/images")
    page.locator("tr", has_text="python:3.11").locator("a", has_text="default/training").wait_for()


def test_the_elastic_tab_reads_the_log_of_a_cluster(pages: Console) -> None:
    page = pages.open(ELASTIC_JOB)
    page.set_default_timeout(120_000)
    page.locator("nav.tabs a", has_text="Elastic").click()
    page.locator("text=2 worlds, 1 worker lost, 1 checkpoint, 1,280 records committed.").wait_for()
    recovery = page.locator("tr", has_text="1 workers from step 40")
    recovery.locator("text=detect 12 ms · leave 1.0 ms · form the group 20 ms").wait_for()
    page.locator("tr", has_text="step 50 is durable at /ckpt/step-50").wait_for()
