"""Lifecycle hooks that send HTTP requests to another pod, and subPathExpr without a value."""

from __future__ import annotations

import asyncio

from tests.node import support
from tests.node.conftest import RunningNode

from torchyard.api.gvr import PODS

# prints the requests that it gets; as a kubelet, hooks do not look at the status
SERVE = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers["X-Name"], flush=True)
        self.send_response(500)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("", 8080), Handler)
open("/tmp/ready", "w").close()
server.serve_forever()
"""


async def test_hooks_reach_another_pod_over_http(node: RunningNode) -> None:
    support.need_network()
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    serve = {"name": "main", "image": "python:3", "command": ["python3", "-c", SERVE], "readinessProbe": probe}
    await node.create("handler", {"containers": [serve]})
    pod = await node.until("handler", lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("ready"))

    def hook(name: str) -> dict[str, object]:
        headers = [{"name": "X-Name", "value": name}]
        request = {"host": pod["status"]["podIP"], "port": 8080, "path": f"/echo?msg={name}", "httpHeaders": headers}
        return {"httpGet": request}

    hooks = {"postStart": hook("start"), "preStop": hook("stop")}
    await node.script("hooked", "trap 'exit 0' TERM; sleep 600 & wait", container={"lifecycle": hooks})
    await node.phase("hooked", "Running")
    await node.client.delete(PODS, "hooked", "default")
    await node.gone("hooked")
    for _ in range(1200):
        if (await node.log("handler")).count("\n") == 2:
            break
        await asyncio.sleep(0.05)
    assert await node.log("handler") == "/echo?msg=start start\n/echo?msg=stop stop\n"
    assert not {"FailedPostStartHook", "FailedPreStopHook"} & set(await node.events("hooked"))


async def test_a_sub_path_without_a_value_or_outside_its_volume_keeps_the_container_waiting(node: RunningNode) -> None:
    for name, variable, message in (
        ("missing", {"name": "OTHER", "value": "x"}, "missing value for DIR"),
        ("empty", {"name": "DIR", "value": ""}, "missing value for DIR"),
        ("absolute", {"name": "DIR", "value": "/tmp"}, "must not be an absolute path"),
        ("backsteps", {"name": "DIR", "value": "../up"}, "must not contain"),
    ):
        mount = {"name": "data", "mountPath": "/data", "subPathExpr": "$(DIR)"}
        container = {"env": [variable], "volumeMounts": [mount]}
        await node.script(name, "true", container=container, volumes=[{"name": "data", "emptyDir": {}}])

        def is_waiting(pod: dict[str, object]) -> bool:
            status: dict[str, object] = pod["status"]  # type: ignore[assignment]
            state = (status.get("containerStatuses") or [{}])[0].get("state") or {}  # type: ignore[index]
            return (state.get("waiting") or {}).get("reason") == "CreateContainerConfigError"

        pod = await node.until(name, is_waiting)
        text = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
        assert message in text, text
