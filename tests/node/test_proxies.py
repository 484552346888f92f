"""`pods/proxy` and `services/proxy` of a running node, compared with the recorded responses of Kubernetes 1.34."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.apiserver.access.webhook_server import certificate
from tests.node import proxy_backend, proxy_cases
from tests.node.conftest import RunningNode

from torchyard.api.gvr import ENDPOINTS, PODS, SERVICES
from torchyard.api.objects import Object

RECORDED = json.loads(Path(__file__).with_name("proxy_responses.json").read_text())


def service(name: str, **spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


SERVICE_OBJECTS = (
    service(
        "web",
        selector={"app": "web"},
        ports=[
            {"name": "http", "port": 80, "targetPort": 8080},
            {"name": "https", "port": 443, "targetPort": 8443},
            {"name": "named", "port": 82, "targetPort": "http"},
        ],
    ),
    service("single", selector={"app": "web"}, ports=[{"port": 80, "targetPort": 8080}]),
    service("empty", selector={"app": "none"}, ports=[{"port": 80}]),
    service("manual", ports=[{"port": 80}]),
    service("headless", clusterIP="None", selector={"app": "web"}, ports=[{"port": 8080}]),
    service("outside", type="ExternalName", externalName="example.invalid", ports=[{"port": 80}]),
)
MANUAL = {
    "apiVersion": "v1",
    "kind": "Endpoints",
    "metadata": {"name": "manual"},
    "subsets": [{"addresses": [{"ip": "10.244.0.200"}], "ports": [{"port": 8080}]}],
}


async def start_backend(node: RunningNode, directory: Path) -> None:
    chain, _ = await asyncio.to_thread(certificate, directory)
    source = await asyncio.to_thread(Path(proxy_backend.__file__).read_text)
    container = {
        "name": "main",
        "image": "python:3",
        "command": ["python3", "-c", source],
        "env": [{"name": "CHAIN", "value": await asyncio.to_thread(chain.read_text)}],
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "https", "containerPort": 8443}],
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
    }
    await node.create("web", {"containers": [container]}, labels={"app": "web"})
    pending = {"containers": [{"name": "main", "image": "busybox"}], "nodeSelector": {"a": "nowhere"}}
    metadata = {"name": "pending"}
    await node.client.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pending}, "default"
    )
    for each in SERVICE_OBJECTS:
        await node.client.create(SERVICES, each, "default")
    await node.client.create(ENDPOINTS, MANUAL, "default")
    for _ in range(3000):
        endpoints = [await node.client.find(ENDPOINTS, name, "default") or {} for name in ("web", "single", "headless")]
        empty = await node.client.find(ENDPOINTS, "empty", "default")
        if empty and all((each.get("subsets") or [{}])[0].get("addresses") for each in endpoints):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"no endpoints: {endpoints}")


async def test_proxies_answer_as_kubernetes_does(node: RunningNode, tmp_path: Path) -> None:
    await start_backend(node, tmp_path)
    url, token = node.plane.url, await asyncio.to_thread((tmp_path / "state" / "admin.token").read_text)
    recorded = {json.dumps(request): response for *request, response in RECORDED}
    different = []
    for case in proxy_cases.CASES:
        response = await asyncio.to_thread(proxy_cases.send, url, token.strip(), case)
        expected = recorded[json.dumps([case[0], case[1], case[2], len(case[3])])]
        if response != expected:
            different.append((case[:3], response, expected))
    assert different == []
    for path in ("services/web:http/proxy/upgrade", "pods/https:web:8443/proxy/upgrade"):
        received = await asyncio.to_thread(proxy_cases.upgrade, url, token.strip(), path)
        assert received.startswith(b"HTTP/1.1 101 ") and received.endswith(b"\r\n\r\necho hello\n")
    assert await asyncio.to_thread(anonymous_status, url) == 403
    assert await asyncio.to_thread(page_policy, url, token.strip(), "kubectl/v1.34") is None
    policy = await asyncio.to_thread(page_policy, url, token.strip(), "Mozilla/5.0 (X11; Linux x86_64)")
    assert policy is not None and policy.startswith("sandbox ") and "allow-same-origin" not in policy
    await check_node_proxy(node, url, token.strip())


async def check_node_proxy(node: RunningNode, url: str, token: str) -> None:
    """What a kubelet answers about itself, without a port of its own."""
    answers = [
        await asyncio.to_thread(fetch, url, f"/api/v1/nodes/{name}", token)
        for name in (
            f"{node.name}/proxy",
            f"{node.name}/proxy/unknown",
            f"{node.name}/proxy/healthz",
            f"https:{node.name}:10250/proxy/pods",
            "other:10250/proxy/pods",
        )
    ]
    assert [status for status, _ in answers] == [301, 404, 200, 200, 404]
    assert answers[2][1] == b"ok"
    pods = json.loads(answers[3][1])
    assert (pods["kind"], [pod["metadata"]["name"] for pod in pods["items"]]) == ("PodList", ["web"])
    assert json.loads(answers[4][1])["message"] == 'nodes "other" not found'


def page_policy(url: str, token: str, program: str) -> str | None:
    """The policy of a page of a pod: in a browser it must not have the origin of the server, which the console has."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(urlsplit(url).netloc, context=context, timeout=30)
    headers = {"Authorization": f"Bearer {token}", "User-Agent": program}
    connection.request("GET", "/api/v1/namespaces/default/services/web:http/proxy/any", headers=headers)
    try:
        return connection.getresponse().headers["Content-Security-Policy"]
    finally:
        connection.close()


def anonymous_status(url: str) -> int:
    return fetch(url, "/api/v1/namespaces/default/services/web:http/proxy/any")[0]


def fetch(url: str, path: str, token: str = "") -> tuple[int, bytes]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(urlsplit(url).netloc, context=context, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
