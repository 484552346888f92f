"""A page of another origin in the browser of a signed-in user can neither read nor act; no secret is left behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.console.pages.conftest import Console, run_console, sign_in
from tests.support.kubernetes import Server

TRAINING = "/job/default/pytorchjobs.kubeflow.org/training"
ATTEMPTS = (Path(__file__).parent / "other_origin.js").read_text()
STORED = (Path(__file__).parent / "stored.js").read_text()


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Another port of the loopback address: another origin of the same site, which gets the same cookies."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<!doctype html><title>evil</title><body></body>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_can_neither_read_nor_act(
    console: Console, signed_in: Any, plane: Server, elsewhere: str, host: str
) -> None:
    console.open("/jobs").locator(".job-row").first.wait_for()
    before = {each["metadata"]["uid"] for each in plane.admin.get("/api/v1/namespaces").json["items"]}
    attacker = signed_in.new_page()
    attacker.goto(elsewhere.replace("127.0.0.1", host))
    results = attacker.evaluate(ATTEMPTS, console.base)
    assert {name: each for name, each in results.items() if each != "nothing"} == {}
    assert len(results) == 15
    attacker.close()
    after = {each["metadata"]["uid"] for each in plane.admin.get("/api/v1/namespaces").json["items"]}
    assert after == before
    page = console.open("/jobs")
    page.locator(".job-row").first.wait_for()  # and the user is still signed in


def test_no_secret_is_in_an_address_the_log_or_the_storage_after_the_login(
    chromium: Any, plane: Server, tmp_path: Path
) -> None:
    addresses: list[str] = []
    with run_console(plane.kubeconfig, tmp_path) as link:
        code = link.partition("#login=")[2]
        profile = sign_in(chromium, link)
        console = Console(link.partition("#")[0], profile)
        page = console.window()
        page.on("request", lambda request: addresses.append(request.url))
        for route in ("/jobs", TRAINING, f"{TRAINING}?tab=logs", "/queues", "/history"):
            console.go(page, route)
            page.locator("h1").wait_for()
        (cookie,) = profile.cookies(console.base)
        stored = page.evaluate(STORED)
        proofs = [request for request in addresses if code in request]
        console.close()
        assert console.errors == []
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"].startswith("/console")
    secrets = {"the code": code, "the cookie": cookie["value"], "the token of the kubeconfig": plane.token}
    assert all(len(secret) > 15 for secret in secrets.values())
    log = (tmp_path / "console.log").read_text()
    for name, secret in secrets.items():
        assert secret not in stored, name
        assert not [address for address in addresses if secret in address], name
        if name != "the code":  # it is what the command prints, and has been used
            assert secret not in log, name
    assert proofs == []
    assert json.loads(stored)["databases"] == {"torchyard-console/keys": ["a key, extractable: false"]}
