"""An HTTP server that shows what a proxy sent to it, and replies with what a proxy rewrites. Runs in a pod.

Plain HTTP on 8080, the same over TLS on 8443 if there is a certificate. `/tmp/ready` exists once it listens.
"""

import contextlib
import gzip
import http.server
import json
import os
import ssl
import threading

PAGE = (
    b'<!DOCTYPE html><HTML><head><title>a & b</title><BASE href="/app/"><link rel=stylesheet HREF="/style.css?v=1">\n'
    b'<script src=\'/a.js\'>if (1 < 2 && "x") location = "/raw";</script></head><body background="/b.png">'
    b'<a href="/path/to">one</a><a href="relative">two</a><a href="http://example.com/other">three</a>'
    b'<img src="/i.png" alt="a &lt; b" longdesc="/d"><form action="/send" data-x="/kept"><input formaction="/f">'
    b'</form><!-- <a href="/comment"> --><br/><video poster="/p" src="/v"></video>'
    b'<iframe src="//host/x"></iframe></body></HTML>'
)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self) -> None:
        path = self.path.partition("?")[0]
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else self._chunks()
        if path.startswith("/redirect"):
            self._send(302, b"", [("Location", self.headers.get("X-To", "/there"))])
        elif path.startswith("/page.gz"):
            self._send(200, gzip.compress(PAGE), [("Content-Type", "text/html"), ("Content-Encoding", "gzip")])
        elif path.startswith("/page"):
            self._send(200, PAGE, [("Content-Type", "text/html; charset=utf-8")])
        elif path.startswith("/status/"):
            self._send(int(path.rpartition("/")[2]), b"status\n", [("Content-Type", "text/plain")])
        elif path.startswith("/headers"):
            pairs = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Access-Control-Allow-Origin", "*")]
            pairs += [("X-Own", "yes"), ("Cache-Control", "max-age=60"), ("Keep-Alive", "5"), ("Server", "own")]
            self._send(200, b"{}", [*pairs, ("Content-Type", "application/json")])
        elif path.startswith("/bare"):
            self._send(200, b"no type", [])
        elif path.startswith("/close"):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"until the end")
            self.close_connection = True
        elif path.startswith("/upgrade"):
            self._upgrade()
        else:
            sent = {
                "method": self.command,
                "path": self.path,
                "body": len(body) if len(body) > 100 else body.decode(),
                "headers": sorted([name.title(), value] for name, value in self.headers.items()),
                "pod": os.environ.get("HOSTNAME", ""),
            }
            self._send(200, json.dumps(sent).encode(), [("Content-Type", "application/json")])

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = respond

    def _send(self, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    def _chunks(self) -> bytes:
        parts = []
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        return b"".join(parts)

    def _upgrade(self) -> None:
        if self.headers.get("Upgrade") != "echo":
            self._send(400, b"not echo", [("Content-Type", "text/plain")])
            return
        self.send_response_only(101)
        self.send_header("Upgrade", "echo")
        self.send_header("Connection", "Upgrade")
        self.end_headers()
        self.close_connection = True
        while line := self.rfile.readline():
            self.wfile.write(b"echo " + line)

    def log_message(self, *_: object) -> None:
        return None


def main() -> None:
    servers = [http.server.ThreadingHTTPServer(("", 8080), Handler)]
    with contextlib.suppress(KeyError):
        with open("/tmp/chain.pem", "w") as file:
            file.write(os.environ["CHAIN"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain("/tmp/chain.pem")
        servers.append(http.server.ThreadingHTTPServer(("", 8443), Handler))
        servers[1].socket = context.wrap_socket(servers[1].socket, server_side=True)
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    open("/tmp/ready", "w").close()
    servers[0].serve_forever()


if __name__ == "__main__":
    main()
