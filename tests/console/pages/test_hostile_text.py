"""Text from jobs that looks like HTML stays text: in names, labels, messages, log lines and metrics."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from tests.console.pages.conftest import Console

ATTEMPTS = (
    "<script>xss()</script>",
    "<img src=x onerror=xss()>",
    "<svg onload=xss()>",
    "<svg/onload=xss()>",
    '"><script>xss()</script>',
    "'><img src=x onerror=xss()>",
    "<iframe srcdoc='<script>parent.xss()</script>'>",
    "<iframe src=javascript:parent.xss()>",
    "<a href=javascript:xss()>click</a>",
    "javascript:xss()",
    "data:text/html,<script>xss()</script>",
    "<body onload=xss()>",
    "<input autofocus onfocus=xss()>",
    "<details open ontoggle=xss()>",
    "<video><source onerror=xss()></video>",
    "<audio src=x onerror=xss()>",
    "<math><mtext></mtext><script>xss()</script></math>",
    "<style>@import 'javascript:xss()';</style>",
    "<link rel=stylesheet href=//evil.invalid/x.css>",
    "<meta http-equiv=refresh content='0;url=javascript:xss()'>",
    "<base href=//evil.invalid/>",
    "<object data=javascript:xss()>",
    "<embed src=javascript:xss()>",
    "<template><script>xss()</script></template>",
    "</title><script>xss()</script>",
    "</textarea><script>xss()</script>",
    "--><script>xss()</script><!--",
    "${xss()}",
    "{{constructor.constructor('xss()')()}}",
    "\u001b]8;;javascript:xss()\u0007link\u001b]8;;\u0007<b onmouseover=xss()>",
)


def _list(items: list[dict[str, Any]]) -> str:
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items})


def _job(index: int, text: str) -> dict[str, Any]:
    metadata = {
        "name": text,
        "namespace": "default",
        "uid": f"u{index}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"team": text, text: text, "kueue.x-k8s.io/queue-name": text},
    }
    condition = {"type": "Failed", "status": "True", "message": text, "reason": text}
    return {
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": {"a": "b"}}},
        "status": {"conditions": [condition]},
    }


def _pod(text: str) -> dict[str, Any]:
    env = [{"name": "MLFLOW_TRACKING_URI", "value": "javascript:xss()"}]
    return {
        "metadata": {
            "name": f"{text}-0",
            "namespace": "default",
            "uid": "p",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "Job", "name": text, "uid": "u4", "controller": True}],
        },
        "spec": {"nodeName": text, "containers": [{"name": "main", "image": text, "env": env}]},
        "status": {
            "phase": "Failed",
            "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [
                {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": text, "message": text}}}
            ],
        },
    }


def _intercept(page: Any, text: str) -> None:
    """A server whose jobs, pods, events, samples and logs hold the attempts."""
    bodies = {
        "/apis/batch/v1/": _list([_job(index, each) for index, each in enumerate(ATTEMPTS)]),
        "/api/v1/namespaces/default/pods?": _list([_pod(text)]),
        "/events?": _list(
            [
                {
                    "metadata": {"name": f"e{index}", "uid": f"e{index}", "creationTimestamp": "2026-01-01T00:00:00Z"},
                    "involvedObject": {"uid": "u4", "kind": each, "name": each},
                    "type": "Warning",
                    "reason": each,
                    "message": each,
                }
                for index, each in enumerate(ATTEMPTS)
            ]
        ),
        "/samples/": json.dumps(
            {
                "series": [
                    {"name": each, "replica": each, "unit": each, "points": [[1, 1], [2, 2]]} for each in ATTEMPTS
                ],
                "lostBefore": None,
            }
        ),
    }

    def answer(route: Any) -> None:
        url = route.request.url
        body = next((body for part, body in bodies.items() if part in url), None)
        if body is None:
            route.continue_()
        else:
            route.fulfill(body=body, content_type="application/json")

    def stream(route: Any) -> None:
        opened = json.loads(route.request.post_data or "{}").get("open") or []
        log = "".join(f"2026-01-01T00:00:0{n % 10}Z {each} loss=1\n" for n, each in enumerate(ATTEMPTS))
        lines: list[dict[str, Any]] = [{"stream": "s"}]
        for each in opened:
            lines += (
                [{"id": each["id"], "text": log}, {"id": each["id"], "end": True}] if "/log?" in each["path"] else []
            )
        route.fulfill(body="".join(json.dumps(line) + "\n" for line in lines), content_type="application/x-ndjson")

    page.route("**/console/k8s/**", answer)
    page.route("**/console/samples/**", answer)
    page.route("**/console/streams**", stream)


def test_attempts_at_cross_site_scripting_stay_text(console: Console) -> None:
    page = console.window()
    attempted: list[str] = []
    page.expose_function("xss", lambda *_: attempted.append(page.url))

    def note(dialog: Any) -> None:
        attempted.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    text = ATTEMPTS[4]
    _intercept(page, text)
    console.go(page, "/jobs?group=team&kind=Job")
    page.locator(".job-row").first.wait_for()
    name = quote(text, safe="")
    for tab in ("summary", "logs", "metrics", "events", "yaml"):
        console.go(page, f"/job/default/jobs.batch/{name}?tab={tab}")
        page.locator("h1", has_text=text).wait_for()
        page.locator(
            {"logs": ".line", "metrics": "figure", "events": "td", "yaml": ".yaml"}.get(tab, ".why li")
        ).first.wait_for()
        assert _injected(page) == [], tab
    for attempt in ATTEMPTS:  # in the parts of a link that someone is led to
        text = quote(attempt, safe="")
        page.evaluate("hash => { location.hash = hash; }", f"#/{text}")
        page.locator(".empty", has_text="There is no page").wait_for()
        page.evaluate("hash => { location.hash = hash; }", f"#/nodes?node={text}&ns={text}")
        page.locator(".empty", has_text="There is no node").wait_for()
        assert _injected(page) == [], attempt
    assert attempted == []
    assert len(ATTEMPTS) == 30


def _injected(page: Any) -> list[str]:
    return list(
        page.evaluate(
            "[...document.querySelectorAll('#app script, #app iframe, #app object, #app embed, #app base, #app link,"
            " #app meta, #app style, #app video, #app audio, #app math, #app [onerror], #app [onload], #app [onfocus],"
            ' [href^="javascript" i], img:not([src="./icon.svg"])\')].map(each => each.outerHTML)'
        )
    )
