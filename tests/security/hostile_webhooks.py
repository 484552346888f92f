"""A webhook server whose answers are hostile: each request path is a case that writes raw bytes to the connection."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.apiserver.access.webhook_server import certificate

from torchyard.api.objects import Object

V1 = "admission.k8s.io/v1"
# How long a case that never ends may go on, should the caller not hang up.
_PATIENCE = 8.0

Write = Callable[[ssl.SSLSocket, str], None]


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    lines += [*headers, "", ""]
    return "\r\n".join(lines).encode() + body


def review(uid: str, response: Any = None, **more: Any) -> bytes:
    answer = {"uid": uid, "allowed": True} | (response or {})
    return json.dumps({"apiVersion": V1, "kind": "AdmissionReview", "response": answer} | more).encode()


def answer(response: Any = None, **more: Any) -> Write:
    """A well-formed response with these fields of the review and of its `response`."""
    return lambda connection, uid: connection.sendall(http(review(uid, response, **more)))


def body(content: bytes, status: str = "200 OK", *headers: str) -> Write:
    return lambda connection, _uid: connection.sendall(http(content, status, *headers))


def patch(operations: Any, **more: Any) -> Write:
    text = operations if isinstance(operations, bytes) else json.dumps(operations).encode()
    return answer({"patchType": "JSONPatch", "patch": base64.b64encode(text).decode(), **more})


def _endless(connection: ssl.SSLSocket, _uid: str) -> None:
    """Chunks for as long as the caller reads, far beyond any limit."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n%b\r\n" % (1 << 16, b" " * (1 << 16))
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        connection.sendall(chunk)


def _drip(connection: ssl.SSLSocket, uid: str) -> None:
    text = http(review(uid))
    for index in range(len(text)):
        connection.sendall(text[index : index + 1])
        time.sleep(0.05)


def _slow_headers(connection: ssl.SSLSocket, _uid: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for index in range(int(_PATIENCE / 0.1)):
        connection.sendall(b"X-Header-%d: x\r\n" % index)
        time.sleep(0.1)


def _silent(_connection: ssl.SSLSocket, _uid: str) -> None:
    time.sleep(3)


def _short_body(connection: ssl.SSLSocket, uid: str) -> None:
    connection.sendall(http(review(uid) + b" " * 100)[:-100])


def _reset(connection: ssl.SSLSocket, _uid: str) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _in_parts(connection: ssl.SSLSocket, uid: str) -> None:
    """A correct response in several segments."""
    text = http(review(uid, {"warnings": ["x" * 3000]}))
    for start in range(0, len(text), 500):
        connection.sendall(text[start : start + 500])
        time.sleep(0.02)


def _invalid_utf8(connection: ssl.SSLSocket, uid: str) -> None:
    connection.sendall(http(review(uid, {"warnings": ["a?b"]}).replace(b"a?b", b"a\xffb")))


# A compressed response of 100 MB.
_BOMB = gzip.compress(b" " * 100_000_000, 1)


_REVIEW = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":%b}'
_ADD = {"op": "add", "path": "/data/x", "value": "y"}
# name -> (mutating?, what is written to the connection)
CASES: dict[str, tuple[bool, Write]] = {
    "correct": (False, answer()),
    "in-parts": (False, _in_parts),
    "drip": (False, _drip),
    "endless": (False, _endless),
    "slow-headers": (False, _slow_headers),
    "silent": (False, _silent),
    "closed": (False, lambda _connection, _uid: None),
    "reset": (False, _reset),
    "short-body": (False, _short_body),
    "bomb": (False, body(_BOMB, "200 OK", "Content-Encoding: gzip")),
    "not-http": (False, lambda connection, _uid: connection.sendall(b"SSH-2.0-x\r\n\r\n")),
    "huge-header": (False, body(b"{}", "200 OK", "X: " + "x" * 2_000_000)),
    "status-100": (False, body(b"", "100 Continue")),
    "status-204": (False, lambda connection, _uid: connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")),
    "status-302": (False, body(b"", "302 Found", "Location: https://127.0.0.1:1/other")),
    "status-307": (False, body(b"", "307 Temporary Redirect", "Location: https://127.0.0.1:1/other")),
    "status-400": (False, body(b"bad", "400 Bad Request")),
    "status-401": (False, body(b"", "401 Unauthorized", "WWW-Authenticate: Basic")),
    "status-403": (False, body(b"", "403 Forbidden")),
    "status-404": (False, body(b"", "404 Not Found")),
    "status-409": (False, body(b"", "409 Conflict")),
    "status-418": (False, body(b"", "418 Teapot")),
    "status-429": (False, body(b"", "429 Too Many Requests")),
    "status-500": (False, body(b"secret stack trace", "500 Internal Server Error")),
    "status-503": (False, body(b"", "503 Service Unavailable")),
    "status-999": (False, body(b"{}", "999 Odd")),
    "error-with-status": (
        False,
        body(b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","code":403}', "403 Forbidden"),
    ),
    "empty": (False, body(b"")),
    "not-json": (False, body(b"<html>")),
    "a-list": (False, body(b"[]")),
    "a-number": (False, body(b"1")),
    "null": (False, body(b"null")),
    "deep": (False, body(b"[" * 100_000)),
    "deep-object": (False, body(b'{"a":' * 50_000 + b"1" + b"}" * 50_000)),
    "invalid-utf8": (False, _invalid_utf8),
    "no-kind": (False, body(b'{"response":{}}')),
    "another-kind": (False, answer(kind="ConfigMap")),
    "another-group": (False, answer(apiVersion="v1")),
    "no-response": (False, body(_REVIEW % b"null")),
    "response-is-a-list": (False, body(_REVIEW % b"[]")),
    "response-is-a-string": (False, body(_REVIEW % b'"yes"')),
    "another-uid": (False, answer({"uid": "00000000-0000-0000-0000-000000000000"})),
    "no-uid": (False, answer({"uid": ""})),
    "uid-is-a-number": (False, answer({"uid": 5})),
    "allowed-is-a-string": (False, answer({"allowed": "true"})),
    "allowed-is-a-number": (False, answer({"allowed": 1})),
    "status-is-a-string": (False, answer({"allowed": False, "status": "no"})),
    "status-is-a-list": (False, answer({"allowed": False, "status": []})),
    "message-is-an-object": (False, answer({"allowed": False, "status": {"message": {}}})),
    "code-is-a-string": (False, answer({"allowed": False, "status": {"code": "403"}})),
    "code-is-large": (False, answer({"allowed": False, "status": {"code": 2**40}})),
    "code-is-a-fraction": (False, answer({"allowed": False, "status": {"code": 403.5}})),
    "code-is-negative": (False, answer({"allowed": False, "status": {"code": -1}})),
    "code-is-unknown": (False, answer({"allowed": False, "status": {"code": 499}})),
    "details-are-a-list": (False, answer({"allowed": False, "status": {"details": []}})),
    "causes-are-strings": (False, answer({"allowed": False, "status": {"details": {"causes": ["x"]}}})),
    "details-and-unknown-fields": (
        False,
        answer({"allowed": False, "status": {"details": {"name": "n", "zzz": 1}, "zzz": {}}}),
    ),
    "line-breaks-in-the-message": (False, answer({"allowed": False, "status": {"message": "a\r\nX-Evil: 1\r\n\r\nb"}})),
    "warnings-are-a-string": (False, answer({"warnings": "x"})),
    "warnings-are-numbers": (False, answer({"warnings": [1]})),
    "line-breaks-in-a-warning": (False, answer({"warnings": ["a\r\nX-Evil: 1\r\n\r\nb"]})),
    "an-empty-warning": (False, answer({"warnings": ["", "x", "x"]})),
    "a-long-warning": (False, answer({"warnings": ["x" * 100_000]})),
    "many-warnings": (False, answer({"warnings": [f"warning {number}" for number in range(5000)]})),
    "many-long-warnings": (False, answer({"warnings": [f"{number}" + "x" * 1000 for number in range(50)]})),
    "many-annotations": (False, answer({"auditAnnotations": {f"key{number}": "x" * 100 for number in range(5000)}})),
    "annotations-are-a-list": (False, answer({"auditAnnotations": ["x"]})),
    "a-patch-of-a-validating-webhook": (False, patch([_ADD])),
    "patch-correct": (True, patch([_ADD])),
    "patch-is-not-base64": (True, answer({"patchType": "JSONPatch", "patch": "!!!"})),
    "patch-is-a-list": (True, answer({"patchType": "JSONPatch", "patch": [_ADD]})),
    "patch-is-not-json": (True, patch(b"{")),
    "patch-is-an-object": (True, patch({"op": "add"})),
    "patch-is-a-number": (True, patch(b"5")),
    "patch-is-null": (True, patch(b"null")),
    "patch-of-numbers": (True, patch([1, 2])),
    "patch-of-nulls": (True, patch([None])),
    "patch-without-op": (True, patch([{}])),
    "patch-op-unknown": (True, patch([{"op": "zap", "path": "/data"}])),
    "patch-op-is-a-number": (True, patch([{"op": 5, "path": "/data"}])),
    "patch-path-missing": (True, patch([{"op": "remove", "path": "/nope/nope"}])),
    "patch-path-odd": (True, patch([{"op": "add", "path": "data", "value": {}}])),
    "patch-path-is-a-number": (True, patch([{"op": "add", "path": 5, "value": {}}])),
    "patch-replaces-everything": (True, patch([{"op": "replace", "path": "", "value": {}}])),
    "patch-removes-everything": (True, patch([{"op": "remove", "path": ""}])),
    "patch-makes-a-list": (True, patch([{"op": "replace", "path": "", "value": []}])),
    "patch-kind": (True, patch([{"op": "replace", "path": "/kind", "value": "Secret"}])),
    "patch-version": (True, patch([{"op": "replace", "path": "/apiVersion", "value": "apps/v1"}])),
    "patch-name": (True, patch([{"op": "replace", "path": "/metadata/name", "value": "hostile-other"}])),
    "patch-namespace": (True, patch([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}])),
    "patch-uid": (True, patch([{"op": "add", "path": "/metadata/uid", "value": "5"}])),
    "patch-metadata": (True, patch([{"op": "remove", "path": "/metadata"}])),
    "patch-wrong-type": (True, patch([{"op": "add", "path": "/data/x", "value": {"y": 1}}])),
    "patch-invalid-key": (True, patch([{"op": "add", "path": "/data/x y", "value": "z"}])),
    "patch-managed-fields": (
        True,
        patch([{"op": "add", "path": "/metadata/managedFields", "value": [{"manager": 5}]}]),
    ),
    "patch-many-operations": (True, patch([_ADD] * 20_000)),
    "patch-doubling": (
        True,
        patch([_ADD, *({"op": "copy", "from": "/data", "path": f"/data/{number}"} for number in range(40))]),
    ),
    "patch-too-large": (True, patch([{"op": "add", "path": "/data/x", "value": "y" * 2_000_000}])),
    "patch-index": (True, patch([{"op": "add", "path": "/metadata/finalizers/99999999999", "value": "x"}])),
    "patch-denied-too": (True, patch([_ADD], allowed=False)),
}


# Cases that last until the caller gives up.
SLOW = frozenset(("drip", "endless", "slow-headers", "silent"))


class HostileServer:
    """Listens until the context ends; one thread per connection, one request per connection."""

    def __init__(self, directory: Path) -> None:
        chain, self.ca = certificate(directory)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(chain)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> HostileServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with suppress(OSError, ValueError), raw, self._context.wrap_socket(raw, server_side=True) as connection:
            path, request = _read_request(connection)
            _, write = CASES[path]
            write(connection, request["request"]["uid"])

    def webhook(self, name: str, *, policy: str, selector: str) -> Object:
        return {
            "name": f"{name}.example.com",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1 if name in SLOW else 10,
            "failurePolicy": policy,
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}/{name}", "caBundle": self.ca},
            "objectSelector": {"matchLabels": {"case": selector}},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        }


def _receive(connection: ssl.SSLSocket) -> bytes:
    received = connection.recv(65536)
    if not received:
        raise ConnectionResetError("the client has closed the connection")
    return received


def _read_request(connection: ssl.SSLSocket) -> tuple[str, Object]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _receive(connection)
    head, _, content = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:"))
    while len(content) < length:
        content += _receive(connection)
    path = lines[0].split(" ")[1].partition("?")[0].strip("/")
    request: Object = json.loads(content)
    return path, request
