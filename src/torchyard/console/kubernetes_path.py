"""Which paths of the API server are reached through the console."""

from __future__ import annotations

from urllib.parse import unquote

from torchyard.api import errors
from torchyard.console.origin import refusal

_ROOTS = frozenset(("api", "apis", "version", "openapi"))


def check_kubernetes_path(path: str, query: str) -> None:
    """Raise 400 for a path that a proxy between here and the API server may read in another way."""
    target = path + query
    is_plain = target.isascii() and target.isprintable() and not set(target) & set(' "#<>\\^`{|}')
    if not path.startswith("/") or not is_plain:
        raise errors.bad_request("the path of the Kubernetes API is not valid: it has characters that must be escaped")
    segments = [unquote(segment) for segment in path.split("/")[1:]]
    if any(segment in (".", "..") or "/" in segment or not segment.isprintable() for segment in segments):
        raise errors.bad_request("the path of the Kubernetes API has a segment that is not a name")
    if segments[0] not in _ROOTS:
        raise refusal(f"of the API server only {', '.join(f'/{root}' for root in sorted(_ROOTS))} are served here")
