"""Admission webhooks that run in pods: the API server reaches them through their Service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.apiserver.access.webhook_server import certificate
from tests.node.conftest import RunningNode

from torchyard.api.errors import StatusError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.gvr import CONFIG_MAPS, SERVICES
from torchyard.api.objects import Object

VALIDATING_WEBHOOKS = GroupVersionResource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")
# allows every object but those named "refused"; the name is in the certificate
SERVE = """
import http.server, json, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        allowed = request["name"] != "refused"
        response = {"uid": request["uid"], "allowed": allowed, "status": {"message": "by " + self.path}}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        body = json.dumps(review).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(("", PORT), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
open("/tmp/chain.pem", "w").write(CHAIN)
context.load_cert_chain("/tmp/chain.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
open("/tmp/ready", "w").close()
server.serve_forever()
"""


def configuration(service: str, *, port: int = 443, ca: str = "") -> Object:
    reference = {"name": service, "namespace": "default", "port": port, "path": "/check"}
    webhook = {
        "name": "hook.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 20,
        "clientConfig": {"service": reference, **({"caBundle": ca} if ca else {})},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    }
    metadata = {"name": "hook"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": [webhook],
    }


def service(name: str, **spec: object) -> Object:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def refusal(node: RunningNode, name: str) -> str:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    with pytest.raises(StatusError) as refused:
        await node.client.create(CONFIG_MAPS, config_map, "default")
    return refused.value.message


async def test_a_webhook_in_a_pod_is_called_through_its_service(node: RunningNode, tmp_path: Path) -> None:
    chain, ca = await asyncio.to_thread(certificate, tmp_path)
    serve = SERVE.replace("CHAIN", repr(chain.read_text())).replace("PORT", "8443")
    ports = [{"name": "hook", "containerPort": 8443}]
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    container = {"name": "main", "image": "python:3", "command": ["python3", "-c", serve], "ports": ports}
    await node.create("hook", {"containers": [{**container, "readinessProbe": probe}]}, labels={"app": "hook"})
    selected = {"selector": {"app": "hook"}, "ports": [{"port": 444, "targetPort": "hook"}]}
    await node.client.create(SERVICES, service("hook", **selected), "default")
    await node.until("hook", lambda pod: (pod["status"].get("containerStatuses") or [{}])[0].get("ready"))
    await node.client.create(VALIDATING_WEBHOOKS, configuration("hook", port=444, ca=ca))
    for _ in range(1200):
        message = await refusal(node, "refused")
        if "denied" in message:
            break
        assert "connection refused" in message  # until the endpoints are known
        await asyncio.sleep(0.05)
    assert message == 'admission webhook "hook.example.com" denied the request: by /check?timeout=20s'
    await node.client.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "allowed"}}, "default"
    )


async def test_a_service_that_cannot_be_reached_gives_the_message_of_kube_apiserver(node: RunningNode) -> None:
    ports = [{"port": 443}]
    await node.client.create(SERVICES, service("headless", ports=ports, clusterIP="None"), "default")
    outside = service("outside", type="ExternalName", externalName="nothing.invalid")
    await node.client.create(SERVICES, outside, "default")
    address = (await node.client.create(SERVICES, service("empty", ports=ports), "default"))["spec"]["clusterIP"]
    for name, port, reason in (
        ("missing", 443, 'service "missing" not found'),
        ("empty", 443, f"dial tcp {address}:443: connect: connection refused"),
        ("empty", 9, 'no service port 9 found for service "empty"'),
        ("headless", 443, 'cannot route to service with ClusterIP "None"'),
        ("outside", 443, "dial tcp: lookup nothing.invalid: no such host"),
    ):
        await node.client.create(VALIDATING_WEBHOOKS, configuration(name, port=port))
        url = f"https://{name}.default.svc:{port}/check?timeout=20s"
        failed = 'Internal error occurred: failed calling webhook "hook.example.com": failed to call webhook: '
        assert await refusal(node, "any") == f'{failed}Post "{url}": {reason}'
        await node.client.delete(VALIDATING_WEBHOOKS, "hook")
