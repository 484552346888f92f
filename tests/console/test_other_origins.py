"""Another web page can neither read nor act, and no path reaches what it should not: on the plane and locally."""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.console.browser import OWN, Browser
from tests.console.conftest import plane_code
from tests.support.kubernetes import Server

from torchyard.console.origin import SECURITY_HEADERS
from torchyard.console.pages import ConsolePages
from torchyard.console.request import ConsoleRequest

# What a browser adds to the requests of other pages, and what is missing in them.
FOREIGN: dict[str, dict[str, str]] = {
    "a form or an image of another page": {},
    "another site": {**OWN, "Sec-Fetch-Site": "cross-site"},
    "another port of this machine": {**OWN, "Sec-Fetch-Site": "same-site"},
    "an address that was typed": {**OWN, "Sec-Fetch-Site": "none"},
    "another origin": {**OWN, "Origin": "https://evil.example"},
    "an opaque origin": {**OWN, "Origin": "null"},
    "an origin without its port": {**OWN, "Origin": "https://127.0.0.1"},
    "a wrong value of our header": {"X-Torchyard-Console": "0"},
    "a name that was rebound": {**OWN, "Host": "evil.example"},
    "a name that was rebound, with a port": {**OWN, "Host": "evil.example:8686"},
    "a name that contains ours": {**OWN, "Host": "127.0.0.1.evil.example"},
    "a host with a user": {**OWN, "Host": "127.0.0.1@evil.example"},
    "a host with a path": {**OWN, "Host": "127.0.0.1/evil.example"},
    "a host with a wrong port": {**OWN, "Host": "127.0.0.1:evil"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_another_page_can_neither_read_nor_act(signed_in: Browser, headers: dict[str, str]) -> None:
    for method, path, body in (
        ("GET", "/console/k8s/api/v1/namespaces", None),
        ("GET", "/console/session", None),
        ("POST", "/console/k8s/api/v1/namespaces", {"metadata": {"name": "evil"}}),
        ("POST", "/console/streams", {}),
        ("POST", "/console/logout", {}),
        ("POST", "/console/login", {"code": "made-up"}),
        ("POST", "/console/codes", {}),
    ):
        page = signed_in.request(method, path, body, headers)
        assert page.status in (400, 401, 403), (path, page.status, page.body)
        assert b"system:masters" not in page.body and b"NamespaceList" not in page.body
        assert not [name for name in page.headers if name.lower().startswith("access-control")]
    assert signed_in.own("GET", "/session").status == 200, "the session goes on"
    assert signed_in.own("GET", "/k8s/api/v1/namespaces/evil").status == 404


def test_a_preflight_request_is_not_granted(signed_in: Browser) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Headers": "x-torchyard-console"}
    page = signed_in.request("OPTIONS", "/console/session", None, headers)
    assert page.status in (401, 403, 405)
    assert not [name for name in page.headers if name.lower().startswith("access-control")]


def test_every_response_has_the_security_headers(signed_in: Browser) -> None:
    for path in ("/", "/missing", "/session", "/k8s/api/v1/namespaces", "/k8s/../x", "/login"):
        page = signed_in.own("GET", path)
        missing = {name for name, value in SECURITY_HEADERS.items() if page.headers[name] != value}
        assert not missing, (path, page.status, missing)


HOSTILE_PATHS = [
    "/../api/v1/secrets",
    "/..",
    "/%2e%2e/api/v1/secrets",
    "/%2e%2e%2fapi/v1/secrets",
    "/assets/../../../../etc/passwd",
    "/assets/..%2f..%2f..%2fetc%2fpasswd",
    "/assets/%00",
    "/assets/index.js%00.html",
    "/static/../app.py",
    "/.env",
    "//etc/passwd",
    "/;/session",
    "/index.html/..",
    "/secret.txt",
    "/assets",
    "/assets/",
    "/k8s",
    "/k8s/",
    "/k8s/metrics",
    "/k8s/healthz",
    "/k8s/console/session",
    "/k8s/logs/",
    "/k8s//api/v1/secrets",
    "/k8s/../metrics",
    "/k8s/api/../metrics",
    "/k8s/api/v1/../../metrics",
    "/k8s/%2e%2e/metrics",
    "/k8s/api%2f..%2fmetrics",
    "/k8s/api/v1/namespaces/%2e%2e/secrets",
    "/k8s/api/v1/namespaces/default%2f..%2fkube-system/secrets",
    "/k8s/api/v1/namespaces/a%0d%0aX-Evil:1/secrets",
    "/k8s/api/v1/namespaces/%00",
    "/k8s/api/v1/pods\\..\\secrets",
    "/k8s/http://127.0.0.1:1/",
    "/k8s/@evil.example/",
    "/samples/..%2f..%2fsecrets/a/b",
    "/samples/a/b",
    "/samples/a/b/c/d",
    "/streams/../session",
    "/Session",
    "/session/",
    "/login/",
]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_hostile_path_reaches_nothing(signed_in: Browser, path: str) -> None:
    page = signed_in.own("GET", path)
    assert page.status in (400, 403, 404, 405), (page.status, page.body[:200])
    assert b"root:" not in page.body and b"SecretList" not in page.body and b"# HELP" not in page.body
    assert "X-Evil" not in page.headers


@pytest.mark.parametrize(
    "line",
    [
        "Cookie: a=1\r\nX-Torchyard-Console : 1",
        "X-Torchyard-Console: 1\r\n Origin: x",
        "Authorization: Bearer x\x00",
        "X-Torchyard-Console: 1\nX-Other: 1",
    ],
)
def test_malformed_headers_authenticate_nobody(browser: Browser, line: str) -> None:
    parts = urlsplit(browser.origin)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as plain:
        context = ssl.create_default_context(cafile=browser.ca) if browser.is_tls else None
        peer = context.wrap_socket(plain, server_hostname=parts.hostname) if context else plain
        head = f"GET /console/session HTTP/1.1\r\nHost: {parts.netloc}\r\n{line}\r\nConnection: close\r\n\r\n"
        peer.sendall(head.encode("latin-1"))
        answer = peer.recv(65536)
        assert re.match(rb"HTTP/1\.[01] (400|401|403) ", answer), answer
        peer.close()


def test_credentials_and_impersonation_of_the_browser_are_not_forwarded(signed_in: Browser) -> None:
    """A header of the page must not change whose rights a request has."""
    page = signed_in.own("GET", "/k8s/api/v1/namespaces", Impersonate_User="nobody", X_Remote_User="root")
    if signed_in.is_tls:  # the server reads impersonation before it knows of the session, and grants it to nobody
        assert page.status in (200, 403)
    else:
        assert page.status == 200


def test_a_body_of_a_stranger_is_not_read(yard: Server) -> None:
    browser = Browser(yard.url, str(yard.ca))
    for path in ("/console/login", "/console/k8s/api/v1/namespaces", "/console/streams"):
        parts = urlsplit(browser.origin)
        connection = browser.connect()
        connection.putrequest("POST", path)
        connection.putheader("X-Torchyard-Console", "1")
        connection.putheader("Content-Length", "3000000")
        connection.endheaders()
        response = connection.getresponse()
        assert response.status in (401, 413), (parts, path, response.status)
        response.close()
        connection.close()


def test_a_cookie_that_another_port_of_the_machine_received_is_worth_nothing(signed_in: Browser) -> None:
    """Browsers send cookies to every port; a program that received one is no browser, and sends any header."""
    proof = signed_in.proof
    requests = [("GET", "/session"), ("GET", "/history"), ("GET", "/k8s/api/v1/pods"), ("POST", "/streams")]
    for stolen in ("", "1", proof[:-1], proof.upper(), "0" * 64):
        signed_in.proof = stolen
        for method, path in requests:
            assert signed_in.own(method, path).status == 401, (stolen, path)
        assert signed_in.own("POST", "/codes").status == 401
    signed_in.proof = proof
    assert signed_in.own("GET", "/session").status == 200


def test_a_session_ends_when_its_token_is_revoked(yard: Server) -> None:
    yard.admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "visitor"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = "/api/v1/namespaces/default/serviceaccounts/visitor"
    token = yard.admin.post(f"{path}/token", request).json["status"]["token"]
    browser = Browser(yard.url, str(yard.ca))
    browser.sign_in(plane_code(yard, token))
    assert browser.own("GET", "/session").json["user"] == "system:serviceaccount:default:visitor"
    yard.admin.delete(path)
    assert browser.own("GET", "/session").status == 401


def page_request(path: str, **headers: str) -> ConsoleRequest:
    return ConsoleRequest("GET", path, "", headers, b"", is_tls=False)


def test_pages_are_compressed_and_hashed_files_are_cached_for_ever(pages: Path) -> None:
    built = ConsolePages(pages)
    index = built.find(page_request("/", **{"Accept-Encoding": "gzip, br"}))
    assert index is not None and index.headers["Content-Encoding"] == "gzip"
    assert index.headers["Cache-Control"] == "no-cache"
    script = built.find(page_request("/assets/index-Ab3_x9Zq.js"))
    assert script is not None and script.content_type.startswith("text/javascript")
    assert script.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    for path in ("/secret.txt", "/../pages/index.html", "/assets/../index.html", "/assets/"):
        assert built.find(page_request(path)) is None, path
