"""The console of a plane, and that of `yard console`, which forwards to the same plane: both must behave the same."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.browser import OWN, Browser
from tests.support.kubernetes import ROOT, Server
from tests.support.process import Process


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages as Vite would build them."""
    directory = tmp_path_factory.mktemp("pages")
    (directory / "assets").mkdir()
    (directory / "index.html").write_text("<!doctype html><title>Torchyard</title>" + " " * 2000)
    (directory / "assets" / "index-Ab3_x9Zq.js").write_text("export {};")
    (directory / "secret.txt").symlink_to("/etc/hostname")
    return directory


@contextlib.contextmanager
def console_of(server: Server, pages: Path, directory: Path) -> Iterator[Process]:
    """`yard console` for the administrator of a server."""
    log = directory / "console.log"
    command = [sys.executable, "-m", "torchyard.cli", "console", "--no-browser", "--port", "0"]
    environment = {
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONUNBUFFERED": "1",
        "TORCHYARD_CONSOLE_PAGES": str(pages),
    }
    process = Process([*command, "--kubeconfig", str(server.kubeconfig)], log, environment)
    try:
        process.wait_until(lambda: "#login=" in log.read_text(), "the link")
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="session")
def local_console(yard: Server, pages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """`yard console` for the administrator of the plane."""
    with console_of(yard, pages, tmp_path_factory.mktemp("console")) as process:
        yield process


@pytest.fixture(scope="session")
def local_session(local_console: Process) -> Browser:
    """The session of the only code that `yard console` prints. It is used once, and soon: it expires."""
    match = re.search(r"(http://\S+)/console/#login=(\S+)", local_console.log.read_text())
    assert match is not None
    first = Browser(match[1])
    assert first.sign_in(match[2]).status == 204
    assert Browser(match[1]).sign_in(match[2]).status == 401, "the code was used"
    return first


@pytest.fixture(params=["plane", "local"])
def browser(request: pytest.FixtureRequest, yard: Server) -> Browser:
    """A browser that has not signed in, at the console of the plane or at the local one."""
    if request.param == "plane":
        return Browser(yard.url, str(yard.ca))
    process: Process = request.getfixturevalue("local_console")
    request.getfixturevalue("local_session")  # before the code expires
    match = re.search(r"(http://127\.0\.0\.1:\d+)/console/#login=", process.log.read_text())
    assert match is not None
    return Browser(match[1])


def plane_code(yard: Server, token: str) -> str:
    page = Browser(yard.url, str(yard.ca)).request(
        "POST", "/console/codes", {}, {**OWN, "Authorization": f"Bearer {token}"}
    )
    assert page.status == 200, page.body
    return str(page.json["code"])


@pytest.fixture
def signed_in(browser: Browser, yard: Server, request: pytest.FixtureRequest) -> Browser:
    if browser.is_tls:
        assert browser.sign_in(plane_code(yard, yard.token)).status == 204
    else:
        session: Browser = request.getfixturevalue("local_session")
        browser.cookies, browser.proof = dict(session.cookies), session.proof
    return browser
