"""Rewrites the URLs in the tags of an HTML document, piece by piece as it arrives.

Start tags are written anew, as golang.org/x/net/html does: names in lower case, values in double quotes. Everything
else is copied.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "a": ("href",),
    "applet": ("codebase",),
    "area": ("href",),
    "audio": ("src",),
    "base": ("href",),
    "blockquote": ("cite",),
    "body": ("background",),
    "button": ("formaction",),
    "command": ("icon",),
    "del": ("cite",),
    "embed": ("src",),
    "form": ("action",),
    "frame": ("longdesc", "src"),
    "head": ("profile",),
    "html": ("manifest",),
    "iframe": ("longdesc", "src"),
    "img": ("longdesc", "src", "usemap"),
    "input": ("src", "usemap", "formaction"),
    "ins": ("cite",),
    "link": ("href",),
    "object": ("classid", "codebase", "data", "usemap"),
    "q": ("cite",),
    "script": ("src",),
    "source": ("src",),
    "video": ("poster", "src"),
}
# Their content is text, whatever it looks like.
_RAW_TEXT = frozenset(
    ("iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "title", "textarea", "xmp")
)
_MAX_TAG = 1 << 20
_ESCAPES = str.maketrans({"&": "&amp;", "'": "&#39;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "\r": "&#13;"})
_START_TAG = re.compile(r"""<([A-Za-z][^\s/>]*)((?:[^>"']|"[^"]*"|'[^']*')*)>""")
_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]*))?""")


class HtmlRewriter:
    """`feed` returns what can be written so far; `finish` the rest. Bytes that are not UTF-8 stay as they are."""

    def __init__(self, rewrite: Callable[[str], str]) -> None:
        self._rewrite = rewrite
        self._pending = b""
        self._raw_text = ""  # the element whose text is being copied

    def feed(self, data: bytes) -> bytes:
        text = (self._pending + data).decode("utf-8", "surrogateescape")
        output, at = self._advance(text)
        self._pending = text[at:].encode("utf-8", "surrogateescape")
        if len(self._pending) > _MAX_TAG:  # no tag is that long
            output, self._pending = output + text[at:], b""
        return output.encode("utf-8", "surrogateescape")

    def finish(self) -> bytes:
        rest, self._pending = self._pending, b""
        return rest

    def _advance(self, text: str) -> tuple[str, int]:
        """The output for the complete tokens, and where the first incomplete one begins."""
        parts: list[str] = []
        at = 0
        while True:
            start = self._next_tag(text, at)
            parts.append(text[at:start])
            if start == len(text):
                return "".join(parts), start
            end, token = self._token(text, start)
            if end < 0:
                return "".join(parts), start
            parts.append(token)
            at = end

    def _next_tag(self, text: str, at: int) -> int:
        if not self._raw_text:
            start = text.find("<", at)
            return len(text) if start < 0 else start
        match = re.compile(rf"</{re.escape(self._raw_text)}(?=[\s/>])", re.IGNORECASE).search(text, at)
        if match is not None:
            self._raw_text = ""
            return match.start()
        # an end tag may be cut in two
        tail = text.rfind("<", max(at, len(text) - len(self._raw_text) - 2))
        return len(text) if tail < 0 else tail

    def _token(self, text: str, start: int) -> tuple[int, str]:
        """Where the token at `<` ends, and its output; -1 if it is incomplete."""
        if self._raw_text:
            return -1, ""
        if text.startswith("<!--", start):
            end = text.find("-->", start + 4)
            return (-1, "") if end < 0 else (end + 3, text[start : end + 3])
        following = text[start + 1 : start + 2]
        if not following:
            return -1, ""
        if following in "!?/":
            end = text.find(">", start)
            return (-1, "") if end < 0 else (end + 1, text[start : end + 1])
        if not (following.isascii() and following.isalpha()):
            return start + 1, "<"
        match = _START_TAG.match(text, start)
        return (-1, "") if match is None else (match.end(), self._start_tag(match[1].lower(), match[2]))

    def _start_tag(self, name: str, attributes: str) -> str:
        is_self_closing = attributes.endswith("/")
        urls = _ATTRIBUTES.get(name, ())
        parts = [name]
        for match in _ATTRIBUTE.finditer(attributes):
            key, value = match[1].lower(), match[2] or ""
            if value[:1] in ("'", '"'):
                value = value[1:-1]
            value = html.unescape(value)
            if key in urls:
                value = self._rewrite(value)
            parts.append(f'{key}="{value.translate(_ESCAPES)}"')
        if name in _RAW_TEXT and not is_self_closing:
            self._raw_text = name
        return f"<{' '.join(parts)}{'/' if is_self_closing else ''}>"
