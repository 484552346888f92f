"""Requests through `pods/proxy` and `services/proxy`, and what is compared of the responses."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

NAMESPACE = "default"
# Of the responses. Others name the connection or the server, such as Date and Audit-Id.
COMPARED = (
    "Content-Type",
    "Content-Encoding",
    "Location",
    "Set-Cookie",
    "Cache-Control",
    "X-Own",
    "Server",
    "Access-Control-Allow-Origin",
    "Keep-Alive",
)
# (method, path below the namespace, headers, body)
CASES: list[tuple[str, str, dict[str, str], bytes]] = [
    *((method, "pods/web:8080/proxy/any?x=1&y=%20", {}, b"") for method in ("GET", "HEAD", "OPTIONS")),
    *((method, "pods/web:8080/proxy/any", {"Content-Type": "a/b"}, b"hello") for method in ("POST", "PUT", "PATCH")),
    *(
        ("GET", f"pods/{name}/proxy/any", {}, b"")
        for name in (
            *("web", "http:web:8080", "https:web:8443", "http:web:", "web:9999", "ftp:web:8080"),
            *("missing", "http:web", "a:b:c:d", ":web:8080", "web:", "pending", "https:web:8080"),
        )
    ),
    *(
        ("GET", f"services/{name}/proxy/any", {}, b"")
        for name in (
            *("web", "web:http", "web:80", "web:81", "https:web:https", "https:web:443", "http:web:http", "web:named"),
            *("empty", "empty:80", "missing", "missing:80", "manual:80", "headless:8080", "single", "single:80"),
            *("ftp:web:80", "outside:80"),
        )
    ),
    *(
        ("GET", f"services/web:http/proxy{path}", {}, b"")
        for path in (
            *("", "?x=1", "/", "/a/", "//a//b/", "/a/../b", "/a%2Fb%20c", "/%C3%A9", "/a!b*(c)'d;e=f", "/%ff"),
            *("/page", "/page.gz", "/status/404", "/status/500", "/status/204", "/headers", "/bare", "/close"),
        )
    ),
    ("HEAD", "services/web:http/proxy", {}, b""),
    ("POST", "services/web:http/proxy", {}, b""),
    ("HEAD", "services/web:http/proxy/page", {}, b""),
    *(
        ("GET", "services/web:http/proxy/redirect", {"X-To": target}, b"")
        for target in (
            *("/there", "/there/", "relative", "http://example.com/x", "//example.com/x", "http://HOST/x?y#z"),
            *("/api/v1/namespaces/default/services/web:http/proxy/in", "https://HOST/x", "http://api.test/x"),
        )
    ),
    (
        "GET",
        "pods/web:8080/proxy/any",
        {
            "Authorization": "",
            "Cookie": "a=b",
            "X-Forwarded-For": "1.2.3.4",
            "X-Forwarded-Uri": "/false",
            "Accept-Encoding": "gzip",
            "Keep-Alive": "3",
            "Te": "trailers",
            "X-Custom": "kept",
            "User-Agent": "browser",
            "Connection": "X-Dropped",
            "X-Dropped": "1",
        },
        b"",
    ),
    ("POST", "services/web:http/proxy/any", {"Content-Type": "a/b"}, b"x" * 200_000),
    ("POST", "services/web:http/proxy/any", {"Content-Type": "a/b"}, b"x" * 5_000_000),
    ("GET", "services/web:http/proxy/upgrade", {"Connection": "Upgrade", "Upgrade": "other"}, b""),
]


def send(url: str, token: str, case: tuple[str, str, dict[str, str], bytes]) -> dict[str, Any]:
    """One request; the parts of the response that do not depend on the server's addresses."""
    method, path, headers, body = case
    host = urlsplit(url).netloc
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, context=context, timeout=30)
    connection.putrequest(method, _target(path), skip_accept_encoding="Accept-Encoding" not in headers, skip_host=True)
    sent = {"Host": "api.test", "Authorization": f"Bearer {token}", **headers}
    sent["Authorization"] = f"Bearer {token}"
    if body or method in ("POST", "PUT", "PATCH"):
        sent["Content-Length"] = str(len(body))
    for name, value in sent.items():
        connection.putheader(name, value)
    connection.endheaders(body or None)
    response = connection.getresponse()
    content = response.read()
    kept = sorted([name, value] for name, value in response.getheaders() if name in COMPARED)
    connection.close()
    return {"status": response.status, "headers": kept, "body": _comparable(content)}


def _target(path: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/{path}".encode().decode("latin-1")


def _comparable(content: bytes) -> Any:
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    text = re.sub(r"\b\d+\.\d+\.\d+\.\d+\b", "ADDRESS", content.decode("latin-1"))
    try:
        return json.loads(text)
    except ValueError:
        return text


def upgrade(url: str, token: str, path: str) -> bytes:
    """Upgrade a connection to the backend's echo protocol, send a line and return everything received."""
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((parts.hostname, parts.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname) as connection,
    ):
        head = f"GET {_target(path)} HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer {token}\r\n"
        connection.sendall(f"{head}Connection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
        received = connection.recv(4096)
        connection.sendall(b"hello\n")
        while b"echo hello" not in received and (data := connection.recv(4096)):
            received += data
        return received
