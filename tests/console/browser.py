"""What a browser sends to the console, with every header in the hands of the test."""

from __future__ import annotations

import hmac
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

OWN = {"X-Torchyard-Console": "1"}


@dataclass
class Page:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Browser:
    origin: str
    ca: str = ""
    cookies: dict[str, str] = field(default_factory=dict)
    proof: str = ""

    @property
    def is_tls(self) -> bool:
        return self.origin.startswith("https")

    def connect(self) -> http.client.HTTPConnection:
        address = urlsplit(self.origin).netloc
        if self.is_tls:
            return http.client.HTTPSConnection(address, timeout=30, context=ssl.create_default_context(cafile=self.ca))
        return http.client.HTTPConnection(address, timeout=30)

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """A response whose body is not read yet. The caller closes it and its connection."""
        connection = self.connect()
        connection.putrequest(method, path, skip_host="Host" in (headers or {}), skip_accept_encoding=True)
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if self.cookies:
            connection.putheader("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        if data:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data or None)
        response = connection.getresponse()
        response.connection = connection  # type: ignore[attr-defined]
        return response

    def request(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Page:
        response = self.send(method, path, body, headers)
        try:
            page = Page(response.status, response.headers, response.read())
        finally:
            response.connection.close()  # type: ignore[attr-defined]
        for line in page.headers.get_all("Set-Cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies.pop(name, None)
            if value:
                self.cookies[name] = value
        return page

    def own(self, method: str, path: str, body: object = None, **headers: str) -> Page:
        """As a page of the console sends it."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request(method, f"/console{path}", body, {**self.headers, "Origin": self.origin, **more})

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the pages' own requests."""
        return {**OWN, **({"X-Torchyard-Console-Proof": self.proof} if self.proof else {})}

    def sign_in(self, code: str) -> Page:
        page = self.own("POST", "/login", {"code": code})
        if page.status == 204:
            key = bytes.fromhex(page.headers["X-Torchyard-Console-Key"])
            self.proof = hmac.new(key, b"torchyard console", "sha256").hexdigest()
        return page
