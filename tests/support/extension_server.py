"""An extension API server with one resource, `things`, which answers with the requests it gets."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard.apiserver.access.certificates import ensure

Object = dict[str, Any]

GROUP, VERSION = "extension.torchyard.dev", "v1"
ROOT = f"/apis/{GROUP}/{VERSION}"
_ENTRY = {"name": "things", "singularName": "thing", "namespaced": True, "kind": "Thing", "verbs": ["get", "list"]}
RESOURCES: list[Object] = [
    {**_ENTRY, "shortNames": ["th"]},
    {**_ENTRY, "name": "things/status", "singularName": "", "verbs": ["get"]},
]


class ExtensionServer:
    """Serves until `close`, with a certificate for `name`, and records the subjects of its clients' certificates."""

    def __init__(self, directory: Path, name: str, resources: Sequence[Any] = RESOURCES) -> None:
        credentials = ensure(directory, names=[name])
        self.authority = base64.b64encode(credentials.authority.read_bytes()).decode()
        self._server = _Server(("127.0.0.1", 0), _handler(resources))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "server.crt", directory / "server.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust the certificate closes the connection."""


def _handler(resources: Sequence[Any]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            path = self.path.partition("?")[0]
            status, document = 200, self._echo(body)
            if path == ROOT:
                document = {"kind": "APIResourceList", "groupVersion": f"{GROUP}/{VERSION}", "resources": resources}
            elif not path.startswith(ROOT):
                status = 404
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _echo(self, body: str) -> Object:
            headers = [[name.lower(), value] for name, value in self.headers.items()]
            return {"method": self.command, "path": self.path, "headers": headers, "body": body}

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _answer

    return Handler
