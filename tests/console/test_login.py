"""Sign-in, sign-out, and what a signed-in user may do: on the plane and through `yard console`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.console.browser import Browser
from tests.console.conftest import plane_code
from tests.support.kubernetes import Server


def test_the_session_says_who_is_signed_in(signed_in: Browser) -> None:
    page = signed_in.own("GET", "/session")
    assert page.status == 200, page.body
    identity = page.json
    assert identity["user"] == "yard-admin" and "system:masters" in identity["groups"]
    assert identity["plane"] is True and identity["context"] and identity["version"]
    assert page.headers["Cache-Control"] == "no-store"


def test_the_kubernetes_api_answers_with_the_rights_of_the_user(signed_in: Browser) -> None:
    page = signed_in.own("GET", "/k8s/api/v1/namespaces?limit=1")
    assert page.status == 200 and page.json["kind"] == "NamespaceList" and len(page.json["items"]) == 1
    name = f"console-{'plane' if signed_in.is_tls else 'local'}"
    created = signed_in.own("POST", "/k8s/api/v1/namespaces", {"metadata": {"name": name}})
    assert created.status == 201, created.body
    patch = {"metadata": {"labels": {"a": "b"}}}
    path = f"/k8s/api/v1/namespaces/{name}"
    patched = signed_in.own("PATCH", path, patch, Content_Type="application/merge-patch+json")
    assert patched.json["metadata"]["labels"]["a"] == "b"
    assert signed_in.own("DELETE", path).status == 200
    missing = signed_in.own("GET", "/k8s/api/v1/namespaces/missing")
    assert missing.status == 404 and missing.json["reason"] == "NotFound"


def test_a_watch_is_streamed(signed_in: Browser, yard: Server) -> None:
    path = "/console/k8s/api/v1/namespaces/default/configmaps?watch=true"
    response = signed_in.send("GET", path, headers=signed_in.headers)
    assert response.status == 200
    name = f"watched-{'plane' if signed_in.is_tls else 'local'}"
    created = yard.admin.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})
    assert created.status == 201
    while True:
        event = json.loads(response.readline())
        if event["object"]["metadata"]["name"] == name:
            break
    response.close()
    response.connection.close()  # type: ignore[attr-defined]


def test_many_watches_share_one_response(signed_in: Browser) -> None:
    opening = {
        "open": [
            {"id": "namespaces", "path": "/api/v1/namespaces?watch=true"},
            {"id": "missing", "path": "/apis/missing.example.org/v1/things?watch=true"},
            {"id": "log", "path": "/api/v1/namespaces/default/pods/missing/log?follow=true"},
        ]
    }
    response = signed_in.send("POST", "/console/streams", opening, signed_in.headers)
    assert response.status == 200
    stream = json.loads(response.readline())["stream"]
    lines: dict[str, dict[str, Any]] = {}
    while len(lines) < 3:
        line = json.loads(response.readline())
        lines.setdefault(line["id"], line)
    assert lines["namespaces"]["event"]["type"] == "ADDED"
    assert lines["missing"]["error"]["kind"] == lines["log"]["error"]["kind"] == "Status"
    change = {"open": [{"id": "more", "path": "/api/v1/services?watch=1"}], "close": ["namespaces"]}
    assert signed_in.own("POST", f"/streams/{stream}", change).status == 204
    line = json.loads(response.readline())
    while line["id"] != "more":
        line = json.loads(response.readline())
    assert line["event"]["object"]["kind"] == "Service"
    response.close()
    response.connection.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"no", "not valid JSON"),
        ([], "the body must be"),
        ({"opne": []}, "the body must be"),
        ({"open": [{"id": "a"}]}, "id .* and path must be strings"),
        ({"open": [{"id": "a", "path": "/api/v1/pods"}]}, "neither a watch"),
        ({"open": [{"id": "a", "path": "/metrics?watch=1"}]}, "only"),
    ],
)
def test_a_wrong_change_of_streams_is_refused(signed_in: Browser, body: object, message: str) -> None:
    page = signed_in.own("POST", "/streams", body)
    assert page.status in (400, 403) and re.search(message, page.json["message"])
    assert signed_in.own("POST", "/streams/made-up", {}).status == 404


def test_a_user_without_rights_reads_nothing(yard: Server) -> None:
    alice = Browser(yard.url, str(yard.ca))
    assert alice.sign_in(plane_code(yard, "alice-token")).status == 204
    assert alice.own("GET", "/session").json["user"] == "alice"
    for path in ("/k8s/api/v1/pods", "/samples/default/pytorchjobs.kubeflow.org/mnist"):
        page = alice.own("GET", path)
        assert page.status == 403 and "alice" in page.json["message"]
    assert alice.own("GET", "/history").json == {"items": []}


def test_sign_out_ends_the_session(yard: Server) -> None:
    browser = Browser(yard.url, str(yard.ca))
    browser.sign_in(plane_code(yard, yard.token))
    cookies = dict(browser.cookies)
    assert browser.own("POST", "/logout").status == 204
    assert browser.cookies == {}
    browser.cookies = cookies
    assert browser.own("GET", "/session").status == 401


def test_a_code_is_only_for_credentials_of_the_api_server(yard: Server) -> None:
    browser = Browser(yard.url, str(yard.ca))
    assert browser.own("POST", "/codes", {}).status == 401
    browser.sign_in(plane_code(yard, yard.token))
    assert browser.own("POST", "/codes", {}).status == 401, "a cookie must not beget another session"


def test_a_cookie_is_no_credential_outside_the_console(yard: Server) -> None:
    browser = Browser(yard.url, str(yard.ca))
    browser.sign_in(plane_code(yard, yard.token))
    assert browser.own("GET", "/k8s/api/v1/pods").status == 200
    for path in ("/api/v1/pods", "/metrics", "/console/../api/v1/pods", "/consolation", "//console/session"):
        page = browser.request("GET", path, headers={**browser.headers, "Origin": browser.origin})
        assert page.status in (403, 404), (path, page.status)
        assert b"yard-admin" not in page.body
