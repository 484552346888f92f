"""A conversion webhook: `host: a, port: b` in v2 is `hostPort: "a:b"` in v1. A test changes what it answers."""

from __future__ import annotations

import base64
import copy
import http.server
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchyard.apiserver.access.certificates import ensure

Object = dict[str, Any]


class ConversionWebhook:
    """Serves until `close`. `change` gets the right answer and returns the one that is sent."""

    def __init__(self, directory: Path) -> None:
        credentials = ensure(directory)
        self.authority = base64.b64encode(credentials.authority.read_bytes()).decode()
        self.change: Callable[[Object], Object | bytes] = lambda review: review
        self.admit: Callable[[Object], Object] = lambda review: review
        self.status = 200
        self.requests: list[Object] = []
        self._server = _Server(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "server.crt", directory / "server.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}/convert"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        webhook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                webhook.requests.append(review)
                is_admission = review["kind"] == "AdmissionReview"
                answer = webhook.admit(review) if is_admission else webhook.change(convert(review))
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(webhook.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the certificate closes the connection."""


def convert(review: Object) -> Object:
    request = review["request"]
    objects = [_converted(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    return {
        "kind": "ConversionReview",
        "apiVersion": review["apiVersion"],
        "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    }


def _converted(obj: Object, version: str) -> Object:
    obj = copy.deepcopy(obj) | {"apiVersion": version}
    spec = obj.get("spec") or {}
    if version.endswith("v2") and "hostPort" in spec:
        spec["host"], _, spec["port"] = spec.pop("hostPort").partition(":")
    elif version.endswith("v1") and "host" in spec:
        spec["hostPort"] = f"{spec.pop('host')}:{spec.pop('port', '')}"
    return obj


def definition(webhook: ConversionWebhook, *, storage: str = "v1") -> Object:
    """A CustomResourceDefinition whose versions the webhook converts."""
    text: Object = {"type": "string"}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    fields = {"v1": ["hostPort"], "v2": ["host", "port"]}
    specs: Object = {"v1": {"hostPort": text}, "v2": {"host": text, "port": text, "kind": {**text, "default": "tcp"}}}
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == storage,
            "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": f".spec.{field}"} for field in fields[name]],
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": properties}, "status": status},
                }
            },
        }
        for name, properties in specs.items()
    ]
    client = {"url": webhook.url, "caBundle": webhook.authority}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "listeners.conversion.torchyard.dev"},
        "spec": {
            "group": "conversion.torchyard.dev",
            "names": {"plural": "listeners", "singular": "listener", "kind": "Listener", "listKind": "ListenerList"},
            "scope": "Namespaced",
            "versions": versions,
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v9", "v1", "v1beta1"]},
            },
        },
    }
