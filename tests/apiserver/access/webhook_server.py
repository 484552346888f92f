"""A webhook server on loopback with its own certificate; the request path selects the reply."""

from __future__ import annotations

import base64
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from torchyard.api.objects import Object

Reply = Callable[[Object], Object | tuple[int, bytes]]


class WebhookServer:
    """Serves until the context ends; `reviews` has the received reviews, `ca` the authority of its certificate."""

    def __init__(self, directory: Path, replies: dict[str, Reply]) -> None:
        self.reviews: list[tuple[str, Object]] = []
        self._replies = replies
        chain, self.ca = certificate(directory)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def config(self, path: str) -> Object:
        return {"url": f"https://127.0.0.1:{self.port}/{path}", "caBundle": self.ca}

    def __enter__(self) -> WebhookServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = self.path.partition("?")[0].strip("/")
                outer.reviews.append((path, review))
                reply = outer._replies[path](review)
                status, body = reply if isinstance(reply, tuple) else (200, json.dumps(reply).encode())
                with suppress(OSError):  # the caller may have timed out
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def certificate(directory: Path) -> tuple[Path, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("hook.default.svc")]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = directory / "webhook.pem"
    chain.write_bytes(pem + secret)
    return chain, base64.b64encode(pem).decode()


def respond(**response: Any) -> Reply:
    """A review with a response to the request."""

    def reply(review: Object) -> Object:
        uid = review["request"]["uid"]
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, **response}}

    return reply


def patch_with(*operations: Object, kind: str = "JSONPatch") -> Reply:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return respond(allowed=True, patchType=kind, patch=patch)


def deny(**status: Any) -> Reply:
    return respond(allowed=False, **({"status": status} if status else {}))


def reply_with(status: int, body: bytes, after: float = 0) -> Reply:
    def reply(_: Object) -> tuple[int, bytes]:
        time.sleep(after)
        return status, body

    return reply
