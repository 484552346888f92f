"""The content type of a response that names none, as Go's HTTP server finds it (http.DetectContentType)."""

from __future__ import annotations

import re

_HTML = re.compile(
    rb"<(?:!DOCTYPE HTML|HTML|HEAD|SCRIPT|IFRAME|H1|DIV|FONT|TABLE|A|STYLE|TITLE|B|BODY|BR|P)[ >]|<!--", re.IGNORECASE
)
_SIGNATURES = (
    (b"<?xml", "text/xml; charset=utf-8"),
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x1f\x8b\x08", "application/x-gzip"),
    (b"PK\x03\x04", "application/zip"),
)
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_SNIFFED_BYTES = 512


def content_type(start: bytes) -> str:
    start = start[:_SNIFFED_BYTES]
    text = start.lstrip(b"\t\n\x0c\r ")
    if _HTML.match(text):
        return "text/html; charset=utf-8"
    for signature, name in _SIGNATURES:
        if start.startswith(signature) or (signature == b"<?xml" and text.startswith(signature)):
            return name
    return "application/octet-stream" if _BINARY.search(start) else "text/plain; charset=utf-8"
