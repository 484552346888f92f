"""Refuses what another web page causes a browser to send: cross-site requests, and DNS names that were rebound.

A browser adds the cookie of the console to requests of other pages too, at least to those of the same site, to which
every port of this machine belongs. So a request that acts or reads must have a header of our own, which another page
cannot add without a preflight request that is never granted, and must come from our own origin.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from torchyard.api.errors import StatusError
from torchyard.console.request import ConsoleRequest

OWN_HEADER = "X-Torchyard-Console"
LOOPBACK_HOSTS = frozenset(("127.0.0.1", "localhost", "::1"))
# With every response. The pages load nothing from elsewhere, and no other page may embed or open them.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def refusal(reason: str) -> StatusError:
    return StatusError(403, "Forbidden", f"the console refuses this request: {reason}")


def check_host(request: ConsoleRequest, hosts: Collection[str]) -> None:
    """Raise 403 unless the Host header names this server: another name may have been rebound to its address."""
    host = request.headers.get("Host", "")
    if host_name(host) not in hosts:
        raise refusal("its Host header does not name this server; open the link that `yard console` prints")


def host_name(host: str) -> str:
    """The name or address of a Host header, without its port; empty if the header is not valid."""
    if not host or any(character in host for character in "/?#@\\ ,"):
        return ""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return ""
    return (parts.hostname or "").removesuffix(".")


def check_own_request(request: ConsoleRequest) -> None:
    """Raise 403 unless a page of the console, or a program that is not a browser, sent the request."""
    headers = request.headers
    if headers.get(OWN_HEADER) != "1":
        raise refusal(f"the header {OWN_HEADER}: 1 is missing")
    if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        raise refusal("another site sent it")
    origin = headers.get("Origin")
    if origin is not None and origin != f"{'https' if request.is_tls else 'http'}://{headers.get('Host', '')}":
        raise refusal("a page of another origin sent it")
