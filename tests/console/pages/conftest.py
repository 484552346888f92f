"""The pages of the console in a real Chromium, at a plane with a node and a few jobs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.console.pages.jobs import create_jobs
from tests.support.kubernetes import ROOT, Server
from tests.support.process import Process
from tests.support.yard import Yard

STATIC = ROOT / "src/torchyard/console/static/index.html"
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)


def _missing() -> str:
    if not STATIC.is_file():
        return "the pages are not built: run `make console` (Node.js 20)"
    if not CHROMIUM:
        return "no Chromium is installed"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed: run `make console-test`"
    return ""


@pytest.fixture(scope="session")
def driver() -> None:
    """Skip where the pages or what drives them are missing."""
    if missing := _missing():
        print(f"SKIPPED the pages of the console: {missing}")
        pytest.skip(missing)


# Playwright keeps an event loop running in this thread, so that no other test may call asyncio.run() while it is open:
# it must end with the module that uses it.
@pytest.fixture(scope="module")
def chromium(driver: None) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def plane(driver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Yard(tmp_path_factory.mktemp("plane"), node=True, flags=("--python", sys.executable)) as server:
        create_jobs(server)
        yield server


@contextmanager
def run_console(kubeconfig: Path, directory: Path) -> Iterator[str]:
    """`yard console` for a cluster; yields the link that it prints."""
    log = directory / "console.log"
    command = [sys.executable, "-m", "torchyard.cli", "console", "--no-browser", "--port", "0"]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    process = Process([*command, "--kubeconfig", str(kubeconfig)], log, environment)
    try:
        process.wait_until(lambda: "#login=" in log.read_text(), "the link")
        yield next(line for line in log.read_text().splitlines() if "#login=" in line).strip()
    finally:
        process.stop()


def sign_in(chromium: Any, link: str) -> Any:
    """Open the link in a browser and return its profile: the cookie, and the key that no page can read."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(link)
    page.wait_for_selector(".shell")
    assert "login" not in page.url, "the code stays in the address bar"
    stored = page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    assert link.split("#login=")[1] not in stored
    page.close()
    return context


@pytest.fixture(scope="module")
def link(plane: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The link to the console of the plane."""
    with run_console(plane.kubeconfig, tmp_path_factory.mktemp("console")) as link:
        yield link


@pytest.fixture(scope="module")
def signed_in(chromium: Any, link: str) -> Any:
    """The profile of a browser that has opened the link."""
    return sign_in(chromium, link)


class Console:
    """One window, at 1280 pixels unless a test says otherwise. Errors of the pages fail the test."""

    def __init__(self, base: str, profile: Any) -> None:
        self.base, self._profile = base, profile
        self.errors: list[str] = []
        self._pages: list[Any] = []

    def window(self, *, width: int = 1280, dark: bool = False) -> Any:
        page = self._profile.new_page()
        self._pages.append(page)
        page.set_viewport_size({"width": width, "height": 760})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        return page

    def _note(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.errors.append(message.text)

    def open(self, route: str, *, width: int = 1280, dark: bool = False) -> Any:
        page = self.window(width=width, dark=dark)
        self.go(page, route)
        return page

    def go(self, page: Any, route: str) -> None:
        page.goto(f"{self.base}#{route}")
        page.wait_for_selector(".shell")

    def close(self) -> None:
        for page in self._pages:
            page.close()


@pytest.fixture
def console(link: str, signed_in: Any) -> Iterator[Console]:
    console = Console(link.split("#", maxsplit=1)[0], signed_in)
    yield console
    console.close()
    assert console.errors == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds what keeps people with disabilities out."""
    source: Path = ROOT / "console/node_modules/axe-core/axe.min.js"
    if not source.is_file():
        pytest.skip("axe-core is not installed: run `make console`")
    return source.read_text()
